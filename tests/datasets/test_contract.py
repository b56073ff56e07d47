"""What every config of every dataset keeps, whatever its source: built from the samples."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from feda4fair.build import build, federations
from feda4fair.dataset import Dataset
from feda4fair.federation import concat
from feda4fair.manifest import read_manifest
from feda4fair.parquet import hub_features
from feda4fair.recipe import ClientSplit, Gaussian, Recipe, RowSplit
from feda4fair.split import SPLITS
from feda4fair.steps import known_clients

DATASETS = ("acs", "celeba", "dutch")
CONFIGS = ("attribute-silo", "value-silo", "attribute-device", "value-device")


def dataset_of(name: str) -> Dataset:
    found: Dataset = import_module(f"feda4fair_{name}").DATASET
    return found


@dataclass(frozen=True)
class Built:
    """One config of a built folder."""

    folder: Path
    dataset: Dataset
    config: str

    @property
    def recipe(self) -> Recipe:
        return self.dataset.recipe(self.config)

    @cached_property
    def manifest(self) -> dict[str, Any]:
        whole = read_manifest(self.folder)
        return {**whole, **whole["configs"][self.config]}

    @cached_property
    def splits(self) -> dict[str, pa.Table]:
        return {
            split: pa.concat_tables(
                [
                    pq.read_table(self.folder / "data" / self.config / name)
                    for name in entry["files"]
                ]
            )
            for split, entry in self.manifest["splits"].items()
        }

    @cached_property
    def dropped(self) -> pa.Table:
        return pq.read_table(self.folder / "dropped" / f"{self.config}.parquet")

    @cached_property
    def index(self) -> list[dict[str, Any]]:
        return pq.read_table(self.folder / "clients" / f"{self.config}.parquet").to_pylist()

    def clients_in(self, split: str) -> set[str]:
        return set(pc.unique(self.splits[split]["client_id"]).to_pylist())


@pytest.fixture(
    scope="module", params=[f"{name}/{config}" for name in DATASETS for config in CONFIGS]
)
def built(request: pytest.FixtureRequest, sample_build: Callable[[str], Path]) -> Built:
    name, _, config = request.param.partition("/")
    return Built(sample_build(name), dataset_of(name), config)


@pytest.mark.parametrize("name", DATASETS)
def test_every_dataset_has_the_four_configs(name: str) -> None:
    recipes = dataset_of(name).recipes
    assert sorted(recipe.name for recipe in recipes) == sorted(CONFIGS)
    assert {recipe.dataset for recipe in recipes} == {name}
    assert all(Recipe.from_json(recipe.to_json()) == recipe for recipe in recipes)


def test_it_loads_as_its_features_say(built: Built, tmp_path: Path) -> None:
    loaded = datasets.load_dataset(str(built.folder), built.config, cache_dir=str(tmp_path))
    features = datasets.Features.from_dict(hub_features(written(built)))
    assert list(loaded) == list(built.splits)
    for split, table in built.splits.items():
        assert loaded[split].features == features
        assert loaded[split].num_rows == table.num_rows == built.manifest["splits"][split]["rows"]
        assert loaded[split].column_names[0] == "client_id"


def written(built: Built) -> Any:
    """Return the schema of the rows as they were written; images may have been added."""
    return Recipe.from_json(built.folder / "recipes" / f"{built.config}.json").schema


def test_the_folder_holds_data_and_no_program(built: Built) -> None:
    names = [path.relative_to(built.folder).as_posix() for path in built.folder.rglob("*")]
    assert not [name for name in names if name.endswith((".py", ".pyc", "dataset_infos.json"))]
    assert set(built.manifest["files"]) | {"manifest.json"} == {
        name for name in names if (built.folder / name).is_file()
    }
    assert built.manifest["synthetic"]
    assert not built.manifest["benchmark"]


def test_columns_and_their_roles(built: Built) -> None:
    roles = {column["name"]: column["role"] for column in built.manifest["columns"]}
    for table in built.splits.values():
        assert table.column_names == list(roles)
        assert table.column_names[:2] == ["client_id", "row_id"]
        assert table.column_names[-2:] == ["label", "flipped"]
        assert not table.column("label").null_count
    assert roles["label"] == "label"
    assert all(roles[name] == "provenance" for name in ("client_id", "row_id", "flipped"))
    sensitive = [name for name, role in roles.items() if role == "sensitive"]
    assert tuple(sensitive) == built.recipe.schema.sensitive
    assert set(roles.values()) <= {"feature", "sensitive", "label", "provenance"}
    for rule in built.recipe.rules:
        assert {attribute for attribute, _ in rule.where} <= set(sensitive)


def test_sensitive_columns_hold_named_codes_only(built: Built) -> None:
    for column in written(built).columns:
        if column.role == "sensitive":
            codes = {code for code, _ in column.coding.names}
            for table in (*built.splits.values(), built.dropped):
                assert set(pc.unique(table[column.name]).to_pylist()) <= codes
    for table in (*built.splits.values(), built.dropped):
        assert set(pc.unique(table["label"]).to_pylist()) <= {0, 1}


def test_clients_lie_where_their_split_says(built: Built) -> None:
    clients = [built.clients_in(split) for split in built.splits]
    everyone = set(known_clients(built.recipe, built_parts(built)))
    match built.recipe.split:
        case ClientSplit(test=test):
            assert list(built.splits) == ["train", "test"]
            train, tested = clients
            assert tested == set(test)
            assert train == everyone - tested
        case RowSplit():
            assert list(built.splits) == ["train", "validation", "test"]
            assert clients == [everyone] * 3
    assert built.manifest["clients"] == len(everyone)


def built_parts(built: Built) -> tuple[str, ...]:
    return tuple(source["part"] for source in built.manifest["sources"])


def test_rows_are_sorted_by_client_and_row(built: Built) -> None:
    for table in built.splits.values():
        keys = table.select(["client_id", "row_id"])
        assert keys.equals(keys.sort_by([("client_id", "ascending"), ("row_id", "ascending")]))


def test_rows_are_conserved(built: Built) -> None:
    parts = [*built.splits.values(), built.dropped]
    family = [built.recipe.parent(c) for part in parts for c in part["client_id"].to_pylist()]
    if not hasattr(built.recipe.partition, "column"):  # row ids count through the whole source
        family = [""] * len(family)
    rows = [row for part in parts for row in part["row_id"].to_pylist()]
    assert len(set(zip(family, rows, strict=True))) == len(rows)
    manifest = built.manifest
    assert manifest["rows"] == sum(table.num_rows for table in built.splits.values())
    assert manifest["dropped"] == built.dropped.num_rows
    assert manifest["source_rows"] == len(rows) + manifest["left_out"]
    if hasattr(built.recipe.partition, "column"):  # a part that holds no client is not read
        held = set(family) | {c.rpartition("_")[0] for c in known_clients(built.recipe)}
        read = [s["rows_kept"] for s in manifest["sources"] if s["part"] in held]
        assert manifest["source_rows"] == sum(read)


def test_the_ledger_counts_exactly_what_happened(built: Built) -> None:
    ledger, device = built.manifest["ledger"], built.recipe.subdivide is not None
    rates = {rule.name: (rule.drop, rule.flip) for rule in built.recipe.rules}
    for entry in ledger:
        assert entry["dropped"] == int(entry["eligible"] * entry["drop"])
        assert entry["flipped"] == int(entry["survivors"] * entry["flip"])
        assert 0 <= entry["drop"] <= 1
        assert 0 <= entry["flip"] <= 1
        if not entry["eligible"]:
            assert entry["note"] == "the rule matches no row"
        for drawn, rate in zip((entry["drop"], entry["flip"]), rates[entry["rule"]], strict=True):
            assert isinstance(rate, Gaussian) or len(rates) > 1 or drawn == rate
    kept = set(known_clients(built.recipe, built_parts(built)))
    families = {built.recipe.parent(client) for client in kept}
    assert {entry["client"] for entry in ledger} <= families
    flipped = sum(pc.sum(table["flipped"]).as_py() for table in built.splits.values())
    assert built.manifest["flipped"] == flipped
    dropped = sum(entry["dropped"] for entry in ledger)
    turned = sum(entry["flipped"] for entry in ledger)
    if not device or built.recipe.keep is None:
        assert (built.dropped.num_rows, flipped) == (dropped, turned)
    else:  # pieces that were not kept took some with them
        assert built.dropped.num_rows <= dropped
        assert flipped <= turned
    assert dropped > 0


def test_removed_rows_name_their_rule_and_split(built: Built) -> None:
    rules = {rule.name: rule for rule in built.recipe.rules}
    columns = built.dropped.column_names
    assert columns == [*built.splits["test"].column_names[:-1], "rule", "split"]
    assert set(pc.unique(built.dropped["split"]).to_pylist()) <= set(built.splits)
    for name in pc.unique(built.dropped["rule"]).to_pylist():
        rule = rules[name]
        own = built.dropped.filter(pc.equal(built.dropped["rule"], name))
        for attribute, value in rule.where:
            code = built.recipe.schema.code(attribute, value)
            assert pc.unique(own[attribute]).to_pylist() == [code]
        assert pc.unique(own["label"]).to_pylist() == [rule.label]


def test_the_index_finds_every_client(built: Built) -> None:
    assert len(built.index) == sum(len(built.clients_in(split)) for split in built.splits)
    assert sum(entry["rows"] for entry in built.index) == built.manifest["rows"]
    for entry in built.index[:: max(1, len(built.index) // 10)]:
        group = pq.ParquetFile(built.folder / entry["file"]).read_row_group(entry["row_group"])
        assert set(group["client_id"].to_pylist()) == {entry["client_id"]}
        assert group.num_rows == entry["rows"]
        assert pc.sum(group["label"]).as_py() == entry["positives"]
    folds = {entry["fold"] for entry in built.index}
    if isinstance(built.recipe.split, ClientSplit):
        assert folds == set(range(built.recipe.split.folds))
    else:
        assert folds == {None}


def test_silo_splits_have_their_shares(built: Built) -> None:
    if not isinstance(built.recipe.split, RowSplit):
        pytest.skip("clients are split, not rows")
    shares = dict(zip(SPLITS, (0.7, 0.1, 0.2), strict=True))
    for client in sorted(built.clients_in("test"))[::10]:
        held = {
            split: table.filter(pc.equal(table["client_id"], client)).num_rows
            for split, table in built.splits.items()
        }
        gone = built.dropped.filter(pc.equal(built.dropped["client_id"], client))
        released = built.recipe.sampler == "released"
        for split, share in shares.items():
            restored = 0 if released else gone["split"].to_pylist().count(split)
            total = sum(held.values()) + (0 if released else gone.num_rows)
            # scikit-learn rounds test up, and validation up again.
            assert abs(held[split] + restored - total * share) < 2 + 1e-9


def test_the_library_makes_the_same_rows(built: Built) -> None:
    """One client of the folder equals that of the federation, by row and label."""
    source = built.dataset.open_source(None, recipes=(built.recipe,), sample=True)
    client = built.index[len(built.index) // 2]["client_id"]
    fed = concat(federations(built.recipe, source, [client]))
    for split, table in built.splits.items():
        own = table.filter(pc.equal(table["client_id"], client))
        made = fed.client(client, split)
        for column in ("row_id", "label", "flipped", *built.recipe.schema.sensitive):
            assert np.array_equal(own[column].to_numpy(), made[column].to_numpy())


@pytest.mark.parametrize("name", DATASETS)
def test_a_second_build_is_the_same_in_every_byte(
    name: str, sample_build: Callable[[str], Path], tmp_path: Path, untouched_random: None
) -> None:
    dataset, first = dataset_of(name), sample_build(name)
    source = dataset.open_source(None, recipes=dataset.recipes, sample=True)
    build(dataset, dataset.recipes, source, tmp_path / name)
    names = [path.relative_to(first) for path in first.rglob("*") if path.is_file()]
    assert len(names) == sum(path.is_file() for path in (tmp_path / name).rglob("*"))
    for path in names:
        assert (tmp_path / name / path).read_bytes() == (first / path).read_bytes(), path


@pytest.mark.parametrize("name", DATASETS)
def test_no_path_of_this_machine_is_written(
    name: str, sample_build: Callable[[str], Path]
) -> None:
    folder = sample_build(name)
    words = [str(Path.home()).encode(), str(folder.parent).encode()]
    for path in folder.rglob("*.*"):
        if path.suffix in (".json", ".md", ".bib", ".toml"):
            content = path.read_bytes()
            assert not any(word in content for word in words), path
    assert json.loads((folder / "manifest.json").read_text("utf-8"))["dataset"] == name
