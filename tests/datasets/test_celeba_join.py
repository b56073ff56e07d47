from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import datasets
import pyarrow.parquet as pq
import pytest

import feda4fair_celeba
from feda4fair.build import build
from feda4fair.errors import RecipeError, SourceError
from feda4fair.manifest import MANIFEST, read_manifest
from feda4fair.split import SPLITS
from feda4fair.steps import federate_table
from feda4fair_celeba import DATASET
from feda4fair_celeba.index import INDEX_SCHEMA, full_sha256, index_rows
from feda4fair_celeba.sample import write_celeba
from feda4fair_celeba.source import open_source

CONFIG = "value-silo"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("celeba")
    write_celeba(folder, rows=2_000)
    return folder


@pytest.fixture(scope="module")
def full(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the full form without images."""
    out = tmp_path_factory.mktemp("builds") / "full"
    build(DATASET, DATASET.choose([CONFIG]), open_source(home, images="none"), out)
    return out


@pytest.fixture(scope="module")
def index(full: Path, home: Path) -> Path:
    """Write the index form: the same manifest, and which image is where."""
    out = full.with_name("index")
    federation = federate_table(open_source(home).read(), DATASET.recipe(CONFIG))
    (out / "data" / CONFIG).mkdir(parents=True)
    for code, split in enumerate(SPLITS):
        rows = federation.table.filter(federation.split == code)
        path = out / "data" / CONFIG / f"{split}-00000-of-00001.parquet"
        pq.write_table(index_rows(rows, split), path)
    shutil.copy(full / MANIFEST, out / MANIFEST)
    shutil.copy(full / "README.md", out / "README.md")
    card = (out / "README.md").read_text("utf-8")
    _, metadata, body = card.split("---\n", 2)
    kept = metadata.partition("dataset_info:")[0]
    (out / "README.md").write_text(f"---\n{kept}---\n{body}", "utf-8")
    return out


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return tmp_path / "cache"


def load(index: Path, cache: Path) -> datasets.DatasetDict:
    loaded = datasets.load_dataset(str(index), CONFIG, cache_dir=str(cache))
    assert isinstance(loaded, datasets.DatasetDict)
    return loaded


def test_the_index_holds_nothing_else_of_celeba(index: Path, cache: Path) -> None:
    loaded = load(index, cache)
    assert set(loaded) == set(SPLITS)
    assert loaded["train"].column_names == INDEX_SCHEMA.names == ["client_id", "image_id", "split"]
    assert set(loaded["test"]["split"]) == {"test"}


def test_the_full_hash_is_that_of_the_built_folder(full: Path, home: Path) -> None:
    federation = federate_table(open_source(home).read(), DATASET.recipe(CONFIG))
    expected = read_manifest(full)["configs"][CONFIG]["content_sha256"]
    assert full_sha256(federation) == expected


def test_a_loaded_index_gives_the_full_rows(
    index: Path, full: Path, home: Path, cache: Path
) -> None:
    joined = feda4fair_celeba.join(load(index, cache), home, manifest=full)
    built = datasets.load_dataset(str(full), CONFIG, cache_dir=str(cache))
    for split in SPLITS:
        rows = joined[split]
        assert rows.info.config_name == CONFIG
        assert rows.remove_columns(["image"])[:] == built[split][:]
        assert rows.features["label"].names == ["not smiling", "smiling"]
    first = joined["test"][0]
    assert first["image"].size == (178, 218)
    raw = joined["test"].cast_column("image", datasets.Image(decode=False))[0]["image"]
    assert raw["bytes"] is None
    assert Path(raw["path"]) == home / "img_align_celeba" / first["image_id"]


def test_a_built_folder_brings_its_manifest(index: Path, home: Path, cache: Path) -> None:
    joined = feda4fair_celeba.join(index, home, config=CONFIG)
    assert set(joined) == set(SPLITS)
    one = datasets.load_dataset(str(index), CONFIG, split="test", cache_dir=str(cache))
    alone = feda4fair_celeba.join(one, home, manifest=read_manifest(index))
    assert list(alone) == ["test"]
    assert alone["test"]["row_id"][:] == joined["test"]["row_id"][:]


def test_zipped_images_are_opened_in_place(
    index: Path, home: Path, cache: Path, tmp_path: Path
) -> None:
    for name in ("list_attr_celeba.txt", "list_eval_partition.txt"):
        shutil.copy(home / name, tmp_path / name)
    with zipfile.ZipFile(tmp_path / "img_align_celeba.zip", "w") as archive:
        for picture in (home / "img_align_celeba").iterdir():
            archive.write(picture, f"img_align_celeba/{picture.name}")
    joined = feda4fair_celeba.join(load(index, cache), tmp_path, manifest=index)
    assert joined["test"][0]["image"].size == (178, 218)


def test_other_files_are_named(
    index: Path, home: Path, cache: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("list_attr_celeba.txt", "list_eval_partition.txt"):
        shutil.copy(home / name, tmp_path / name)
    path = tmp_path / "list_attr_celeba.txt"
    lines = path.read_text("utf-8").split("\n")
    cells = lines[2].split()
    column = 1 + lines[1].split().index("Young")
    cells[column] = str(-int(cells[column]))
    path.write_text("\n".join([*lines[:2], " ".join(cells), *lines[3:]]), "utf-8")
    row = federate_table(open_source(home).read(), DATASET.recipe(CONFIG)).table
    assert row["image_id"].to_pylist().count("sample-00001.jpg") == 1
    with pytest.raises(SourceError, match=r"rebuilt from it has content \w{12}, the manifest"):
        feda4fair_celeba.join(load(index, cache), tmp_path, manifest=index)
    write_celeba(tmp_path, images=False, rows=1_900)
    with pytest.raises(SourceError, match="the index and the rebuilt rows differ"):
        feda4fair_celeba.join(load(index, cache), tmp_path, manifest=index)
    assert "rows are built without images" in caplog.text


def test_what_cannot_be_proven_is_refused(index: Path, home: Path, cache: Path) -> None:
    loaded = load(index, cache)
    with pytest.raises(SourceError, match="does not tell its content hash"):
        feda4fair_celeba.join(loaded, home)
    foreign = {**read_manifest(index), "dataset": "acs"}
    with pytest.raises(SourceError, match="the manifest describes acs"):
        feda4fair_celeba.join(loaded, home, manifest=foreign)
    with pytest.raises(RecipeError, match="no config 'value'"):
        feda4fair_celeba.join(index, home, config="value")
    with pytest.raises(SourceError, match="has no column image_id"):
        feda4fair_celeba.join(loaded.remove_columns(["image_id"]), home, manifest=index)
    train = loaded["train"]
    swapped = loaded | {"train": train.select([*range(1, len(train)), 1])}
    with pytest.raises(SourceError, match=r"split train: .*1 only rebuilt"):
        feda4fair_celeba.join(datasets.DatasetDict(swapped), home, manifest=index)


def test_the_function_is_not_hidden_by_a_module() -> None:
    for _ in range(2):
        assert callable(feda4fair_celeba.join)
