"""Sweep rows and clients: what a build costs against its size, for benchmark.py --scale."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from feda4fair import BiasRule, ClientGroup, Gaussian, Natural, Recipe, Schema
from feda4fair.tables import BLOCK

__all__ = ["Point", "draw", "prepare", "sizes"]

ROWS_PER_CLIENT = 10_000

Point = tuple[int, int, float, float, float]
"""Rows, clients, CPU seconds, wall seconds, peak MB."""


def block(start: int, rows: int, clients: int) -> pa.Table:
    """Return made-up rows: eight features, two sensitive attributes, a label, a site."""
    state = np.random.RandomState(start // BLOCK)
    features = {f"x{i}": state.randint(0, 500, rows).astype(np.int16) for i in range(8)}
    return pa.table(
        {
            "site": state.randint(0, clients, rows).astype(np.int32),
            **features,
            "sex": state.randint(1, 3, rows).astype(np.int8),
            "race": state.randint(1, 6, rows).astype(np.int8),
            "label": (state.random_sample(rows) < 0.35).astype(np.int8),
        }
    )


def prepare(folder: Path, rows: int, clients: int) -> None:
    """Write a source of that size, a block at a time, and the recipe of its federation."""
    first = block(0, min(rows, BLOCK), clients)
    rule = BiasRule(where=(("sex", 2),), drop=Gaussian(mean=0.4, std=0.05), flip=0.1)
    recipe = Recipe(
        dataset="scale",
        name="scale",
        schema=Schema.infer(first, sensitive=["sex", "race"]),
        partition=Natural("site"),
        groups=(ClientGroup(name="half", clients=0.5, rules=(rule,)),),
    )
    (folder / "recipe.json").write_text(recipe.to_json(), "utf-8")
    with pq.ParquetWriter(folder / "rows.parquet", first.schema) as writer:
        for start in range(0, rows, BLOCK):
            writer.write_table(block(start, min(BLOCK, rows - start), clients))


def sizes(largest: int) -> Iterator[tuple[int, int]]:
    """Yield rows and clients: rows with 10,000 a client, then clients with a million rows."""
    rows = ROWS_PER_CLIENT
    while rows <= largest:
        yield rows, rows // ROWS_PER_CLIENT
        rows *= 10
    for clients in (10, 1_000, 10_000):
        if largest >= 1_000_000:
            yield 1_000_000, clients


def draw(points: Sequence[Point], path: Path) -> None:
    """Draw cost against size, both axes logarithmic."""
    from matplotlib.figure import Figure

    grown = [point for point in points if point[0] == point[1] * ROWS_PER_CLIENT]
    million = sorted(point for point in points if point[0] == 1_000_000)
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    panels: tuple[tuple[Any, list[Point], int, str], ...] = (
        (left, grown, 0, "rows, 10,000 for each client"),
        (right, million, 1, "clients that share 1,000,000 rows"),
    )
    for axes, chosen, axis, label in panels:
        across = [point[axis] for point in chosen]
        axes.loglog(across, [point[2] for point in chosen], "o-", label="CPU")
        axes.loglog(across, [point[3] for point in chosen], "s--", label="wall")
        axes.set_xlabel(label)
        axes.set_ylabel("seconds")
        axes.grid(True, which="major", alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    prepare(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
