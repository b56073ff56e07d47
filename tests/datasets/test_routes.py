"""Built folder, builder API and loading script: the same rows on datasets 3, 4 and 5."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from feda4fair.content import content_sha256

REPOSITORY = Path(__file__).resolve().parents[2]
CONFIGS = [("acs", "value-device"), ("dutch", "value-silo"), ("celeba", "value-device")]

INTERPRETERS = {
    "here": sys.executable,
    "datasets 3": os.environ.get("FEDA4FAIR_PYTHON_DATASETS3"),
    "datasets 5": os.environ.get("FEDA4FAIR_PYTHON_DATASETS5"),
}

DRIVER = """
import importlib, json, os, sys
import datasets
from datasets import load_dataset
from feda4fair.content import content_sha256

datasets.disable_progress_bars()
home = os.getcwd()


def content(rows):
    return content_sha256(rows.data.table.replace_schema_metadata(None))


def contents(loaded):
    return {split: content(rows) for split, rows in loaded.items()}


def answer(name, config, folder, work):
    os.chdir(home)
    package = importlib.import_module(f"feda4fair_{name}")
    routes = {"folder": contents(load_dataset(folder, config))}
    builder_class = next(getattr(package, n) for n in package.__all__ if n[:9] == "Feda4Fair")
    builder = builder_class(config_name=config, sample=True)
    builder.download_and_prepare()
    routes["api"] = contents(builder.as_dataset())
    if datasets.__version__ < "4":
        script = os.path.dirname(package.__file__)
        loaded = load_dataset(script, config, sample=True, trust_remote_code=True)
        routes["script"] = contents(loaded)
    os.chdir(work)  # a folder feda4fair/<name> lies here
    hub_name = f"feda4fair/{name}"
    routes["beside"] = contents(load_dataset(hub_name, config))
    example = json.load(open(f"{hub_name}/manifest.json"))["configs"][config]["example"]
    own = [("client_id", "==", example["client"])]
    stream = load_dataset(hub_name, config, split="test", streaming=True)
    return {
        "routes": routes,
        "test": content(load_dataset(hub_name, config, split="test")),
        "client": content(load_dataset(hub_name, config, split=example["split"], filters=own)),
        "streamed": [[row["client_id"], row["row_id"], row["label"]] for row in stream],
    }


answers = {"version": datasets.__version__}
for name, config, folder, work in json.loads(sys.argv[1]):
    answers[f"{name}/{config}"] = answer(name, config, folder, work)
json.dump(answers, sys.stdout)
"""


def environment(home: Path) -> dict[str, str]:
    """Return an environment whose caches are new and which reaches no Hub."""
    return os.environ | {
        "HF_HOME": str(home),
        "HF_HUB_OFFLINE": "1",
        "FEDA4FAIR_CACHE": str(home / "feda4fair"),
        "PYTHONWARNINGS": "ignore",
    }


def stored(folder: Path, config: str) -> dict[str, pa.Table]:
    """Return the rows of a built config as its files hold them."""
    splits: dict[str, list[pa.Table]] = {}
    for file in sorted(folder.glob(f"data/{config}/*.parquet")):
        table = pq.read_table(file).replace_schema_metadata(None)
        splits.setdefault(file.name.partition("-")[0], []).append(table)
    return {split: pa.concat_tables(tables) for split, tables in splits.items()}


def interpreter(which: str) -> str:
    program = INTERPRETERS[which]
    if not program:
        variable = f"FEDA4FAIR_PYTHON_DATASETS{which[-1]}"
        pytest.skip(f"{variable} names no Python; `make compat` sets it")
    return program


@pytest.fixture(scope="module")
def drive(
    sample_build: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], dict[str, Any]]:
    """Walk all routes of all configs in a fresh process of an interpreter."""
    work = tmp_path_factory.mktemp("work")
    (work / "driver.py").write_text(DRIVER, "utf-8")
    (work / "feda4fair").mkdir()
    for name in dict(CONFIGS):
        (work / "feda4fair" / name).symlink_to(sample_build(name), target_is_directory=True)

    @cache
    def walk(which: str) -> dict[str, Any]:
        tasks = [(name, config, str(sample_build(name)), str(work)) for name, config in CONFIGS]
        done = subprocess.run(
            [interpreter(which), str(work / "driver.py"), json.dumps(tasks)],
            cwd=tmp_path_factory.mktemp("elsewhere"),
            env=environment(tmp_path_factory.mktemp("home")),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        answers: dict[str, Any] = json.loads(done.stdout)
        return answers

    return walk


every_interpreter = pytest.mark.parametrize("which", INTERPRETERS)
every_config = pytest.mark.parametrize(("name", "config"), CONFIGS)


@every_interpreter
def test_an_interpreter_has_the_version_it_stands_for(
    drive: Callable[[str], dict[str, Any]], which: str
) -> None:
    here = importlib.metadata.version("datasets")
    assert drive(which)["version"].startswith(which[-1] + "." if which != "here" else here)


@every_interpreter
@every_config
def test_all_routes_give_the_rows_of_the_folder(
    drive: Callable[[str], dict[str, Any]],
    sample_build: Callable[[str], Path],
    which: str,
    name: str,
    config: str,
) -> None:
    answers = drive(which)
    found = answers[f"{name}/{config}"]["routes"]
    rows = stored(sample_build(name), config)
    expected = {split: content_sha256(table) for split, table in rows.items()}
    script = ["script"] if answers["version"] < "4" else []
    assert found == dict.fromkeys(["folder", "api", *script, "beside"], expected)
    assert len({tuple(splits) for splits in found.values()}) == 1


@every_interpreter
@every_config
def test_a_split_a_stream_and_one_client(
    drive: Callable[[str], dict[str, Any]],
    sample_build: Callable[[str], Path],
    which: str,
    name: str,
    config: str,
) -> None:
    answer, folder = drive(which)[f"{name}/{config}"], sample_build(name)
    rows = stored(folder, config)
    keys = rows["test"].select(["client_id", "row_id", "label"]).to_pydict()
    assert answer["test"] == content_sha256(rows["test"])
    assert answer["streamed"] == [list(key) for key in zip(*keys.values(), strict=True)]
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    example = manifest["configs"][config]["example"]
    table = rows[example["split"]]
    own = table.filter(pc.equal(table["client_id"], example["client"]))
    assert own.num_rows > 0
    assert answer["client"] == content_sha256(own)


# A change in the library must never be answered from an older cache

CACHE_PATH = """
import os, sys
import datasets
from feda4fair_acs import Feda4FairACS

options = {"clients": ("AK_0",), "sample": True}
if datasets.__version__ < "4":
    import feda4fair_acs
    script = os.path.dirname(feda4fair_acs.__file__)
    builder = datasets.load_dataset_builder(
        script, "value-device", trust_remote_code=True, **options
    )
else:
    builder = Feda4FairACS(config_name="value-device", **options)
builder.download_and_prepare()
print(builder.cache_dir, builder.as_dataset("train").num_rows)
"""


@every_interpreter
def test_a_change_in_the_library_is_another_cache_path(which: str, tmp_path: Path) -> None:
    program, library = interpreter(which), tmp_path / "library"
    shutil.copytree(REPOSITORY / "shared" / "feda4fair", library / "feda4fair", symlinks=True)
    shutil.copytree(REPOSITORY / "feda4fair_acs", library / "feda4fair_acs")
    (tmp_path / "path.py").write_text(CACHE_PATH, "utf-8")

    def ask() -> list[str]:
        done = subprocess.run(
            [program, str(tmp_path / "path.py")],
            env=environment(tmp_path / "home") | {"PYTHONPATH": str(library)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    first = ask()
    assert ask() == first
    drawing = library / "feda4fair" / "assign.py"
    text = drawing.read_text("utf-8")
    changed = text.replace("sizes[:extra] += 1", "sizes[-1] += extra")
    assert changed != text
    drawing.write_text(changed, "utf-8")
    second = ask()
    assert first[0] != second[0]
    assert first[1] != second[1]
