"""What the pages tell people to type: every Python block that makes a federation runs."""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import REPOSITORY, shared_folder
from datasets import load_dataset

pytestmark = pytest.mark.usefixtures("untouched_random")


def shared(*names: str) -> Path:
    path = shared_folder().joinpath("data", *names)
    if not path.exists():
        pytest.skip(f"internal test data {'/'.join(names)} is not here")
    return path


def blocks(page: str, section: str) -> str:
    """Return the Python blocks of a section, joined."""
    text = (REPOSITORY / page).read_text("utf-8")
    found = re.search(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    assert found, f"{page} has no section {section}"
    code = re.findall(r"^```python\n(.*?)^```", found[1], re.M | re.S)
    assert code, f"{page}, {section}: no Python block"
    return "\n".join(code)


def pictures(folder: Path) -> None:
    with zipfile.ZipFile(shared("hub_samples", "image", "cats_vs_dogs_dummy.zip")) as archive:
        archive.extractall(folder / "zip")
    (folder / "pictures").mkdir()
    lines = []
    for number, path in enumerate(sorted((folder / "zip").rglob("PetImages/*/[0-9].jpg"))):
        name = f"{path.parent.name}-{path.name}"
        shutil.copy(path, folder / "pictures" / name)
        lines.append({"file_name": name, "sex": "fm"[number % 2], "label": number % 3 % 2})
    text = "\n".join(json.dumps(line) for line in lines)
    (folder / "pictures" / "metadata.jsonl").write_text(text, "utf-8")


def dutch(folder: Path) -> None:
    shutil.copy(shared("dutch", "dutch_hub_equivalent.parquet"), folder / "dutch.parquet")


def text(folder: Path) -> None:
    source = shared("hub_samples", "text", "crows_pairs_anonymized.csv.gz")
    shutil.copy(source, folder / "crows_pairs.csv.gz")


@pytest.mark.parametrize(
    ("page", "section", "prepare", "built"),
    [
        ("README.md", "Make your own federation", None, "build/mine"),
        ("docs/federate.md", "A table", None, "build/loans"),
        ("docs/federate.md", "Label, favorable value, sensitive attributes", dutch, ""),
        ("docs/federate.md", "Text", text, "build/pairs"),
        ("docs/federate.md", "Images", pictures, "build/pictures"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_lines_of_a_page_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    page: str,
    section: str,
    prepare: Callable[[Path], None] | None,
    built: str,
) -> None:
    if prepare is not None:
        prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    exec(compile(blocks(page, section), f"{page}: {section}", "exec"), {})
    if built:
        assert sum(load_dataset(built).num_rows.values()) > 0
