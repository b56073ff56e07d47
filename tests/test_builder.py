"""The builder of ``datasets``: configs, cache paths that follow code and source, and the rows."""

from __future__ import annotations

import copy
import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pytest

from feda4fair.build import federations
from feda4fair.builder import FederatedBuilder, code_fingerprint
from feda4fair.content import content_sha256
from feda4fair.errors import RecipeError, SourceError
from feda4fair.federation import concat
from feda4fair.parquet import arrow_schema, hub_features
from feda4fair.recipe import Recipe
from feda4fair_acs import DATASET, Feda4FairACS
from feda4fair_acs.source import SampleSource

CLIENTS = ("AK_0", "TX_0", "TX_2")  # one train client, two test clients
CONFIGS = [recipe.name for recipe in DATASET.recipes]


@pytest.fixture(autouse=True)
def _quiet() -> None:
    datasets.disable_progress_bars()


@pytest.fixture
def home(tmp_path: Path) -> str:
    return str(tmp_path / "cache")


def make(home: str, config: str = "value-device", **options: Any) -> FederatedBuilder:
    options = {"sample": True, "clients": CLIENTS} | options
    return Feda4FairACS(cache_dir=home, config_name=config, **options)


def rows_of(builder: FederatedBuilder) -> dict[str, pa.Table]:
    builder.download_and_prepare()
    return {
        name: split.data.table.replace_schema_metadata(None)
        for name, split in builder.as_dataset().items()
    }


def expected(recipe: Recipe) -> dict[str, pa.Table]:
    """Return the rows of the wanted clients as the library makes them."""
    fed = concat(federations(recipe, SampleSource(), CLIENTS))
    schema = arrow_schema(recipe.schema).remove_metadata()
    parts = {split: [fed.client(name, split) for name in CLIENTS] for split in ("train", "test")}
    return {split: pa.concat_tables(tables).cast(schema) for split, tables in parts.items()}


def same(one: dict[str, pa.Table], other: dict[str, pa.Table]) -> bool:
    hashes = [{name: content_sha256(t) for name, t in tables.items()} for tables in (one, other)]
    return hashes[0] == hashes[1]


# Configs


def test_there_is_a_config_for_every_recipe() -> None:
    assert list(Feda4FairACS.builder_configs) == CONFIGS
    assert CONFIGS[0] == Feda4FairACS.DEFAULT_CONFIG_NAME
    for config in Feda4FairACS.BUILDER_CONFIGS:
        assert config.recipe == DATASET.recipe(config.name)
        assert config.description == config.recipe.description
        assert copy.deepcopy(config) == config
        assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.parametrize("config", CONFIGS)
def test_a_config_name_in_the_place_of_cache_dir_is_refused(config: str) -> None:
    with pytest.raises(RecipeError, match=f"write config_name='{config}'"):
        Feda4FairACS(config)
    with pytest.raises(RecipeError, match="cache_dir"):
        Feda4FairACS(cache_dir=config)


def test_an_unknown_config_is_named_with_those_there_are(home: str) -> None:
    with pytest.raises(ValueError, match="value-devise") as caught:
        make(home, "value-devise")
    assert all(config in str(caught.value) for config in CONFIGS)


@pytest.mark.parametrize("config", CONFIGS)
def test_features_are_those_of_the_built_folder(home: str, config: str) -> None:
    builder = make(home, config, clients=())
    features = hub_features(DATASET.recipe(config).schema)
    assert builder.info.features == datasets.Features.from_dict(features)
    assert builder.info.features.to_dict() == features
    assert builder.info.citation == DATASET.citation


# Rows


def test_rows_are_those_of_the_library(home: str, untouched_random: None) -> None:
    made = rows_of(make(home))
    assert list(made) == ["train", "test"]
    assert same(made, expected(DATASET.recipe("value-device")))


def test_streaming_gives_the_same_rows(home: str) -> None:
    stream = make(home).as_streaming_dataset(split="test")
    streamed = pa.Table.from_pylist(list(stream))
    assert streamed.to_pylist() == expected(DATASET.recipe("value-device"))["test"].to_pylist()


@pytest.mark.parametrize("control", ["none", "homogeneous"])
def test_a_control_is_another_dataset(home: str, control: Any) -> None:
    builder = make(home, control=control)
    assert builder.cache_dir != make(home).cache_dir
    made = rows_of(builder)
    assert same(made, expected(DATASET.recipe("value-device").with_control(control)))
    assert not same(made, expected(DATASET.recipe("value-device")))


def test_an_own_recipe_is_obeyed(home: str) -> None:
    own = replace(DATASET.recipe("value-device"), groups=())
    builder = make(home, recipe=own)
    assert builder.cache_dir != make(home).cache_dir
    assert same(rows_of(builder), expected(own))


def test_clients_of_one_side_give_one_split(home: str) -> None:
    builder = make(home, clients=["TX_0"])
    assert list(rows_of(builder)) == ["test"]
    assert set(builder.as_dataset("test")["client_id"]) == {"TX_0"}


# Refusals


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"clients": ["TX_7"]}, "no client TX_7"),
        ({"control": "half"}, "control 'half'"),
    ],
)
def test_bad_options_are_one_sentence(home: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        make(home, **options).download_and_prepare()


def test_missing_states_are_named(home: str, tmp_path: Path) -> None:
    (tmp_path / "2018" / "1-Year").mkdir(parents=True)
    builder = make(home, sample=False, data_dir=str(tmp_path))
    with pytest.raises(SourceError, match="no person file of AK, TX"):
        builder.download_and_prepare()


# Cache paths


def test_the_cache_path_follows_the_source(home: str, tmp_path: Path) -> None:
    source = tmp_path / "source" / "2018" / "1-Year" / "psam_p56.csv"
    source.parent.mkdir(parents=True)

    def path() -> str:
        return make(home, sample=False, data_dir=str(tmp_path / "source")).cache_dir

    empty = path()
    source.write_bytes(b"one")
    first = path()
    assert first == path()
    source.write_bytes(b"two")
    other = path()
    assert len({empty, first, other}) == 3


def test_the_cache_path_follows_the_options(home: str) -> None:
    built = [
        make(home),
        make(home, "value-silo", clients=("TX",)),
        make(home, clients=("TX_0",)),
        make(home, sample=False),
        make(home, allow_missing=True),
    ]
    assert len({builder.cache_dir for builder in built}) == len(built)
    assert make(home).cache_dir == built[0].cache_dir


@pytest.mark.parametrize("name", ["configs.py", "codes.tsv", "prose.toml", "new.py"])
def test_any_file_of_a_dataset_folder_counts(tmp_path: Path, name: str) -> None:
    one, same, other = (tmp_path / name for name in ("one", "same", "other"))
    for folder in (one, same, other):
        shutil.copytree(DATASET.folder, folder)
    with (other / name).open("a", encoding="utf-8") as stream:
        stream.write("\n# changed\n")
    assert code_fingerprint(one) == code_fingerprint(same) != code_fingerprint(other)
