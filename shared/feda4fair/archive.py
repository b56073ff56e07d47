"""A report as text: its counts and its definition, from which every figure follows."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from feda4fair.cube import Attribute, Cube
from feda4fair.errors import MeasureError

__all__ = ["attach", "pack", "read_packed", "unpack", "write_table"]

_FORMAT = 1
_METADATA = b"feda4fair.report"


def pack(cube: Cube, **choices: object) -> str:
    """Return counts and choices as JSON; ``counts`` nest client, group, label, prediction."""
    return json.dumps(
        {
            "format": _FORMAT,
            **choices,
            "clients": cube.clients,
            "attributes": [asdict(attribute) for attribute in cube.attributes],
            "counts": cube.counts.tolist(),
        },
        separators=(",", ":"),
    )


def unpack(text: str | bytes, *choices: str) -> tuple[Cube, dict[str, Any]]:
    """Return the counts and the named choices of :func:`pack`.

    Raises
    ------
    MeasureError
        For text that :func:`pack` did not write.
    """
    try:
        read = json.loads(text)
        if read["format"] != _FORMAT:
            raise MeasureError(
                f"fairness report of format {read['format']}, expected {_FORMAT}; read it with "
                "the version of feda4fair that wrote it."
            )
        attributes = tuple(
            Attribute(name=a["name"], values=tuple(a["values"]), codes=tuple(a["codes"]))
            for a in read["attributes"]
        )
        cube = Cube(
            clients=tuple(read["clients"]),
            attributes=attributes,
            counts=np.array(read["counts"], dtype=np.int64),
        )
        return cube, {name: read[name] for name in choices}
    except MeasureError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise MeasureError(
            f"no fairness report ({type(error).__name__}: {error}); expected the text that "
            "FairnessReport.to_json wrote."
        ) from error


def attach(table: pa.Table, packed: str) -> pa.Table:
    """Return the table with a packed report in its schema metadata."""
    return table.replace_schema_metadata({_METADATA: packed})


def write_table(table: pa.Table, path: Path) -> None:
    """Write a Parquet file beside its place, then move it there."""
    part = path.with_name(f".{path.name}.part")
    try:
        pq.write_table(table, part, compression="zstd")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def read_packed(path: Path) -> bytes:
    """Return the packed report of a statistics file.

    Raises
    ------
    MeasureError
        For a file that cannot be read or holds no report.
    """
    try:
        metadata = pq.read_schema(path).metadata or {}
    except (OSError, pa.ArrowInvalid) as error:
        raise MeasureError(
            f"{path}: no readable Parquet file ({error}); expected a statistics file of feda4fair."
        ) from error
    if _METADATA not in metadata:
        raise MeasureError(
            f"{path}: holds no fairness report; expected a statistics file of feda4fair."
        )
    packed: bytes = metadata[_METADATA]
    return packed
