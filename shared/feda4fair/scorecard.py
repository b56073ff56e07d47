"""The standard result of a set of predictions: figures, who is harmed, tables, JSON, text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from feda4fair.errors import MeasureError
from feda4fair.harm import Harm, figures
from feda4fair.intervals import wilson
from feda4fair.render import Page
from feda4fair.report import FairnessReport

__all__ = ["Marks", "Protocol", "Score"]

Protocol = Literal["injected", "restored"]

FORMAT = 1
NORMAL_95 = 1.959963984540054

_NOTES = (
    "injected: test rows as they are. restored: labels before injection, and the test rows that "
    "it dropped are back.",
    "worst tenth: mean over the tenth of the clients (at least one) with the largest disparity, "
    "or the lowest accuracy. Undefined figures enter no mean.",
    "harmed, helped: share of clients whose paired bootstrap interval (95 %, same rows) lies on "
    "one side of 0.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """What predictions come to under one protocol: the report, and who is harmed."""

    report: FairnessReport
    harms: tuple[Harm, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The standard result of one set of predictions.

    Parameters
    ----------
    dataset, config, control : str
        What was predicted; ``control`` as in the recipe.
    recipe_sha256 : str
        Hash of the recipe.
    injection_seed : int
        Seed of the recipe, so of the injection.
    training_seed : int or None
        Seed of the method, where it has one.
    method : str
        Name of the method.
    mitigated : str or None
        Attribute that the method was to be fair to.
    rows : str
        Which rows were predicted.
    injected : Marks
    restored : Marks or None
        None where the predictions lack the rows that injection dropped.
    """

    dataset: str
    config: str
    control: str
    recipe_sha256: str
    injection_seed: int
    training_seed: int | None
    method: str
    mitigated: str | None
    rows: str
    injected: Marks
    restored: Marks | None

    def marks(self, protocol: Protocol = "injected") -> Marks:
        """Return the result of one protocol.

        Raises
        ------
        MeasureError
            If it was not scored.
        """
        if protocol not in get_args(Protocol):
            raise MeasureError(f"protocol {protocol!r}: it is 'injected' or 'restored'.")
        found = self.injected if protocol == "injected" else self.restored
        if found is None:
            raise MeasureError(
                f"{self.method}: the restored protocol was not scored, since no row that "
                "injection dropped was predicted; predict those of dropped/*.parquet too."
            )
        return found

    @property
    def protocols(self) -> tuple[Protocol, ...]:
        """The protocols that were scored."""
        return ("injected",) if self.restored is None else ("injected", "restored")

    def clients(self, protocol: Protocol = "injected") -> pd.DataFrame:
        """Return accuracy, DD and EOD of every client, and of all rows ``pooled``.

        Returns
        -------
        pandas.DataFrame
            By client: ``rows``, ``accuracy`` with its 95 % Wilson interval, ``DD <attribute>``
            and ``EOD <attribute>``, the ``worst`` attribute with its most disadvantaged
            ``value``, that value's signed ``gap`` with its simultaneous interval, and the
            verdict. The report's statistics hold those of every value.
        """
        report = self.marks(protocol).report
        return pd.concat([_client_table(report), _client_table(report.pooled)])

    def summary(self) -> pd.DataFrame:
        """Return one row per protocol, attribute and figure, with the accuracy beside it."""
        return pd.DataFrame(
            row for protocol in self.protocols for row in self._summary_rows(protocol)
        )

    def _summary_rows(self, protocol: Protocol) -> list[dict[str, object]]:
        marks = self.marks(protocol)
        report = marks.report
        each = figures(report.cube, report.against)
        pooled = figures(report.pooled.cube, report.against)
        accuracy = each["accuracy", ""]
        return [
            {
                "protocol": protocol,
                "attribute": attribute,
                "figure": figure,
                "clients": int((~np.isnan(values)).sum()),
                "accuracy": float(pooled["accuracy", ""][0]),
                "mean accuracy": _mean(accuracy),
                "worst tenth accuracy": _tenth(accuracy, largest=False),
                "pooled": float(pooled[figure, attribute][0]),
                "mean": _mean(values),
                "worst tenth": _tenth(values, largest=True),
                "largest": float(np.fmax.reduce(values)),
            }
            for (figure, attribute), values in each.items()
            if figure != "accuracy"
        ]

    def worst_other(self, protocol: Protocol = "injected") -> str | None:
        """Return the attribute, other than the mitigated one, with the largest mean client DD."""
        report = self.marks(protocol).report
        means = {
            attribute: _mean(values)
            for (figure, attribute), values in figures(report.cube, report.against).items()
            if figure == "DD" and attribute != self.mitigated
        }
        known = {name: mean for name, mean in means.items() if not np.isnan(mean)}
        return max(known, key=lambda name: known[name]) if known else None

    def harm(self) -> pd.DataFrame:
        """Return shares of clients harmed and helped, one row per protocol, reference, figure."""
        return pd.DataFrame(
            {
                "protocol": protocol,
                "against": harm.reference,
                "figure": f"{harm.figure} {harm.attribute}".strip(),
                "clients": sum(verdict != "undefined" for verdict in harm.verdicts),
                "mean difference": _mean(np.array(harm.difference, dtype=np.float64)),
                "harmed": harm.share("harmed"),
                "helped": harm.share("helped"),
                "undecided": harm.share("undecided"),
            }
            for protocol in self.protocols
            for harm in self.marks(protocol).harms
        )

    def figures(self) -> pd.DataFrame:
        """Return every figure in long form, in full precision.

        Returns
        -------
        pandas.DataFrame
            ``config, client_id, protocol, model, metric, attribute, against, value``;
            ``client_id`` is "pooled" for all rows together, ``attribute`` and ``against`` are
            empty for accuracy.
        """
        blocks = []
        for protocol in self.protocols:
            report = self.marks(protocol).report
            for one in (report, report.pooled):
                for (figure, attribute), values in figures(one.cube, one.against).items():
                    blocks.append(
                        pd.DataFrame(
                            {
                                "config": self.config,
                                "client_id": one.clients,
                                "protocol": protocol,
                                "model": self.method,
                                "metric": figure,
                                "attribute": attribute,
                                "against": one.against if attribute else "",
                                "value": values,
                            }
                        )
                    )
        return pd.concat(blocks, ignore_index=True)

    def to_json(self) -> str:
        """Return the result as JSON; :meth:`from_json` gives an equal one back."""
        plain: dict[str, Any] = {name: getattr(self, name) for name in _FACTS} | {
            protocol: _plain(self.marks(protocol)) for protocol in self.protocols
        }
        return json.dumps({"format": FORMAT, **plain}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str | Path) -> Score:
        """Read a result from JSON text or a file.

        Raises
        ------
        MeasureError
            If :meth:`to_json` did not write it.
        """
        where = str(text) if isinstance(text, Path) else "score"
        try:
            read = json.loads(text.read_text("utf-8") if isinstance(text, Path) else text)
            if read["format"] != FORMAT:
                raise MeasureError(
                    f"{where}: format {read['format']!r} where {FORMAT} is expected; score the "
                    "predictions again."
                )
            return cls(
                **{name: read[name] for name in _FACTS},
                injected=_marks(read["injected"]),
                restored=_marks(read["restored"]) if "restored" in read else None,
            )
        except (OSError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, MeasureError):
                raise
            raise MeasureError(
                f"{where}: no score ({type(error).__name__}: {error}); expected what "
                "Score.to_json wrote."
            ) from None

    def __str__(self) -> str:
        """Return the result for a terminal."""
        return self._page().text()

    def _repr_html_(self) -> str:
        """Return the result for a notebook."""
        return self._page().html()

    def _page(self) -> Page:
        tables = {
            f"Clients, {protocol}": _readable(self.clients(protocol))
            for protocol in self.protocols
        }
        tables["Summary"] = self.summary()
        harm = self.harm()
        if len(harm):
            tables["Harm"] = harm
        others = (f"{self.worst_other(protocol)} ({protocol})" for protocol in self.protocols)
        beside = f" other than {self.mitigated}" if self.mitigated else ""
        worst = f"Attribute{beside} with the largest mean client DD: {', '.join(others)}."
        seed = "" if self.training_seed is None else f", training seed {self.training_seed}"
        return Page(
            title=f"{self.method} on {self.dataset}/{self.config}, {self.rows}",
            caption=f"{self.injected.report.against}; recipe {self.recipe_sha256[:12]}, injection "
            f"seed {self.injection_seed}{seed}",
            tables=tables,
            notes=(worst, *_NOTES),
        )


_FACTS = (
    *("dataset", "config", "control", "recipe_sha256", "injection_seed", "training_seed"),
    *("method", "mitigated", "rows"),
)


def _client_table(report: FairnessReport) -> pd.DataFrame:
    found = figures(report.cube, report.against)
    cells = report.cube.counts.sum(axis=1)
    low, high = wilson(cells[:, 0, 0] + cells[:, 1, 1], report.cube.rows(), NORMAL_95)
    index = pd.Index(report.clients, name="client_id")
    measured = pd.DataFrame(
        {
            "rows": report.cube.rows(),
            "accuracy": found["accuracy", ""],
            "accuracy low": low,
            "accuracy high": high,
            **{f"{figure} {name}".strip(): values for (figure, name), values in found.items()},
        },
        index=index,
    )
    worst = pd.DataFrame([_worst(report, k) for k in range(len(index))], index=index)
    return pd.concat([measured, worst], axis=1)


def _worst(report: FairnessReport, client: int) -> dict[str, object]:
    """Return the lowest signed gap of a client's worst contender, with its interval."""
    found = report.worst(report.clients[client])
    judged = report.assessments[found.attribute, "DD"]
    names = judged.part.attribute.values  # noqa: PD011 - no data frame
    value = int(judged.part.worst()[client].argmax())
    return {
        "worst": found.attribute,
        "value": names[value],
        "gap": judged.part.gap()[client, value],
        "gap low": judged.low[client, value],
        "gap high": judged.high[client, value],
        "verdict": f"toward {found.toward}" if found.toward else found.verdict,
    }


def _readable(clients: pd.DataFrame) -> pd.DataFrame:
    """Return the table of clients for a page: an interval in one column."""
    bounds = [
        "-" if np.isnan(gap) else f"{gap:+.3f} ({low:+.3f} to {high:+.3f})"
        for gap, low, high in zip(
            clients["gap"], clients["gap low"], clients["gap high"], strict=True
        )
    ]
    shown = clients.assign(gap=bounds)
    hidden = ["accuracy low", "accuracy high", "gap low", "gap high"]
    return shown.drop(columns=hidden).reset_index()


def _mean(values: NDArray[np.float64]) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def _tenth(values: NDArray[np.float64], *, largest: bool) -> float:
    """Return the mean of the worst tenth of the known values, of at least one."""
    known = np.sort(values[~np.isnan(values)])
    if not len(known):
        return float("nan")
    count = -(-len(known) // 10)
    return float((known[-count:] if largest else known[:count]).mean())


def _plain(marks: Marks) -> dict[str, Any]:
    return {
        "report": json.loads(marks.report.to_json()),
        "harms": [asdict(harm) for harm in marks.harms],
    }


def _marks(read: Mapping[str, Any]) -> Marks:
    return Marks(
        report=FairnessReport.from_json(json.dumps(read["report"])),
        harms=tuple(
            Harm(
                reference=harm["reference"],
                figure=harm["figure"],
                attribute=harm["attribute"],
                clients=tuple(harm["clients"]),
                rows=tuple(harm["rows"]),
                difference=tuple(harm["difference"]),
                low=tuple(harm["low"]),
                high=tuple(harm["high"]),
            )
            for harm in read["harms"]
        ),
    )
