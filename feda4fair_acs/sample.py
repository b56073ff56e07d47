"""The built-in sample of ACS Income: a synthetic population in the shape of the Census file.

No row is a person: code draws the rows of each of the 51 states from aggregate public figures
alone, with the seed. How is told in ``sample_people.py``.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from feda4fair import seeds
from feda4fair.errors import SourceError
from feda4fair_acs.sample_people import BLANK, removed, shuffled, steps, workers
from feda4fair_acs.sample_tables import Floats, Profile, profiles
from feda4fair_acs.schema import FIPS

__all__ = ["NOTICE", "Profile", "population", "profiles", "write_pums"]

NOTICE: Final = (
    "Synthetic sample: code draws every row from aggregate public figures of the American "
    "Community Survey 2018; no row describes a person, and a figure measured on it is not a "
    "figure of the benchmark."
)
"""What the card of every build from the sample says."""

_TYPES: Final = {
    "PWGTP": pa.int16(), "AGEP": pa.int16(), "COW": pa.int16(), "SCHL": pa.int16(),
    "MAR": pa.int16(), "OCCP": pa.int16(), "POBP": pa.int16(), "RELP": pa.int16(),
    "WKHP": pa.int16(), "SEX": pa.int16(), "RAC1P": pa.int16(), "PINCP": pa.int32(),
}  # fmt: skip
_WIDTHS: Final = {
    "PWGTP": 1, "AGEP": 1, "COW": 1, "MAR": 1, "RELP": 2, "SCHL": 2, "SEX": 1, "WKHP": 1,
    "OCCP": 4, "PINCP": 1, "POBP": 3, "RAC1P": 1,
}  # fmt: skip
"""Columns in the order of the Census file, with the digits to which it pads them."""

_REMOVED_SHARE: Final = 0.06


def population(state: str, *, seed: int = 0) -> pa.Table:
    """Return the synthetic person rows of one state, as the Census file would hold them.

    Parameters
    ----------
    state : str
        Postal code of one of the 51 states.
    seed : int
        Another seed draws another population; the default is the built-in sample.

    Returns
    -------
    pyarrow.Table
        ``SERIALNO`` (string; ``2018SYN``, the FIPS code and a number, so that a row names its
        origin), the ten ACSIncome features and ``PWGTP`` in the raw codes of the 2018 PUMS data
        dictionary (int16), and ``PINCP`` in dollars (int32). Blank fields are null. About six
        rows in a hundred are such as the ACSIncome filter removes.

    Raises
    ------
    SourceError
        If the sample has no such state.

    Examples
    --------
    >>> table = population("WY")
    >>> table.num_rows, table["SERIALNO"][0].as_py()
    (647, '2018SYN5600001')
    """
    profile = profiles().get(state)
    if profile is None:
        raise SourceError(
            f"The built-in sample has no state {state!r}: it holds the 50 states and PR by "
            "postal code; choose among those."
        )

    def units(column: str, size: int) -> Floats:
        return seeds.uniforms(seed, "acs-sample", state, column, size=size)

    kept = workers(state, profile, units)
    others = removed(state, profile, units, size=round(profile.rows * _REMOVED_SHARE))
    size = len(kept["AGEP"]) + len(others["AGEP"])
    order = units("order", size)
    columns = {name: shuffled(np.concatenate([kept[name], others[name]]), order) for name in kept}
    columns["PWGTP"] = steps(units("PWGTP", size), (0, 0.1, 0.5, 0.9, 1), (5, 30, 75, 200, 600))
    serial = [f"2018SYN{FIPS[state]:02d}{number:05d}" for number in range(1, size + 1)]
    return pa.table(
        {
            "SERIALNO": pa.array(serial, pa.string()),
            **{
                name: pa.array(columns[name], dtype, mask=columns[name] == BLANK)
                for name, dtype in _TYPES.items()
            },
        }
    )


def write_pums(
    folder: Path,
    states: Iterable[str] | None = None,
    *,
    kind: Literal["csv", "zip"] = "csv",
    seed: int = 0,
) -> list[Path]:
    """Write the sample in the layout that folktables and the builder read.

    Parameters
    ----------
    folder : Path
        Receives ``2018/1-Year/psam_pNN.csv``, or ``csv_pxx.zip`` holding it.
    states : iterable of str, optional
        Postal codes; all 51 by default.
    kind : {"csv", "zip"}
        Which of the two files.
    seed : int
        Seed of the population.

    Returns
    -------
    list of Path
        One file a state: the sample's columns in the order of the Census file, its leading
        zeros and its blanks; the other columns of the Census file are not made up.

    Raises
    ------
    SourceError
        If the sample has no such state; then nothing is written.
    """
    chosen = profiles() if states is None else states
    tables = {state: population(state, seed=seed) for state in chosen}
    target = folder / "2018" / "1-Year"
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for state, table in tables.items():
        name = f"psam_p{FIPS[state]:02d}.csv"
        content = _csv(state, table)
        match kind:
            case "csv":
                path = target / name
                path.write_bytes(content)
            case "zip":
                path = target / f"csv_p{state.lower()}.zip"
                with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
                    archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
            case _:
                assert_never(kind)
        written.append(path)
    return written


def _csv(state: str, table: pa.Table) -> bytes:
    constant = {"RT": "P", "SPORDER": "01", "ST": f"{FIPS[state]:02d}", "ADJINC": "1013097"}
    size = table.num_rows
    columns = {
        **{name: pa.repeat(text, size) for name, text in constant.items()},
        "SERIALNO": table["SERIALNO"],
        **{
            name: pc.utf8_lpad(pc.cast(table[name], pa.string()), width, "0")
            for name, width in _WIDTHS.items()
        },
    }
    names = ["RT", "SERIALNO", "SPORDER", "ST", "ADJINC", *_WIDTHS]
    stream = io.BytesIO()
    stream.write((",".join(names) + "\n").encode())
    pa_csv.write_csv(
        pa.table({name: columns[name] for name in names}),
        stream,
        pa_csv.WriteOptions(include_header=False, quoting_style="none"),
    )
    return stream.getvalue()
