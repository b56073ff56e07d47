"""Engines: the same results in the same order in threads, processes and Ray tasks."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path

import pytest
from conftest import REPOSITORY
from engine_work import die, fail, read, work

from feda4fair.engine import default_workers, run
from feda4fair.errors import OutputError, RecipeError

pytestmark = pytest.mark.usefixtures("untouched_random")

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="extra ray is not installed"
)


@pytest.mark.parametrize("near", [False, True])
@pytest.mark.parametrize("workers", [1, 3])
def test_results_come_in_order(workers: int, near: bool) -> None:
    found = list(run(range(7), read, work, workers=workers, near=near))
    assert [each[:2] for each in found] == [(part, 10 * part) for part in range(7)]
    if workers > 1:
        assert {each[2] for each in found} == {1}


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_comes_as_it_was_raised(workers: int) -> None:
    with pytest.raises(RecipeError, match="part 2 is wrong"):
        list(run(range(5), read, fail, workers=workers))


def test_parts_are_read_a_bounded_number_ahead() -> None:
    seen: list[int] = []

    def noting(part: int) -> int:
        seen.append(part)
        return part

    results = run(range(100), noting, lambda part, content: content)
    next(results)
    assert len(seen) <= 2


def test_a_dead_process_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="a worker process died"):
        list(run(range(5), read, partial(die, tmp_path), workers=2))


def test_default_workers_leave_cores_to_the_others() -> None:
    assert 1 <= default_workers() <= max(1, (os.cpu_count() or 1) // 2)


RAY = {"RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(REPOSITORY / "tests")}


def program(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own: Ray talks to this machine by its own address."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)],
        env=os.environ | {**RAY, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@needs_ray
def test_ray_gives_the_same_and_starts_a_killed_worker_anew(tmp_path: Path) -> None:
    done = program(f"""
        import ray
        from functools import partial
        from pathlib import Path
        from engine_work import die, fail, read, work
        from feda4fair.engine import run
        from feda4fair.errors import RecipeError
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        for near in (False, True):
            found = list(run(range(7), read, work, engine="ray", near=near))
            assert found == [(part, 10 * part, 1) for part in range(7)], found
        try:
            list(run(range(5), read, fail, engine="ray"))
        except RecipeError as error:
            assert str(error) == "part 2 is wrong."
        else:
            raise SystemExit("no error")
        folder = Path({str(tmp_path)!r})
        assert list(run(range(5), read, partial(die, folder), engine="ray")) == [0, 10, 20, 30, 40]
        assert (folder / "died").read_text().isdigit()
        print("done")
    """)
    assert done.stdout.endswith("done\n"), done.stderr


@needs_ray
def test_builds_on_ray_equal_local_ones_file_for_file(tmp_path: Path) -> None:
    def build(*arguments: str) -> Path:
        out = tmp_path / "-".join(arguments)
        command = [sys.executable, "-W", "ignore", REPOSITORY / "scripts" / "build.py"]
        command += ["acs", "attribute-silo", "value-device", "--sample"]
        command += ["--states", "WY", "VT", "TX", "--out", out, *arguments]
        environment = os.environ | {"RAY_USAGE_STATS_ENABLED": "0"}
        subprocess.run(command, env=environment, check=True, capture_output=True)
        return out

    def contents(folder: Path) -> dict[Path, bytes]:
        files = (path for path in folder.rglob("*") if path.is_file())
        return {path.relative_to(folder): path.read_bytes() for path in files}

    local = contents(build("--engine", "local"))
    assert contents(build("--engine", "ray", "--workers", "2")) == local


@needs_ray
def test_an_unreachable_cluster_is_a_sentence() -> None:
    done = program(
        """
        from engine_work import read, work
        from feda4fair.engine import run
        from feda4fair.errors import OutputError
        try:
            list(run(range(2), read, work, engine="ray"))
        except OutputError as error:
            print(error)
        """,
        RAY_ADDRESS="127.0.0.1:1",
    )
    assert "--engine ray: the cluster cannot be reached" in done.stdout, done.stderr
    assert len(done.stdout.splitlines()) == 1


def test_a_missing_ray_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(OutputError, match=r"pip install 'feda4fair\[ray\]'"):
        list(run(range(2), read, work, engine="ray"))
