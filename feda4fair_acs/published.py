"""What the paper printed about local models on ACS Income, and how those models were trained.

Tables 3 to 6 list, for each client, the attribute or the value of Race with the largest
demographic disparity over both local models: between-groups disparity (``pairs``) of predictions
on the client's held-out rows, the value being the one with the lowest rate. They were trained
with a leaked column (:mod:`feda4fair.evaluate`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from feda4fair.errors import MeasureError
from feda4fair.harm import figures
from feda4fair.rates import rates
from feda4fair.recipe import RowSplit
from feda4fair.report import FairnessReport
from feda4fair_acs.configs import ATTRIBUTE_DEVICE, VALUE_DEVICE

__all__ = [
    "OWN_SPLITS",
    "PRINTED_COUNTS_3",
    "TABLES",
    "TABLE_3",
    "TABLE_3_EOD",
    "TABLE_4",
    "Winner",
    "winners",
]

OWN_SPLITS: Final[Mapping[str, RowSplit]] = {
    "attribute-device": RowSplit(validation=0.0, test=0.2, stratify=("SEX", "RAC1P")),
    "value-device": RowSplit(validation=0.0, test=0.2),
}
"""How the device clients split their own rows."""

TABLE_3: Final[dict[str, str]] = {
    "Sex": """
        AR ID IL IN KS LA MI MO ND NH OH OK PA PR SD TN TX UT VA WA WV WY""",
    "Race": """
        AK AL AZ CA CO CT DE FL GA HI IA KY MA MD ME MN MS MT NC NE NJ NM NV NY OR RI SC VT WI""",
}
"""Table 3, Demographic Disparity columns: the 51 clients of attribute-silo."""

PRINTED_COUNTS_3: Final[dict[str, int]] = {"Sex": 21, "Race": 29}
"""The counts that Table 3 prints; it lists 22 clients for Sex, and 22 + 29 = 51 is right."""

TABLE_3_EOD: Final[dict[str, str]] = {
    "Sex": "",
    "Race": "AK AL AZ HI MN MS ND NE NM NV NY OK RI SC VT WI WY",
}
"""Table 3, Equalized Odds Difference columns: 17 of 51 clients; no simple rule gives them."""

TABLE_4: Final[dict[str, str]] = {
    "Black": "FL ME MN MT ND NH OK SD VT",
    "Asian": "PR WY",
    "Alaska Native/American Indian": "AK AL CO CT DE GA HI ID KY MS NE NM OH OR PA UT",
    "Others": """
        AR AZ CA IA IL IN KS LA MA MD MI MO NC NJ NV NY RI SC TN TX VA WA WI WV""",
}
"""Table 4, Demographic Disparity columns: the 51 clients of value-silo; White is never worst."""

_ATTRIBUTES: Final = {"Sex": "SEX", "Race": "RAC1P"}


def _by_client(table: Mapping[str, str]) -> dict[str, str]:
    return {client: value for value, text in table.items() for client in text.split()}


TABLES: Final[dict[str, tuple[int, dict[str, str]]]] = {
    "attribute-silo": (3, _by_client(TABLE_3)),
    "value-silo": (4, _by_client(TABLE_4)),
    "attribute-device": (5, _by_client(ATTRIBUTE_DEVICE)),
    "value-device": (6, _by_client(VALUE_DEVICE)),
}
"""By config: number of the paper's table, and the winner it names for each client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """The attribute, or the value of Race, with a client's largest disparity over its models.

    Parameters
    ----------
    client : str
    printed : str
        What the paper's table names.
    found : tuple of str
        What these reports give; several where they tie exactly, lowest code first, which is the
        one that the paper prints.
    size : float
        The disparity.
    """

    client: str
    printed: str
    found: tuple[str, ...]
    size: float

    @property
    def agrees(self) -> bool:
        """Whether the paper's winner is the one found, or the first of those tied."""
        return self.found[0] == self.printed


def winners(config: str, reports: Sequence[FairnessReport]) -> list[Winner]:
    """Compare local models with the paper's table of a config.

    Parameters
    ----------
    config : str
        Name of an ACS config.
    reports : sequence of FairnessReport
        One for each model, with the same clients.

    Returns
    -------
    list of Winner
        In client order, for clients with a figure.

    Raises
    ------
    MeasureError
        If the paper has no such table.
    """
    if config not in TABLES:
        raise MeasureError(f"{config}: no table of the paper; it has {', '.join(TABLES)}.")
    printed = TABLES[config][1]
    found = _attributes(reports) if config.startswith("attribute") else _values(reports)
    return [
        Winner(client=client, printed=printed[client], found=names, size=size)
        for client, (names, size) in found.items()
    ]


Found = dict[str, tuple[tuple[str, ...], float]]


def _attributes(reports: Sequence[FairnessReport]) -> Found:
    """Return Sex or Race for each client; marital status never competes."""
    sizes = np.array(
        [
            [figures(report.cube, "pairs")["DD", column] for column in _ATTRIBUTES.values()]
            for report in reports
        ]
    ).max(axis=0)
    return _largest(reports[0].clients, tuple(_ATTRIBUTES), sizes)


def _values(reports: Sequence[FairnessReport]) -> Found:
    """Return for each client the value of Race with the lowest rate in its worst model."""
    parts = [rates(report.cube.on("RAC1P"), "DD") for report in reports]
    names = parts[0].attribute.values
    sizes = [np.where(part.lowest(), part.size("pairs")[:, None], np.nan).T for part in parts]
    return _largest(reports[0].clients, names, np.fmax.reduce(sizes))


def _largest(clients: Sequence[str], names: tuple[str, ...], sizes: NDArray[np.float64]) -> Found:
    """Return the names with the largest size, shape (names, clients), of each client."""
    most = np.fmax.reduce(sizes)
    return {
        client: (
            tuple(name for name, tied in zip(names, sizes[:, k] == top, strict=True) if tied),
            float(top),
        )
        for k, (client, top) in enumerate(zip(clients, most, strict=True))
        if not np.isnan(top)
    }
