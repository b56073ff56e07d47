"""The manifest: hashes that hold, nothing of the machine, and a reader that says what is wrong."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from feda4fair.build import build
from feda4fair.errors import OutputError
from feda4fair.manifest import MANIFEST, file_sha256, read_manifest, write_manifest
from feda4fair.parquet import hub_features
from feda4fair.recipe import Recipe
from feda4fair_acs import DATASET
from feda4fair_acs.source import SampleSource

CONFIG = "value-silo"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("manifest") / "acs"
    recipes = DATASET.choose([CONFIG])
    build(DATASET, recipes, SampleSource(parts=("AK", "WY")), out, notes=["only two states."])
    return out


@pytest.fixture(scope="module")
def manifest(built: Path) -> dict[str, Any]:
    return json.loads((built / MANIFEST).read_text("utf-8"))


def test_every_file_is_listed_with_its_size_and_hash(
    built: Path, manifest: dict[str, Any]
) -> None:
    files = {
        path.relative_to(built).as_posix(): path
        for path in built.rglob("*")
        if path.is_file() and path.name != MANIFEST
    }
    assert manifest["files"].keys() == files.keys()
    for name, path in files.items():
        content = path.read_bytes()
        assert manifest["files"][name] == {
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        assert file_sha256(path) == manifest["files"][name]["sha256"]


def test_the_recipe_is_the_one_in_the_folder(built: Path, manifest: dict[str, Any]) -> None:
    text = (built / "recipes" / f"{CONFIG}.json").read_text("utf-8")
    assert Recipe.from_json(text) == DATASET.recipe(CONFIG)
    expected = hashlib.sha256(text.encode()).hexdigest()
    assert manifest["configs"][CONFIG]["recipe_sha256"] == expected


def test_roles_and_features_of_every_column(manifest: dict[str, Any]) -> None:
    config, schema = manifest["configs"][CONFIG], DATASET.recipe(CONFIG).schema
    roles = {column["name"]: column["role"] for column in config["columns"]}
    assert list(roles) == list(config["features"]) == list(hub_features(schema))
    assert {name for name, role in roles.items() if role == "provenance"} == {
        "client_id",
        "row_id",
        "flipped",
    }
    assert [name for name, role in roles.items() if role == "label"] == ["label"]
    assert tuple(n for n, role in roles.items() if role == "sensitive") == schema.sensitive


def test_counts_add_up(manifest: dict[str, Any]) -> None:
    config = manifest["configs"][CONFIG]
    assert config["rows"] == sum(split["rows"] for split in config["splits"].values())
    assert config["source_rows"] == config["rows"] + config["dropped"] + config["left_out"]
    assert config["source_rows"] == sum(source["rows_kept"] for source in manifest["sources"])
    assert config["dropped"] == sum(entry["dropped"] for entry in config["ledger"]) > 0


def test_a_build_that_is_not_the_benchmark_says_so(manifest: dict[str, Any]) -> None:
    assert manifest["synthetic"]
    assert not manifest["benchmark"]
    assert manifest["notes"] == ["only two states."]


def test_nothing_of_this_machine_is_in_any_file(built: Path) -> None:
    words = [str(Path.home()), str(built.parent), str(DATASET.folder.parent)]
    for path in built.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not [word for word in words if word.encode() in content], path


def test_a_manifest_is_read_as_it_was_written(built: Path, manifest: dict[str, Any]) -> None:
    assert read_manifest(built) == manifest


def test_hashes_follow_the_files(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "é").write_bytes(b"one")
    first = write_manifest(tmp_path, {"format": 1})
    (tmp_path / "sub" / "é").write_bytes(b"two")
    second = write_manifest(tmp_path, {"format": 1})
    assert list(first["files"]) == list(second["files"]) == ["sub/é"]
    assert first["files"]["sub/é"]["sha256"] == hashlib.sha256(b"one").hexdigest()
    assert second["files"]["sub/é"]["sha256"] == hashlib.sha256(b"two").hexdigest()


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"[]", b'"text"', b"null", b"7", b"{}", b'{"format": 2}', b"\xff\xfe"),
        *(b"[" * 100_000, b'{"format": ' + b"1" * 5_000 + b"}", b'{"format": 1}'),
    ],
)
def test_what_is_not_a_manifest_is_a_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / MANIFEST).write_bytes(content)
    with pytest.raises(OutputError) as caught:
        read_manifest(tmp_path)
    assert str(tmp_path / MANIFEST) in str(caught.value)
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda m: m.pop("notes"), "no 'notes'"),
        (lambda m: m.update(files={"LICENSE": {"bytes": True, "sha256": ""}}), "'bytes': no int"),
        (lambda m: m.update(configs={}), "no config"),
        (lambda m: m.update(configs={"a": []}), "'a': no object"),
        (lambda m: m.update(notes="text"), "'notes': no list"),
        (lambda m: m.update(sources=[{"name": 3}]), "'name': no str"),
        (lambda m: m["configs"]["value-silo"].update(rows="1"), "'rows': no int"),
        (lambda m: m["configs"]["value-silo"].update(splits={"test": {"rows": 1}}), "no 'files'"),
    ],
)
def test_a_manifest_of_another_shape_is_a_sentence(
    tmp_path: Path, manifest: dict[str, Any], change: Callable[[dict[str, Any]], None], told: str
) -> None:
    spoiled = copy.deepcopy(manifest)
    change(spoiled)
    (tmp_path / MANIFEST).write_text(json.dumps(spoiled), "utf-8")
    with pytest.raises(OutputError, match=re.escape(told)):
        read_manifest(tmp_path)


def test_a_folder_without_a_manifest_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="No such file"):
        read_manifest(tmp_path)
