"""Verifying a release: everything is computed again, and what differs is named."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_release import REPOSITORY, small_release

from feda4fair.errors import OutputError
from feda4fair.manifest import read_manifest, write_manifest
from feda4fair.shards import write_parquet
from feda4fair.verify import compare_folders, verify
from feda4fair_celeba import DATASET as CELEBA

CONFIG = "value-silo"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_release(tmp_path_factory.mktemp("built") / "acs", (CONFIG,))


@pytest.fixture
def folder(built: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(built, tmp_path / "acs"))


def edit_table(path: Path, change: Callable[[pa.Table], pa.Table], groups: bool = False) -> None:
    """Change a Parquet file, keeping its row groups."""
    file = pq.ParquetFile(path)
    tables = [file.read_row_group(i) for i in range(file.metadata.num_row_groups)]
    tables = [change(table) for table in tables] if groups else tables
    with pq.ParquetWriter(path, file.schema_arrow) as writer:
        for table in tables if groups else [change(pa.concat_tables(tables))]:
            writer.write_table(table)


def edit_manifest(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    change(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest), "utf-8")


def hide(folder: Path) -> None:
    """Make the file hashes fit, as somebody would who wants a change unseen."""
    write_manifest(folder, read_manifest(folder))


def differs(folder: Path, *words: str) -> None:
    found = verify(folder)
    assert found.differences, str(found)
    text = "\n".join(found.differences)
    assert all(word in text for word in words), text


def replaced(table: pa.Table, column: str, values: list[Any]) -> pa.Table:
    position = table.schema.get_field_index(column)
    field = table.schema.field(column)
    return table.set_column(position, field, pa.array(values, field.type))


def test_a_release_is_what_it_says(built: Path) -> None:
    found = verify(built)
    assert found.differences == ()
    assert found.name == "acs 1.0.0, full form"
    assert {f"{CONFIG}: content hash and labels", f"{CONFIG}: recipe"} <= set(found.checked)


def test_the_index_form_says_so(tmp_path: Path) -> None:
    folder = small_release(tmp_path / "index", (CONFIG,), dataset=CELEBA, form="index")
    found = verify(folder)
    assert found.differences == ()
    assert "index form" in found.name
    assert any("left to --rebuild" in text for text in found.checked)


def test_a_changed_byte_is_named(folder: Path) -> None:
    with (folder / "LICENSE").open("a") as stream:
        stream.write(" ")
    differs(folder, "LICENSE", "bytes")


def test_a_changed_label_is_found_behind_fitting_file_hashes(folder: Path) -> None:
    path = folder / f"data/{CONFIG}/test-00000-of-00001.parquet"

    def flip(table: pa.Table) -> pa.Table:
        labels = table["label"].to_pylist()
        return replaced(table, "label", [1 - labels[0], *labels[1:]])

    edit_table(path, flip, groups=True)
    hide(folder)
    differs(folder, "VT test", "positives", "content hash", "statistics of")


def test_swapped_features_are_found_by_the_content_hash(folder: Path) -> None:
    path = folder / f"data/{CONFIG}/train-00000-of-00001.parquet"
    edit_table(
        path,
        lambda table: replaced(table, "AGEP", table["AGEP"].to_pylist()[::-1]),
        groups=True,
    )
    hide(folder)
    differs(folder, "content hash")
    assert not any("statistics" in text for text in verify(folder).differences)


def test_a_changed_statistic_is_named(folder: Path) -> None:
    path = folder / f"statistics/{CONFIG}.parquet"
    table = pq.read_table(path)
    gaps = table["gap"].to_pylist()
    row = next(i for i, gap in enumerate(gaps) if gap is not None)
    gaps[row] += 1e-9
    write_parquet(replaced(table, "gap", gaps), path)
    hide(folder)
    client = table["client_id"][row].as_py()
    differs(folder, f"statistics of before, {client}", "gap")


def test_a_changed_figure_of_the_card_is_named(folder: Path) -> None:
    card = folder / "README.md"
    text = card.read_text("utf-8")
    rows = f"{read_manifest(folder)['configs'][CONFIG]['rows']:,}"
    assert rows in text
    card.write_text(text.replace(rows, "9,999", 1), "utf-8")
    hide(folder)
    differs(folder, "README.md line", "9,999")


def test_words_by_hand_are_no_difference(folder: Path) -> None:
    with (folder / "README.md").open("a") as stream:
        stream.write("\n## By hand\n")
    hide(folder)
    assert verify(folder).differences == ()


@pytest.mark.parametrize(
    "name",
    [
        *("datasheets/value-silo.md", "croissant.json"),
        *("CITATION.cff", "CITATION.bib", "LICENSE"),
    ],
)
def test_other_pages_are_rendered_again_too(folder: Path, name: str) -> None:
    path = folder / name
    path.write_text(path.read_text("utf-8").replace("a", "b", 1), "utf-8")
    hide(folder)
    differs(folder, name)


def test_another_recipe_is_named(folder: Path) -> None:
    path = folder / f"recipes/{CONFIG}.json"
    path.write_text(path.read_text("utf-8").replace('"seed": 42', '"seed": 43'), "utf-8")
    hide(folder)
    differs(folder, f"recipes/{CONFIG}.json has another hash")


def test_dropped_rows_are_hashed(tmp_path: Path) -> None:
    folder = small_release(tmp_path / "celeba", (CONFIG,), dataset=CELEBA)
    path = folder / f"dropped/{CONFIG}.parquet"
    assert pq.read_metadata(path).num_rows
    assert verify(folder).differences == ()
    edit_table(path, lambda table: replaced(table, "row_id", [0] * table.num_rows))
    hide(folder)
    differs(folder, "content hash of dropped")


@pytest.mark.parametrize("count", ["rows", "clients", "positives", "flipped", "dropped"])
def test_wrong_counts_are_named(folder: Path, count: str) -> None:
    edit_manifest(folder, lambda m: m["configs"][CONFIG].update({count: 10**6}))
    differs(folder, count, "1000000")


@pytest.mark.parametrize(
    "path",
    [
        "data/value-silo/train-00000-of-00001.parquet",
        "clients/value-silo.parquet",
        "statistics/value-silo.parquet",
        "dropped/value-silo.parquet",
        "recipes/value-silo.json",
        "README.md",
    ],
)
@pytest.mark.parametrize("damage", ["missing", "cut", "text"])
def test_damage_ends_in_a_difference(folder: Path, path: str, damage: str) -> None:
    file = folder / path
    match damage:
        case "missing":
            file.unlink()
        case "cut":
            file.write_bytes(file.read_bytes()[:50])
        case _:
            file.write_text("<html>")
    differs(folder, path)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["configs"][CONFIG].pop("rows"),
        lambda m: m["configs"].update({CONFIG: None}),
        lambda m: m.update(configs=3),
        lambda m: m["configs"][CONFIG].update(splits={"train": 1}),
        lambda m: m.update(files={"LICENSE": None}),
    ],
)
def test_a_garbled_manifest_is_one_sentence(
    folder: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    edit_manifest(folder, change)
    with pytest.raises(OutputError, match=r"manifest\.json"):
        verify(folder)


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a\0b", "", "data/../../x"])
def test_a_manifest_leads_nowhere_else(folder: Path, name: str) -> None:
    edit_manifest(folder, lambda m: m["files"].update({name: {"bytes": 1, "sha256": "0" * 64}}))
    differs(folder, repr(name))
    edit_manifest(folder, lambda m: m["files"].pop(name))
    edit_manifest(folder, lambda m: m["configs"].update({name: m["configs"][CONFIG]}))
    assert any(repr(name) in text for text in verify(folder).differences)


def test_two_builds_are_compared_byte_for_byte(folder: Path, built: Path) -> None:
    assert compare_folders(built, folder).checked
    (folder / "LICENSE").write_text("other")
    (folder / "CITATION.bib").unlink()
    (folder / "extra").write_text("")
    assert compare_folders(built, folder).differences == (
        "CITATION.bib: not in the new build",
        "LICENSE: other bytes",
        "extra: not in the release",
    )


def test_words_by_hand_are_no_other_build(folder: Path, built: Path) -> None:
    with (folder / "README.md").open("a") as stream:
        stream.write("\n## By hand\n")
    hide(folder)
    assert compare_folders(folder, built).differences == ()
    edit_manifest(folder, lambda m: m["sources"][0].update(rows_read=1))
    found = compare_folders(folder, built).differences
    assert found == ("README.md: other bytes", "manifest.json: other bytes")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m["configs"][CONFIG].update(description="other"), "description"),
        (lambda m: m["configs"][CONFIG].update(control="none"), "control"),
        (lambda m: m["configs"][CONFIG]["columns"][2].update(role="label"), "columns"),
        (lambda m: m["configs"][CONFIG]["features"]["COW"].update(dtype="int16"), "features"),
        (lambda m: m["versions"].update(pyarrow="1.0"), "pyarrow 1.0"),
        (lambda m: m["prose"]["paper"].update(year=1999), "CITATION.cff"),
    ],
)
def test_what_the_manifest_repeats_is_compared(
    folder: Path, change: Callable[[dict[str, Any]], None], words: str
) -> None:
    edit_manifest(folder, change)
    differs(folder, words)


@pytest.mark.parametrize("kind", ["*.parquet", "*.json", "*.md", "*.bib", "*.tsv", "LICENSE"])
def test_a_flipped_bit_in_any_kind_of_file_is_named(folder: Path, kind: str) -> None:
    paths = [path for path in sorted(folder.rglob(kind)) if path.name != "manifest.json"]
    assert paths
    for path in paths:
        data = bytearray(path.read_bytes())
        data[len(data) // 3] ^= 4
        path.write_bytes(data)
    found = verify(folder).differences
    for path in paths:
        name = path.relative_to(folder).as_posix()
        assert any(text.startswith(f"{name} ") for text in found), name


# The script


def script(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, REPOSITORY / "scripts" / "verify.py", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_release_is_rebuilt_from_its_own_manifest(tmp_path: Path) -> None:
    build = [sys.executable, REPOSITORY / "scripts" / "build.py", "acs", CONFIG, "--sample"]
    out = tmp_path / "acs"
    subprocess.run([*build, "--clients", "VT", "WY", "--out", out], check=True)
    whole = script(out, "--rebuild")
    assert whole.returncode == 0, whole.stderr
    assert "files equal, byte for byte" in whole.stdout
    path = out / f"data/{CONFIG}/test-00000-of-00001.parquet"
    edit_table(path, lambda table: table, groups=True)
    other = script(out, "--rebuild")
    assert other.returncode == 1
    assert f"{path.relative_to(out)}: other bytes" in other.stdout
    assert other.stderr.count("\n") == 1


def test_the_script_ends_with_1_and_names_the_difference(folder: Path) -> None:
    (folder / "LICENSE").unlink()
    ended = script(folder)
    assert ended.returncode == 1
    assert "DIFFERS  LICENSE is missing" in ended.stdout
    assert ended.stderr.startswith("error: ")
    assert ended.stderr.count("\n") == 1
