"""scripts/build.py as a user calls it: exit codes, one sentence, help that can be copied."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"


def run(
    *words: str, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPTS / "build.py"), *words],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_script", SCRIPTS / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(SCRIPTS))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(SCRIPTS))
    return module


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a source folder in which only one state has a file, and that is not the Census one."""
    root = tmp_path_factory.mktemp("source")
    folder = root / "2018" / "1-Year"
    folder.mkdir(parents=True)
    (folder / "psam_p56.csv").write_bytes(b"RT,SERIALNO\nP,1\n")
    return root


def test_a_build_says_what_it_made(tmp_path: Path) -> None:
    done = run("acs", "--sample", "--states", "SD", "--out", "out", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    first, *lines = done.stdout.splitlines()
    assert first == "out: acs 1.0.0 (synthetic sample)"
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text("utf-8"))
    for name, config in manifest["configs"].items():
        (line,) = [line for line in lines if line.split()[0] == name]
        assert f"{config['rows']:,} rows" in line
        assert f"dropped {config['dropped']:,}, flipped {config['flipped']:,}" in line
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    words = ["acs", "value-silo", "--sample", "--states", "SD", "--out", "out"]
    with subprocess.Popen(
        [sys.executable, str(SCRIPTS / "build.py"), *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as build:
        assert build.stdout is not None
        assert build.stderr is not None
        build.stdout.close()
        assert build.stderr.read() == ""
    assert (tmp_path / "out" / "manifest.json").is_file()


def test_show_loads_a_config_and_prints_it(tmp_path: Path) -> None:
    words = ("value-device", "--sample", "--clients", "TX_0", "--show")
    done = run("acs", *words, "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert f'load_dataset("{tmp_path / "out"}", "value-device")' in done.stdout
    assert "client TX_0, first rows:" in done.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["value-devise", "--sample"], "no config 'value-devise'; there are attribute-silo"),
        (["value-silo", "--sample", "--clients", "TX_0"], "acs/value-silo: no client TX_0"),
        (["--sample", "--states", "DC"], "unknown state 'DC'"),
        (["--sample", "--workers", "0"], "--workers 0"),
        (["--sample", "--year", "2019"], "RELSHIPP"),
        (["--sample", "--year", "2020"], "no standard 1-Year PUMS for 2020"),
        (["attribute-device", "--sample", "--states", "WY"], "states WY hold none"),
        (["--sample", "--states", "WY"], "attribute-device"),
        (["--source", "absent"], "absent"),
        (["--source", "{source}"], "has no person file of AK, AL, AR"),
        (["value-silo", "--source", "{source}", "--states", "WY"], "psam_p56.csv"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    script: ModuleType,
    source: Path,
    words: list[str],
    told: str,
) -> None:
    monkeypatch.setenv("FEDA4FAIR_CACHE", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    argv = ["acs", *(word.format(source=source) for word in words), "--out", "out"]
    assert script.run(lambda: script.main(argv)) == 1
    done = capsys.readouterr()
    assert done.out == ""
    (line,) = done.err.splitlines()
    assert re.fullmatch(r"error: .*\.", line)
    assert told in line
    assert {path.name for path in tmp_path.iterdir()} <= {"home"}


def test_all_missing_states_are_named(tmp_path: Path, source: Path) -> None:
    done = run("acs", "value-silo", "--source", str(source), "--out", "out", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    named = re.search(r"no person file of ([A-Z, ]+);", line)
    assert named is not None
    assert len(named[1].split(", ")) == 50
    assert "--allow-missing" in line
    assert not list(tmp_path.iterdir())


def test_an_option_of_another_dataset_is_refused(tmp_path: Path) -> None:
    done = run("dutch", "--year", "2018", "--out", str(tmp_path / "out"))
    assert done.returncode == 1
    assert done.stderr == "error: --year: not an option of dutch; see build.py --help.\n"


def test_debug_shows_where_it_failed(tmp_path: Path) -> None:
    done = run("acs", "nope", "--sample", "--out", str(tmp_path / "out"), "--debug")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "RecipeError" in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "the following arguments are required"),
        (["acs"], "--out"),
        (["adult", "--out", "out"], "invalid choice: 'adult'"),
        (["acs", "--out", "out", "--sample", "--source", "here"], "not allowed with"),
        (["acs", "--out", "out", "--workers", "many"], "invalid int value"),
        (["acs", "--out", "out", "--control", "half"], "invalid choice: 'half'"),
        (["acs", "--out", "out", "--fast"], "unrecognized arguments: --fast"),
    ],
)
def test_wrong_usage(
    capsys: pytest.CaptureFixture[str], script: ModuleType, words: list[str], told: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        script.main(words)
    assert caught.value.code == 2
    done = capsys.readouterr()
    assert done.out == ""
    assert "usage: build.py" in done.err
    assert told in done.err


def test_wrong_usage_ends_with_2(tmp_path: Path) -> None:
    done = run("acs", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_help_has_examples_that_can_be_copied(script: ModuleType) -> None:
    done = run("--help", COLUMNS="100")
    assert (done.returncode, done.stderr) == (0, "")
    text = done.stdout.partition("examples:\n")[2]
    examples = re.findall(r"^  build\.py (.*?)(?:  .*)?$", text, re.MULTILINE)
    assert len(examples) >= 4
    for example in examples:
        parsed = script.parser().parse_args(shlex.split(example))
        assert parsed.recipe or parsed.dataset in ("acs", "dutch", "celeba")
        assert parsed.out


def test_every_option_is_explained(script: ModuleType) -> None:
    actions = [action for action in script.parser()._actions if action.option_strings]
    assert [action.option_strings for action in actions if not action.help] == []


@pytest.mark.parametrize("name", ["build", "publish", "verify"])
def test_a_python_without_the_library_is_told_so(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-E", str(SCRIPTS / f"{name}.py"), "--help"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "does not know" in done.stderr
    assert "make venv" in done.stderr
    assert done.stderr.count("\n") == 1
