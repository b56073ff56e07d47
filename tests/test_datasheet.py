from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from feda4fair.build import build
from feda4fair.datasheet import QUESTIONS, render_datasheet, unanswered
from feda4fair.facts import Facts, read_facts
from feda4fair.manifest import read_manifest

DATASETS = ("acs", "dutch", "celeba")
CONFIGS = ("attribute-silo", "value-silo", "attribute-device", "value-device")
SECTIONS = [
    "Motivation",
    "Composition",
    "Collection process",
    "Preprocessing, cleaning, labeling",
    "Uses",
    "Distribution",
    "Maintenance",
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Build the three samples, and the index of CelebA."""
    home = tmp_path_factory.mktemp("datasheets")
    for name, form in [*((name, "full") for name in DATASETS), ("celeba", "index")]:
        dataset = import_module(f"feda4fair_{name}").DATASET
        options: dict[str, Any] = {"images": "none"} if name == "celeba" else {}
        recipes = dataset.choose(CONFIGS if name == "acs" else CONFIGS[1::2])
        source = dataset.open_source(None, recipes=recipes, sample=True, **options)
        out = home / (name if form == "full" else form)
        build(dataset, recipes, source, out, form=form)  # type: ignore[arg-type]
    return {folder.name: folder for folder in home.iterdir()}


def facts(folder: Path, **changes: Any) -> Facts:
    return read_facts(folder, {**read_manifest(folder), **changes})


def answers(text: str) -> dict[str, str]:
    """Read the answers by question."""
    _, *parts = re.split(r"^\*\*(.+\?)\*\*$", re.sub(r"^## .*$", "", text, flags=re.M), flags=re.M)
    return {q: answer.strip() for q, answer in zip(parts[::2], parts[1::2], strict=True)}


def key(wanted: str) -> str:
    (text,) = (q.text for section in QUESTIONS for q in section.questions if q.key == wanted)
    return text


def test_all_sections_and_questions_are_there(folders: dict[str, Path]) -> None:
    text = (folders["acs"] / "datasheets" / "value-silo.md").read_text("utf-8")
    assert re.findall(r"^## (.+)$", text, re.M) == SECTIONS
    questions = [q for section in QUESTIONS for q in section.questions]
    assert len({q.key for q in questions}) == len({q.text for q in questions}) == len(questions)
    assert list(answers(text)) == [q.text for q in questions]
    assert len(questions) >= 57


@pytest.mark.parametrize("name", [*DATASETS, "index"])
def test_nothing_is_left_open(name: str, folders: dict[str, Path]) -> None:
    pages = sorted((folders[name] / "datasheets").iterdir())
    assert [page.stem for page in pages] == sorted(read_manifest(folders[name])["configs"])
    for page in pages:
        text = page.read_text("utf-8")
        assert all(len(answer) > 2 for answer in answers(text).values())
        assert "Not answered" not in text
        assert "without an answer" not in text
        assert not re.search(r"\b(TODO|TBD|Undefined|More Information Needed)\b", text)


@pytest.mark.parametrize("name", DATASETS)
def test_every_written_answer_has_its_question(name: str, folders: dict[str, Path]) -> None:
    written = read_manifest(folders[name])["prose"]["datasheet"]
    assert set(written) <= {q.key for section in QUESTIONS for q in section.questions}


@pytest.mark.parametrize("name", DATASETS)
def test_counts_are_those_of_the_rows(name: str, folders: dict[str, Path]) -> None:
    folder, config = folders[name], "value-device"
    rows = pd.concat(map(pd.read_parquet, (folder / "data" / config).glob("*.parquet")))
    gone = pd.read_parquet(folder / "dropped" / f"{config}.parquet")
    said = answers((folder / "datasheets" / f"{config}.md").read_text("utf-8"))
    assert said[key("count")].startswith(
        f"{len(rows):,} rows of {rows['client_id'].nunique()} clients"
    )
    assert f"{rows['label'].sum():,} rows carry the favorable label" in said[key("count")]
    assert f"{len(gone)} rows on purpose" in said[key("missing")].replace(",", "")
    flipped = int(rows["flipped"].sum())
    wanted = f"changed {flipped:,} label" if flipped else "No label was changed"
    assert wanted in said[key("noise")]
    for column in read_manifest(folder)["configs"][config]["columns"]:
        if column["role"] == "sensitive":
            counts = rows[column["name"]].value_counts()
            for code, value in column["names"].items():
                assert f"{value} {counts.get(int(code), 0):,}" in said[key("subpopulations")]


def test_the_index_says_what_it_lacks(folders: dict[str, Path]) -> None:
    text = (folders["index"] / "datasheets" / "value-silo.md").read_text("utf-8")
    said = answers(text)
    assert said[key("self_contained")].startswith("No.")
    assert "`Male`" not in said[key("content")]
    assert "`image_id`" in said[key("content")]


def test_a_datasheet_without_prose_lists_what_a_person_must_answer(
    folders: dict[str, Path],
) -> None:
    bare = facts(folders["dutch"], prose={}, citation="")
    config = bare.configs[0]
    text = render_datasheet(bare, config)
    said = answers(text.partition("## Questions without an answer")[0])
    missing = [question for question, answer in said.items() if answer == "*Not answered.*"]
    assert missing == unanswered(bare, config)
    listed = text.partition("## Questions without an answer")[2]
    assert re.findall(r"^- (.+)$", listed, re.M) == missing
    assert key("consent") in missing
    assert key("motivation") in missing
    assert key("count") not in missing
    assert "FeDa4Fair contributors" not in text


def test_one_answer_closes_one_question(folders: dict[str, Path]) -> None:
    bare = facts(folders["dutch"], prose={})
    told = facts(folders["dutch"], prose={"datasheet": {"consent": "Yes, in writing."}})
    config = bare.configs[0]
    assert set(unanswered(bare, config)) - set(unanswered(told, config)) == {key("consent")}
    assert answers(render_datasheet(told, config))[key("consent")] == "Yes, in writing."


def test_datasheet_is_golden(folders: dict[str, Path], golden: Callable[[str, str], None]) -> None:
    text = (folders["dutch"] / "datasheets" / "value-silo.md").read_text("utf-8")
    golden("cards/dutch-value-silo-datasheet.md", text)
