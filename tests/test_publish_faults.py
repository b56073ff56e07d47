"""Whatever breaks, the Hub shows the old or the new release, and a second run completes it."""

from __future__ import annotations

import copy
import hashlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hub_emulator import HubEmulator
from small_release import Ended, Running, Warm, small_release

REPO = "feda4fair/acs"
CONFIGS = ("value-silo",)
TITLES = ("fault", "exit", "Hub shows", "second run", "large files sent twice")

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")


@dataclass
class Bench:
    """A Hub with an old release, a folder with a new one, and a program to publish it."""

    hub: HubEmulator
    warm: Warm
    new: Path
    state: tuple[object, ...] = ()
    running: Running | None = None
    table: list[tuple[str, ...]] = field(default_factory=list)

    def save(self) -> None:
        self.state = (copy.deepcopy(self.hub.repos), dict(self.hub.blobs))

    def restore(self) -> None:
        repos, blobs = copy.deepcopy(self.state)
        self.hub.repos, self.hub.blobs = repos, blobs
        self.hub.faults.clear()
        self.hub.received.clear()
        self.hub.requests.clear()

    def publish(self, *more: str) -> Ended:
        self.running = self.warm.start(
            *("publish", "acs", "--build", self.new, "--repo-id", REPO),
            *(more or ("--patience", "8")),
        )
        return self.running.wait()

    def kill(self) -> None:
        assert self.running is not None
        os.kill(self.running.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def bench(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("faults")
    old = small_release(folder / "old", CONFIGS, shard_bytes=10_000)
    new = small_release(folder / "new", CONFIGS, version="1.1.0", seed=1)
    with HubEmulator() as hub:
        warm = Warm(hub.env(folder / "home"), folder)
        made = Bench(hub, warm, new)
        first = warm.run("publish", "acs", "--build", old, "--repo-id", REPO)
        assert first.code == 0, first.err
        made.save()
        yield made
        warm.close()
    reporter = request.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and made.table:
        rows = [
            ("fault", "exit", "Hub shows", "second run", "large files sent twice"),
            *made.table,
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(5)]
        capture = request.config.pluginmanager.get_plugin("capturemanager")
        with capture.global_and_fixture_disabled():
            reporter.ensure_newline()
            for row in rows:
                cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
                reporter.write_line("  ".join(cells).rstrip())


Break = Callable[[Bench], None]


def answers(status: int, path: str, method: str = "POST", **how: object) -> Break:
    return lambda bench: bench.hub.fault(method, path, status=status, **how) and None


def cut(path: str, method: str, **how: object) -> Break:
    return lambda bench: bench.hub.fault(method, path, cut=True, **how) and None


def silent(bench: Bench) -> None:
    bench.hub.fault("POST", "/commit/", silent=True)


def lost(bench: Bench) -> None:
    bench.hub.fault("POST", "/commit/", lost=True, times=1)


def killed_after_two_files(bench: Bench) -> None:
    def maybe() -> None:
        if len(bench.hub.received) >= 2:
            bench.kill()

    bench.hub.fault("PUT", "/_lfs/", then=maybe)


def killed_while_committing(bench: Bench) -> None:
    bench.hub.fault("POST", "/commit/", then=bench.kill, times=1)


def killed_before_tagging(bench: Bench) -> None:
    def kill_and_refuse() -> None:
        bench.kill()
        raise AssertionError("the client is gone")

    bench.hub.fault("POST", "/tag/", then=kill_and_refuse, times=1)


def hand_edit_meanwhile(bench: Bench) -> None:
    bench.hub.fault(
        "POST", "/commit/", times=1, then=lambda: bench.hub.write(REPO, "NOTES.md", b"by hand")
    )


OLD, NEW = "old release", "new release"

FAULTS: dict[str, tuple[Break, int, str]] = {
    "503 on the commit, once": (answers(503, "/commit/", times=1), 0, NEW),
    "503 on the commit, forever": (answers(503, "/commit/"), 1, OLD),
    "503 on a large file, once": (answers(503, "/_lfs/", "PUT", times=1), 0, NEW),
    "429 with Retry-After, twice": (
        answers(429, "/commit/", times=2, headers={"Retry-After": "1"}),
        0,
        NEW,
    ),
    "429 with Retry-After of an hour": (
        answers(429, "/commit/", headers={"Retry-After": "3600"}),
        1,
        OLD,
    ),
    "409 on the commit, once": (answers(409, "/commit/", times=1), 0, NEW),
    "412 on the commit, once": (answers(412, "/commit/", times=1), 0, NEW),
    "412 on the commit, forever": (answers(412, "/commit/"), 1, OLD),
    "403 on the commit": (answers(403, "/commit/"), 1, OLD),
    "403 on the large files": (answers(403, "/objects/batch"), 1, OLD),
    "500 on the tag, once": (answers(500, "/tag/", times=1), 0, NEW),
    "500 on the tag, forever": (answers(500, "/tag/"), 1, NEW),
    "connection cut in a large file, once": (cut("/_lfs/", "PUT", times=1), 0, NEW),
    "connection cut in a large file, forever": (cut("/_lfs/", "PUT"), 1, OLD),
    "connection cut in the commit, once": (cut("/commit/", "POST", times=1), 0, NEW),
    "answer to the commit lost": (lost, 0, NEW),
    "server that never answers the commit": (silent, 1, OLD),
    "kill -9 while sending large files": (killed_after_two_files, -signal.SIGKILL, OLD),
    "kill -9 while committing": (killed_while_committing, -signal.SIGKILL, NEW),
    "kill -9 before tagging": (killed_before_tagging, -signal.SIGKILL, NEW),
    "an edit by hand before the commit": (hand_edit_meanwhile, 0, NEW),
}


SELDOM = {
    "503 on a large file, once",
    "429 with Retry-After of an hour",
    "409 on the commit, once",
    "403 on the large files",
    "500 on the tag, once",
    "500 on the tag, forever",
    "connection cut in a large file, forever",
}
"""Faults of a kind that another one shows already."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SELDOM)) for name in FAULTS]
)
def test_a_fault_leaves_the_old_or_the_new_release(bench: Bench, name: str) -> None:
    breaks, code, shows = FAULTS[name]
    bench.restore()
    old = bench.hub.tree(REPO)
    breaks(bench)
    ended = bench.publish()
    shown = bench.hub.tree(REPO)
    bench.hub.faults.clear()
    assert ended.code == code, ended.out + ended.err
    if code == 1:
        assert ended.err.startswith("error: ")
        assert ended.err.count("\n") == 1
    assert "Traceback" not in ended.err

    second = bench.publish()
    assert second.code == 0, second.err
    new = bench.hub.tree(REPO)
    assert shown == (old if shows == OLD else new)
    assert is_the_release(new, bench.new)
    assert bench.hub.dataset(REPO).refs["refs/tags/v1.1.0"] == head(bench.hub)
    assert bench.hub.history(REPO).count("acs v1.1.0") == 1
    assert len(bench.hub.received) == len(set(bench.hub.received))
    bench.table.append((name, str(ended.code), shows, "completes", "none"))


def head(hub: HubEmulator) -> str:
    return hub.dataset(REPO).refs["refs/heads/main"]


def is_the_release(tree: dict[str, str], folder: Path) -> bool:
    """Whether a tree holds the files of the folder, and no data beside them."""
    local = {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }
    local[".gitattributes"] = tree[".gitattributes"]
    return {path: key for path, key in tree.items() if path != "NOTES.md"} == local


def test_two_publishers_at_the_same_time_make_one_commit(bench: Bench) -> None:
    bench.restore()
    barrier = threading.Barrier(2, timeout=60)

    def meet() -> None:
        if not barrier.broken:
            barrier.wait()

    # Both stand before the commit with the same head; then one of them is too late.
    bench.hub.fault("POST", "/commit/", then=meet, times=2)
    command = ("publish", "acs", "--build", bench.new, "--repo-id", REPO, "--patience", "20")
    both = [bench.warm.start(*command) for _ in range(2)]
    ended = [running.wait() for running in both]
    assert [each.code for each in ended] == [0, 0], ended
    assert bench.hub.history(REPO).count("acs v1.1.0") == 1
    assert is_the_release(bench.hub.tree(REPO), bench.new)
    assert bench.hub.dataset(REPO).refs["refs/tags/v1.1.0"] == head(bench.hub)
    bench.table.append(("a second publisher at the same time", "0 and 0", NEW, "-", "-"))


def test_a_full_disk_while_building_leaves_the_old_release(bench: Bench, tmp_path: Path) -> None:
    bench.restore()
    old = bench.hub.tree(REPO)
    ended = bench.warm.run(
        *("publish", "acs", "--sample", "--repo-id", REPO), file_bytes=20_000, cwd=tmp_path
    )
    assert ended.code == 1, ended.out
    assert ended.err.startswith("error: ")
    assert "Traceback" not in ended.err
    assert bench.hub.tree(REPO) == old
    assert list(tmp_path.rglob("*")) == []
    assert not any(method == "POST" for method, _, _ in bench.hub.requests)
    second = bench.publish()
    assert second.code == 0, second.err
    bench.table.append(("disk full while building", "1", OLD, "completes", "none"))


def test_a_server_that_never_answers_is_found_out_before_any_work(bench: Bench) -> None:
    bench.restore()
    bench.hub.fault("GET", "whoami", silent=True)
    ended = bench.publish("--patience", "1")
    assert ended.code == 1
    assert "no answer in time" in ended.err
    bench.table.append(("server that never answers at all", "1", OLD, "-", "-"))
