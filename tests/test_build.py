"""A folder in Hub layout, all or nothing: determinism, refusals, kills, and a full disk."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from feda4fair.build import build, federations, parts_of
from feda4fair.errors import OutputError, RecipeError, SourceError
from feda4fair.manifest import MANIFEST, Manifest
from feda4fair.recipe import BiasRule, ClientGroup, Recipe
from feda4fair.verify import verify
from feda4fair_acs import DATASET
from feda4fair_acs.source import SampleSource

BUILD = Path(__file__).resolve().parent.parent / "scripts" / "build.py"
SILO = DATASET.recipe("value-silo")
VERMONT_AND_WYOMING = SampleSource(parts=("VT", "WY"))
STATES = ("ID", "ND", "SD", "TX")  # each has clients in all four configs


def command(out: Path, *words: str) -> list[str]:
    return [sys.executable, str(BUILD), "acs", *words, "--sample", "--out", str(out)]


def run(out: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command(out, *words),
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done


def content(folder: Path) -> dict[str, bytes]:
    """Return every file of a folder by its name."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@dataclass(frozen=True)
class Changed:
    """The sample of some states, changed as it is read."""

    change: Callable[[str, pa.Table], pa.Table] = lambda part, table: table
    sample: SampleSource = VERMONT_AND_WYOMING

    def read(self, part: str) -> pa.Table:
        return self.change(part, self.sample.read(part))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sample, name)


def make(
    out: Path, source: Any = None, recipe: Recipe = SILO, *, overwrite: bool = False
) -> Manifest:
    return build(DATASET, [recipe], source or Changed(), out, overwrite=overwrite)


def ruled(*rules: BiasRule) -> Recipe:
    return replace(SILO, groups=(ClientGroup(name="g", rules=rules),))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "built"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a build of all four configs for some states."""
    folder = tmp_path_factory.mktemp("whole") / "acs"
    done = run(folder, "--states", *STATES, PYTHONHASHSEED="0")
    assert done.returncode == 0, done.stderr
    return folder


# The same bytes


@pytest.mark.parametrize(
    ("words", "environment"),
    [
        ((), {"PYTHONHASHSEED": "1", "LC_ALL": "C", "TZ": "Asia/Tokyo"}),
        (("--workers", "4"), {"PYTHONHASHSEED": "random"}),
    ],
)
def test_any_run_gives_the_same_files(
    whole: Path, out: Path, words: tuple[str, ...], environment: dict[str, str]
) -> None:
    done = run(out, "--states", *STATES, *words, **environment)
    assert done.returncode == 0, done.stderr
    assert content(out) == content(whole)


def test_a_build_leaves_the_random_state_alone(out: Path, untouched_random: None) -> None:
    make(out)
    list(federations(SILO, Changed()))


@pytest.mark.parametrize(("config", "client"), [("value-device", "TX_0"), ("value-silo", "TX")])
def test_a_client_alone_has_the_bytes_it_has_among_all(
    whole: Path, out: Path, config: str, client: str
) -> None:
    assert run(out, config, "--clients", client).returncode == 0
    among = {(e["client_id"], e["split"]): e for e in index(whole, config)}
    alone = index(out, config)
    assert {entry["client_id"] for entry in alone} == {client}
    assert len(alone) == sum(key[0] == client for key in among)
    for entry in alone:
        other = among[entry["client_id"], entry["split"]]
        assert chunks(out / entry["file"], entry["row_group"]) == chunks(
            whole / other["file"], other["row_group"]
        )
        same = ("name", "fold", "rows", "positives", "flipped", "dropped", "rules", "drop", "flip")
        assert [entry[name] for name in same] == [other[name] for name in same]


def index(folder: Path, config: str) -> list[dict[str, Any]]:
    return pq.read_table(folder / "clients" / f"{config}.parquet").to_pylist()


def chunks(path: Path, group: int) -> list[bytes]:
    """Return the raw bytes of the column chunks of a row group."""
    stored = pq.ParquetFile(path).metadata.row_group(group)
    raw = path.read_bytes()
    columns = [stored.column(i) for i in range(stored.num_columns)]
    starts = [column.dictionary_page_offset or column.data_page_offset for column in columns]
    return [
        raw[start : start + column.total_compressed_size]
        for start, column in zip(starts, columns, strict=True)
    ]


# What is in the folder


def test_the_folder_has_the_hub_layout(whole: Path) -> None:
    names = {recipe.name for recipe in DATASET.recipes}
    assert {path.name for path in (whole / "data").iterdir()} == names
    for sidecar, suffix in (
        ("clients", ".parquet"),
        ("dropped", ".parquet"),
        ("recipes", ".json"),
    ):
        assert {path.name for path in (whole / sidecar).iterdir()} == {n + suffix for n in names}
    assert {"README.md", "manifest.json", "LICENSE", "CITATION.bib", ".gitattributes"} <= {
        path.name for path in whole.iterdir()
    }
    assert not [name for name in content(whole) if name.endswith(".py")]
    assert sorted(path.name for path in whole.parent.iterdir()) == ["acs"]


def test_parts_are_those_that_hold_wanted_clients() -> None:
    source, device = SampleSource(), DATASET.recipe("value-device")
    assert parts_of(device, source, ["TX_0", "AK_1"]) == ("AK", "TX")
    assert parts_of(SILO, source, []) == source.parts
    kept = {client.partition("_")[0] for client in device.keep or ()}
    assert set(parts_of(device, source, [])) == kept < set(source.parts)


def test_a_rule_that_matches_no_row_is_a_note(out: Path) -> None:
    men = Changed(lambda part, table: table.filter(pc.equal(table["SEX"], 1)))
    manifest = make(out, men, ruled(BiasRule(where={"SEX": "Female"}, drop=0.5)))
    ledger = manifest["configs"][SILO.name]["ledger"]
    assert [(e["client"], e["note"]) for e in ledger] == [
        ("VT", "the rule matches no row"),
        ("WY", "the rule matches no row"),
    ]


# Refusals


def emptied(part: str, table: pa.Table) -> pa.Table:
    keep = pc.and_(pc.equal(table["SEX"], 2), pc.equal(table["label"], 1))
    return table.filter(keep) if part == "WY" else table


def broken(part: str, table: pa.Table) -> pa.Table:
    if part == "WY":
        raise SourceError("WY is damaged.")
    return table


@pytest.mark.parametrize(
    ("source", "error", "words"),
    [
        (Changed(emptied), RecipeError, "client WY keeps none of its"),
        (Changed(broken), SourceError, "WY is damaged"),
    ],
)
@pytest.mark.parametrize("before", [False, True])
def test_a_failure_on_the_way_leaves_things_as_they_were(
    tmp_path: Path, source: Changed, error: type[Exception], words: str, before: bool
) -> None:
    out = tmp_path / "new" / "deep" / "built"
    if before:
        make(out)
    found = content(tmp_path)
    recipe = ruled(BiasRule(where={"SEX": "Female"}, drop=1.0))
    with pytest.raises(error, match=words):
        make(out, source, recipe, overwrite=True)
    assert content(tmp_path) == found
    assert before or not list(tmp_path.iterdir())


def test_another_build_is_refused_without_overwrite(out: Path) -> None:
    make(out)
    found = content(out)
    with pytest.raises(OutputError, match=r"holds a build of acs .*--overwrite") as caught:
        make(out, recipe=DATASET.recipe("attribute-silo"))
    assert str(out) in str(caught.value)
    assert content(out) == found
    make(out, recipe=DATASET.recipe("attribute-silo"), overwrite=True)
    assert [path.name for path in (out / "data").iterdir()] == ["attribute-silo"]
    assert [path.name for path in out.parent.iterdir()] == [out.name]


def test_what_people_wrote_into_the_card_outlives_a_new_build(out: Path) -> None:
    make(out)
    card = out / "README.md"
    text = card.read_text("utf-8")
    edited = text.replace("language:", "extra_gated_prompt: Who are you?\nlanguage:", 1)
    assert edited != text
    edited = edited.replace("\r\n", "\n") + "\n## Seminar\n\nSee you on Monday.\n"
    card.write_bytes("\ufeff".encode() + edited.replace("\n", "\r\n").encode())
    make(out, recipe=DATASET.recipe("attribute-silo"), overwrite=True)
    text = card.read_text("utf-8")
    assert text.endswith("\n## Seminar\n\nSee you on Monday.\n")
    assert "extra_gated_prompt: Who are you?" in text
    assert "\r" not in text
    assert f"config:{SILO.name}" not in text, "a config that is gone has no place on the card"
    assert f"config_name: {SILO.name}" not in text
    assert verify(out).differences == ()
    once = content(out)
    make(out, recipe=DATASET.recipe("attribute-silo"), overwrite=True)
    assert content(out) == once


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"---\na: [\n---\n", "YAML block cannot be read"),
        (b"<!-- feda4fair:begin head -->\n", "has no partner"),
        (b"caf\xe9", "is not UTF-8"),
    ],
)
def test_a_card_that_cannot_be_merged_stops_the_build_before_any_work(
    out: Path, text: bytes, told: str
) -> None:
    make(out)
    (out / "README.md").write_bytes(text)

    def unread(part: str, table: pa.Table) -> pa.Table:
        raise AssertionError(f"{part} was read")

    with pytest.raises(OutputError, match=told) as caught:
        make(out, Changed(unread), overwrite=True)
    assert str(caught.value).startswith(f"{out}/README.md: ")
    assert (out / "README.md").read_bytes() == text


@pytest.mark.parametrize(
    "files",
    [
        {"thesis.txt": "years of work"},
        {"thesis.txt": "years of work", MANIFEST: '{"name": "a web app"}'},
        {"thesis.txt": "years of work", MANIFEST: '{"format": 1}'},
        {MANIFEST: "not even JSON"},
        {".hidden": ""},
    ],
    ids=["no manifest", "foreign manifest", "nearly ours", "no JSON", "hidden file"],
)
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_that_is_no_build_is_never_overwritten(
    out: Path, files: dict[str, str], overwrite: bool
) -> None:
    out.mkdir()
    for name, text in files.items():
        (out / name).write_text(text, "utf-8")
    found = content(out)
    with pytest.raises(OutputError, match="never overwritten"):
        make(out, overwrite=overwrite)
    assert content(out) == found
    assert [path.name for path in out.parent.iterdir()] == [out.name]


def test_files_put_into_a_build_are_not_lost(out: Path) -> None:
    make(out)
    (out / "data" / "notes.txt").write_text("mine", "utf-8")
    with pytest.raises(OutputError, match=r"notes\.txt"):
        make(out, overwrite=True)
    assert (out / "data" / "notes.txt").read_text("utf-8") == "mine"


def test_a_file_in_the_place_of_the_folder_is_refused(out: Path) -> None:
    out.write_text("mine", "utf-8")
    with pytest.raises(OutputError, match="is a file"):
        make(out, overwrite=True)
    assert out.read_text("utf-8") == "mine"


def test_the_root_is_refused() -> None:
    with pytest.raises(OutputError, match="/"):
        make(Path("/"))


def test_an_empty_folder_and_a_relative_path_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("built").mkdir()
    make(Path("built"))
    assert (tmp_path / "built" / MANIFEST).is_file()


def test_a_link_to_a_build_is_replaced_and_nothing_is_lost(tmp_path: Path) -> None:
    make(tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    before = content(tmp_path / "real")
    make(tmp_path / "link", recipe=DATASET.recipe("attribute-silo"), overwrite=True)
    assert "attribute-silo" in json.loads((tmp_path / "link" / MANIFEST).read_text())["configs"]
    assert content(tmp_path / "real") in (before, content(tmp_path / "link"))


def test_two_builds_of_one_folder_do_not_meet(out: Path) -> None:
    met = []

    def meanwhile(part: str, table: pa.Table) -> pa.Table:
        with pytest.raises(OutputError, match="another build is writing there"):
            make(out, overwrite=True)
        met.append(part)
        return table

    make(out, Changed(meanwhile))
    assert met == ["VT", "WY"]
    assert len(index(out, SILO.name)) == 6


def test_a_config_without_clients_in_the_source_is_named(out: Path) -> None:
    with pytest.raises(RecipeError, match="attribute-device"):
        make(out, SampleSource(parts=("WY",)), DATASET.recipe("attribute-device"))
    assert not out.exists()


# Killed


def wait_for(condition: Callable[[], object], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, "the build ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.005)


def written(out: Path) -> bool:
    partial = out.with_name(f".{out.name}.partial")
    return any(path.stat().st_size for path in partial.glob("data/*/*.parquet"))


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start builds that are surely gone when the test ends."""
    running: list[subprocess.Popen[bytes]] = []

    def start(out: Path, *words: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            command(out, *words),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize("workers", ["1", "4"])
def test_after_a_kill_the_old_build_stands_and_the_next_run_is_clean(
    whole: Path,
    tmp_path: Path,
    started: Callable[..., subprocess.Popen[bytes]],
    workers: str,
) -> None:
    out = tmp_path / "built"
    old = make(out)
    found = content(out)
    process = started(out, "--overwrite", "--workers", workers)
    wait_for(lambda: written(out), process)
    process.kill()
    process.wait()
    assert content(out) == found
    assert list(old["configs"]) == [SILO.name]
    done = run(out, "--states", *STATES, "--overwrite")
    assert done.returncode == 0, done.stderr
    assert content(out) == content(whole)
    assert [path.name for path in tmp_path.iterdir()] == ["built"]


def test_a_kill_between_the_two_renames_loses_nothing(whole: Path, tmp_path: Path) -> None:
    """The old build has been moved aside, the new one has not taken its name yet."""
    out = tmp_path / "built"
    shutil.copytree(whole, out.with_name(".built.old"))
    (tmp_path / ".built.partial" / "data").mkdir(parents=True)
    with pytest.raises(OutputError, match="holds a build of acs"):
        make(out)
    assert content(out) == content(whole)
    assert [path.name for path in tmp_path.iterdir()] == ["built"]


def test_an_interrupt_is_one_line_and_leaves_nothing(
    tmp_path: Path, started: Callable[..., subprocess.Popen[bytes]]
) -> None:
    process = started(tmp_path / "built")
    wait_for(lambda: written(tmp_path / "built"), process)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    told = (process.returncode, error.decode())
    assert told == (130, "stopped; nothing was left behind.\n")
    assert not list(tmp_path.iterdir())


def workers_of(process: subprocess.Popen[bytes]) -> list[int]:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    if not children.is_file():
        pytest.skip("this system does not list the children of a process")
    return [
        int(child)
        for child in children.read_text().split()
        if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


def gone(worker: int) -> bool:
    try:
        return "Z" in Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_after_a_kill_no_worker_stays_behind(
    out: Path, started: Callable[..., subprocess.Popen[bytes]]
) -> None:
    process = started(out, "--workers", "2")
    wait_for(lambda: written(out), process)
    workers = workers_of(process)
    assert len(workers) == 2
    process.kill()
    process.wait()
    deadline = time.monotonic() + 10
    while not all(map(gone, workers)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_worker_that_dies_is_one_sentence(
    out: Path, started: Callable[..., subprocess.Popen[bytes]]
) -> None:
    process = started(out, "--workers", "2")
    wait_for(lambda: written(out), process)
    for worker in workers_of(process):
        os.kill(worker, signal.SIGKILL)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 1
    # Python itself may add a warning about the semaphores of the dead.
    assert_one_sentence(error.decode().splitlines()[0])
    assert b"Traceback" not in error
    assert not list(out.parent.iterdir())


def assert_one_sentence(error: str) -> None:
    lines = error.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    assert lines[0].endswith(".")


# No room


@pytest.fixture(params=["limit", "disk"])
def narrow(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, list[str]]]:
    """Give a folder in which a build does not find room, and what starts a program there."""
    if request.param == "limit":  # no file above 100 kB
        yield tmp_path, ["bash", "-c", 'ulimit -f 100; exec "$@"', "bash"]
        return
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)],
        capture_output=True,
        check=False,
    )
    if mount.returncode:
        pytest.skip("a small file system can be mounted by root only")
    yield tmp_path, []
    subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.skipif(os.name != "posix", reason="limits of POSIX systems")
def test_a_full_disk_is_one_sentence_and_leaves_nothing(narrow: tuple[Path, list[str]]) -> None:
    folder, starter = narrow
    workers = "1" if starter else "2"
    old = folder / "built"
    make(old)
    found = content(folder)
    done = subprocess.run(
        [*starter, *command(old, "--overwrite", "--workers", workers)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert_one_sentence(done.stderr)
    assert f"{old}: cannot be written" in done.stderr
    assert (os.strerror(errno.EFBIG) if starter else "the disk is full") in done.stderr
    assert content(folder) == found
    assert [path.name for path in folder.iterdir()] == ["built"]
