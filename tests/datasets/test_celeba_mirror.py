from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from feda4fair.errors import SourceError
from feda4fair.steps import federate_table
from feda4fair_celeba import DATASET
from feda4fair_celeba.faces import Face, jpeg
from feda4fair_celeba.images import IMAGE_TYPE
from feda4fair_celeba.mirror import Mirror, is_hub_id
from feda4fair_celeba.schema import ATTRIBUTES
from feda4fair_celeba.source import ROWS, CelebASource

PICTURES = [jpeg(Face(male=male, smiling=True, hair=1))[:400] for male in (False, True)]


def as_copy(table: pa.Table, *, kind: pa.DataType) -> datasets.DatasetDict:
    """Shape the real attribute table like a copy on the Hub: three splits, no file names."""
    parts = {}
    for code, split in enumerate(("train", "valid", "test")):
        rows = table.filter(pc.equal(table["partition"], code))
        numbers = np.arange(rows.num_rows) % len(PICTURES)
        images = pa.StructArray.from_arrays(
            [
                pa.array([PICTURES[i] for i in numbers], pa.binary()),
                pa.nulls(len(numbers), pa.string()),
            ],
            fields=list(IMAGE_TYPE),
        )
        flags = {n: pa.array(rows[n].to_numpy() == 1).cast(kind) for n in ATTRIBUTES}
        features = datasets.Features(
            {"image": datasets.Image(), **{n: datasets.Value(str(kind)) for n in ATTRIBUTES}}
        )
        info = datasets.DatasetInfo(features=features)
        parts[split] = datasets.Dataset(pa.table({"image": images, **flags}), info=info)
    return datasets.DatasetDict(parts)


@pytest.fixture(scope="module")
def table(shared_data: Path) -> pa.Table:
    return pq.read_table(shared_data / "celeba" / "celeba_attributes.parquet")


@pytest.fixture(scope="module")
def copy(table: pa.Table) -> datasets.DatasetDict:
    return as_copy(table, kind=pa.bool_())


def test_a_copy_with_the_published_attributes_is_a_source(
    copy: datasets.DatasetDict, table: pa.Table
) -> None:
    mirror = Mirror.of("org/celeba", copy)
    source = CelebASource(folder=None, images=mirror, mirror=mirror)
    source.check()
    assert not source.synthetic
    rows = source.read()
    assert rows.num_rows == ROWS
    assert rows["image_id"].to_pylist() == table["filename"].to_pylist()
    assert rows["eval_partition"].to_pylist() == table["partition"].to_pylist()
    recipe = source.fit(DATASET.recipe("value-silo"))
    client = federate_table(rows, recipe).client("c07").slice(0, 50)
    pictured = source.attach(client)
    positions = pictured["row_id"].to_numpy()
    for position, image in zip(positions, pictured["image"].to_pylist(), strict=True):
        part = np.searchsorted((162_770, 182_637), position, side="right")
        row = position - (0, 162_770, 182_637)[part]
        assert image["bytes"] == PICTURES[row % 2]
        assert image["path"] == f"{position + 1:06d}.jpg"
    assert source.files()[0].name == "org/celeba"
    assert is_hub_id(Path("org/celeba"))


def test_other_rows_or_another_order_are_refused(table: pa.Table) -> None:
    order = np.arange(ROWS)
    order[[0, 1]] = 1, 0
    for rows in (table.slice(162_700, 20_000), table.take(order)):
        mirror = Mirror.of("org/celeba", as_copy(rows, kind=pa.int8()))
        source = CelebASource(folder=None, mirror=mirror)
        with pytest.raises(SourceError, match=r"org/celeba does not hold the 202,599 rows"):
            source.check()


def test_what_a_copy_lacks_is_named(table: pa.Table) -> None:
    small = as_copy(table.slice(162_700, 20_000), kind=pa.int8())
    with pytest.raises(SourceError, match="has the splits train, test, expected train, valid"):
        Mirror.of("org/x", {name: small[name] for name in ("train", "test")})
    without = datasets.DatasetDict(
        {split: part.remove_columns(["Smiling"]) for split, part in small.items()}
    )
    with pytest.raises(SourceError, match="org/x has no column Smiling"):
        Mirror.of("org/x", without).annotations()
    blind = small.remove_columns(["image"])
    with pytest.raises(SourceError, match="has no column image"):
        Mirror.of("org/x", blind).read("000001.jpg")
    odd = small.map(lambda part: {"Bald": [7] * len(part["Bald"])}, batched=True)
    with pytest.raises(SourceError, match="has 7 in Bald, expected yes and no"):
        Mirror.of("org/x", odd).annotations()
    text = small.map(
        lambda part: {"Bald": ["yes"] * len(part["Bald"])},
        batched=True,
        features=datasets.Features(
            dict(small["test"].features) | {"Bald": datasets.Value("string")}
        ),
    )
    with pytest.raises(SourceError, match="has values of type string in Bald"):
        Mirror.of("org/x", text).annotations()


def test_a_mirror_travels_without_what_it_has_looked_up(table: pa.Table) -> None:
    mirror = Mirror.of("org/x", as_copy(table.slice(182_600, 500), kind=pa.int8()))
    first = mirror.read("000100.jpg")
    again = pickle.loads(pickle.dumps(mirror))
    assert vars(again).keys() == {"name", "partitions"}
    assert again.read("000100.jpg") == first


def test_a_name_that_the_hub_does_not_know_is_named() -> None:
    code = (
        "from feda4fair_celeba.source import open_source\n"
        "from feda4fair.errors import SourceError\n"
        "try:\n    open_source('nobody/nothing')\nexcept SourceError as error:\n    print(error)"
    )
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.startswith("nobody/nothing is neither a folder nor a dataset")
    assert done.stdout.count("\n") == 1
