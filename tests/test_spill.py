"""A large source in blocks: the same files as when its rows are held in memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from feda4fair import (
    Assigned,
    BiasRule,
    ClientGroup,
    ClientSplit,
    Dirichlet,
    Iid,
    Natural,
    Recipe,
    RowSplit,
    Schema,
    Shards,
    Subdivide,
    build,
    own,
    spill,
    tables,
)
from feda4fair.errors import Feda4FairError, RecipeError, SchemaError
from feda4fair.own import TableSource, own_dataset

pytestmark = pytest.mark.usefixtures("untouched_random")

ROWS = 3_000


def people() -> pa.Table:
    position = np.arange(ROWS)
    return pa.table(
        {
            "town": np.array(["a", "a_1", "b", "b-1", "c"])[position * 7 % 5],
            "sex": np.array(["f", "m"])[position % 2],
            "race": np.array(["x", "y", "z"])[position // 2 % 3],
            "note": [f"note {i}" for i in position],
            "serial": np.array([-(2**63), 2**63 - 1, 5])[position % 3],
            "tag": np.array([2**64 - 1, 2**64 - 2], np.uint64)[position % 2],
            "feda4fair client": position,
            "label": (position // 6 % 2).astype(np.int8),
        }
    )


RULES = (BiasRule(where={"sex": "f"}, drop=0.4), BiasRule(where={"race": "y"}, flip=0.5))
BASE = Recipe(
    dataset="people",
    name="demo",
    schema=Schema.infer(people()),
    partition=Iid(12),
    groups=(ClientGroup(name="half", clients=0.5, rules=RULES),),
)
RECIPES = {
    "iid": BASE,
    "natural": replace(BASE, partition=Natural("town")),
    "pieces": replace(BASE, partition=Natural("town"), subdivide=Subdivide(12)),
    "pieces of rows": replace(BASE, partition=Natural("town"), subdivide=Subdivide(rows=50)),
    "dirichlet": replace(BASE, partition=Dirichlet(8, by=("label", "race"), alpha=2.0)),
    "shards": replace(BASE, partition=Shards(9, by="race")),
    "selected": replace(BASE, select=(("race", ("x", "y")),), partition=Dirichlet(7, alpha=2.0)),
    "assigned": replace(
        BASE,
        partition=Assigned.of(
            ("p", "q", "r"), np.where(np.arange(ROWS) % 10, np.arange(ROWS) % 3, -1)
        ),
    ),
    "device": replace(BASE, split=ClientSplit(test=("c01", "c04"), folds=3)),
    "keep": replace(BASE, keep=("c03", "c07"), groups=()),
    "control": replace(BASE, control="homogeneous"),
    "emptied": replace(
        BASE, partition=Natural("race"), select=(("race", ("z",)),), keep=("z",), groups=()
    ),
    "wide codes": replace(
        BASE,
        schema=Schema.infer(people(), favorable=1, sensitive=["sex", "race", "serial", "tag"]),
        partition=Dirichlet(3, by=("tag", "serial", "sex", "label"), alpha=9.0),
        split=RowSplit(stratify=("serial", "tag")),
    ),
}


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the rows as two files of several row groups."""
    folder = tmp_path_factory.mktemp("rows")
    pq.write_table(people().slice(0, 1_700), folder / "0.parquet", row_group_size=333)
    pq.write_table(people().slice(1_700), folder / "1.parquet", row_group_size=512)
    return folder


def built(recipe: Recipe, source: Path, out: Path, **options: Any) -> dict[str, bytes]:
    build.build(own_dataset([recipe]), [recipe], TableSource(data=str(source)), out, **options)
    return contents(out)


@pytest.fixture
def small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few hundred rows be too many for one block and one file."""
    monkeypatch.setattr(own, "LARGE_BYTES", 1)
    monkeypatch.setattr(spill, "BUCKET_BYTES", 20_000)


@pytest.mark.parametrize("name", RECIPES)
def test_blocks_give_the_same_bytes_as_memory(
    name: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "BLOCK", 700)
    recipe = RECIPES[name]
    expected = built(recipe, source, tmp_path / "memory")
    monkeypatch.setattr(own, "LARGE_BYTES", 1)
    monkeypatch.setattr(spill, "BUCKET_BYTES", 20_000)
    files: list[int] = []
    federate = spill.Spilled.federate

    def counted(self: spill.Spilled, part: int, table: pa.Table) -> Any:
        files.append(part)
        return federate(self, part, table)

    monkeypatch.setattr(spill.Spilled, "federate", counted)
    assert built(recipe, source, tmp_path / "blocks") == expected
    assert len(files) > 1


def test_two_processes_give_the_same_bytes(
    source: Path, tmp_path: Path, small_memory: None
) -> None:
    one = built(BASE, source, tmp_path / "one")
    assert built(BASE, source, tmp_path / "two", workers=2) == one


def test_one_client_of_a_large_source(source: Path, tmp_path: Path, small_memory: None) -> None:
    built(BASE, source, tmp_path / "all")
    built(BASE, source, tmp_path / "one", clients=["c05"])
    every = pq.read_table(tmp_path / "all" / "data" / "demo")
    alone = pq.read_table(tmp_path / "one" / "data" / "demo")
    mask = np.array([name == "c05" for name in every["client_id"].to_pylist()])
    assert every.filter(pa.array(mask)).sort_by("row_id").equals(alone.sort_by("row_id"))
    with pytest.raises(RecipeError, match="no client c99; it has 12, c00 to c11"):
        built(BASE, source, tmp_path / "none", clients=["c99"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"groups": (ClientGroup(name="g", clients=("nobody",), rules=RULES),)}, "names nobody"),
        ({"partition": Natural("city")}, "no column city"),
        ({"select": (("race", ("z",)),), "partition": Natural("note")}, "has no rows"),
        ({"select": (("race", ("z",)),), "partition": Natural("race")}, "client x has no rows"),
        ({"select": (("race", ()),), "partition": Dirichlet(2)}, "no row of 3000 is left"),
        ({"select": (("race", ()),), "partition": Iid(2)}, "no row of 3000 is left"),
        ({"partition": Iid(10**5)}, "100,000 clients of at least 1 rows"),
    ],
)
def test_what_does_not_fit_is_a_sentence_and_leaves_nothing(
    change: dict[str, Any], words: str, source: Path, tmp_path: Path, small_memory: None
) -> None:
    with pytest.raises(Feda4FairError, match=words):
        built(replace(BASE, **change), source, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_row_ids_must_ascend(tmp_path: Path, small_memory: None) -> None:
    table = people().append_column("row_id", pa.array(np.arange(ROWS)[::-1]))
    pq.write_table(table, tmp_path / "rows.parquet")
    with pytest.raises(SchemaError, match="must ascend"):
        built(BASE, tmp_path / "rows.parquet", tmp_path / "out")
    assert not (tmp_path / "out").exists()
