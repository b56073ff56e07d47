from __future__ import annotations

import io
import json
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from PIL import Image

from feda4fair.build import build
from feda4fair.croissant import render_croissant
from feda4fair.facts import read_facts
from feda4fair.manifest import read_manifest

mlcroissant = pytest.importorskip("mlcroissant", reason="the extra dev brings mlcroissant")

# What mlcroissant calls in rdflib and in pandas.
pytestmark = [
    pytest.mark.filterwarnings("ignore:ConjunctiveGraph is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The inplace keyword:DeprecationWarning"),
]

FORMS = ("acs", "dutch", "celeba", "index")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Build the three samples, CelebA with images, and the index of CelebA."""
    home = tmp_path_factory.mktemp("croissants")
    for form in FORMS:
        name = "celeba" if form == "index" else form
        dataset = import_module(f"feda4fair_{name}").DATASET
        recipes = dataset.recipes if name != "celeba" else dataset.choose(["value-silo"])
        source = dataset.open_source(None, recipes=recipes, sample=True)
        kind: Any = "index" if form == "index" else "full"
        build(dataset, recipes, source, home / form, form=kind)
    return {form: home / form for form in FORMS}


@pytest.fixture(autouse=True)
def no_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are beside croissant.json; nothing may be asked of a cache."""
    from mlcroissant._src.core import constants

    monkeypatch.setattr(constants, "CROISSANT_CACHE", tmp_path)


def load(folder: Path) -> Any:
    return mlcroissant.Dataset(jsonld=str(folder / "croissant.json"))


@pytest.mark.parametrize("form", FORMS)
def test_it_validates(form: str, folders: dict[str, Path]) -> None:
    metadata = load(folders[form]).metadata
    assert metadata.ctx.issues.errors == set()
    assert metadata.ctx.issues.warnings == set()
    date = read_manifest(folders[form])["prose"]["published"]
    assert f"{metadata.date_published:%Y-%m-%d}" == date


@pytest.mark.parametrize("form", FORMS)
def test_records_are_the_rows(form: str, folders: dict[str, Path]) -> None:
    folder = folders[form]
    dataset = load(folder)
    manifest = read_manifest(folder)
    seen = set()
    for record_set in dataset.metadata.record_sets:
        config, split = record_set.id.split("/")
        seen.add((config, split))
        records = list(islice(dataset.records(record_set.id), 40))
        files = manifest["configs"][config]["splits"][split]["files"]
        rows = pq.read_table(folder / "data" / config / files[0]).slice(0, 40).to_pylist()
        assert len(records) == len(rows) > 0
        for record, row in zip(records, rows, strict=True):
            assert {k.rpartition("/")[2]: plain(v) for k, v in record.items()} == {
                k: plain(v) for k, v in row.items()
            }
    wanted = {(c, s) for c, e in manifest["configs"].items() for s in e["splits"]}
    assert seen == wanted


def plain(value: Any) -> Any:
    """Return text for bytes and pixels for images."""
    match value:
        case bytes():
            return value.decode()
        case {"bytes": data}:
            return Image.open(io.BytesIO(data)).tobytes()
        case Image.Image():
            return value.tobytes()
        case _:
            return value


def test_all_rows_come_out(folders: dict[str, Path]) -> None:
    folder = folders["dutch"]
    dataset = load(folder)
    rows = read_manifest(folder)["configs"]["value-device"]["splits"]["test"]["rows"]
    assert sum(1 for _ in dataset.records("value-device/test")) == rows


@pytest.mark.parametrize("form", FORMS)
def test_responsible_part_names_the_injected_bias(form: str, folders: dict[str, Path]) -> None:
    folder = folders[form]
    metadata = load(folder).metadata
    manifest = read_manifest(folder)
    assert len(metadata.data_biases) == len(manifest["configs"])
    for text, (config, entry) in zip(
        metadata.data_biases, manifest["configs"].items(), strict=True
    ):
        assert text.startswith(f"{config}, {entry['clients']} clients: bias was injected")
        rules = pd.read_parquet(folder / "clients" / f"{config}.parquet")["rules"]
        assert all(rule in text for texts in rules for rule in texts)
    assert len(metadata.data_limitations) == len(manifest["prose"]["limits"])
    for name in (
        "data_collection",
        "data_preprocessing_protocol",
        "data_use_cases",
        "data_social_impact",
        "personal_sensitive_information",
        "data_release_maintenance_plan",
    ):
        assert getattr(metadata, name), name
    raw = json.loads((folder / "croissant.json").read_text("utf-8"))
    assert raw["rai:hasSyntheticData"] is True
    assert "share of the rows" in raw["rai:dataManipulationProtocol"]
    assert raw["prov:wasDerivedFrom"].startswith("http")
    assert raw["license"].startswith("http")


def test_a_build_without_rules_says_so(folders: dict[str, Path], tmp_path: Path) -> None:
    dataset = import_module("feda4fair_dutch").DATASET
    recipes = dataset.choose(["value-silo"], control="none")
    source = dataset.open_source(None, recipes=recipes, sample=True)
    build(dataset, recipes, source, tmp_path / "plain")
    (text,) = load(tmp_path / "plain").metadata.data_biases
    assert "no bias was injected" in text
    assert "bias was injected on purpose" not in text


def test_prose_is_not_needed(folders: dict[str, Path]) -> None:
    folder = folders["dutch"]
    manifest = {**read_manifest(folder), "prose": {}, "citation": ""}
    raw = json.loads(render_croissant(read_facts(folder, manifest)))
    assert raw["rai:dataLimitations"] == []
    assert "rai:dataUseCases" not in raw
    assert mlcroissant.Dataset(jsonld=raw).metadata.ctx.issues.errors == set()
