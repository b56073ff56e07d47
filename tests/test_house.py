"""The house itself: top level, import graph, packaging, pins, and the guards of the tests."""

from __future__ import annotations

import ast
import json
import os
import random
import re
import socket
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).resolve().parent.parent
LIBRARY = REPOSITORY / "shared" / "feda4fair"
DATASETS = ("feda4fair_acs", "feda4fair_celeba", "feda4fair_dutch")
NOT_IMPORTABLE = ("shared", "cards", "scripts", "tests")

TOP_LEVEL = {
    *(*DATASETS, "shared", "cards", "scripts", "tests", "docs"),
    *("pyproject.toml", "constraints.txt", "Makefile", ".ci", ".github"),
    *("README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "CITATION.cff"),
    *(".gitignore", ".gitattributes", ".pre-commit-config.yaml"),
}

# A module imports only modules to the left of and above it.
LAYERS = [
    *("errors", "seeds", "content", "tables", "patience", "merge", "render", "fetch"),
    *("typed", "columns", "schema", "encode", "partition", "recipe", "scenarios", "dataset"),
    *(
        "assign",
        "bias",
        "split",
        "federation",
        "decide",
        "gather",
        "steps",
        "spill",
        "ownsplit",
        "client",
    ),
    *("codes", "cube", "rates", "disparity", "fairness"),
    *("exact", "intervals", "uncertainty", "disagreement", "homogeneous", "heterogeneity"),
    *("finding", "longform", "overview", "archive", "report", "measurement"),
    *("points", "drawing", "plots"),
    *(
        "shards",
        "parquet",
        "manifest",
        "facts",
        "phrases",
        "answers",
        "datasheet",
        "croissant",
        "card",
    ),
    *("staging", "engine", "build", "script", "own", "builder", "readback"),
    *("release", "remote", "preflight", "completion", "changes", "hub", "verify"),
    *("heldout", "harm", "scorecard", "score", "evaluate", "closedform", "search", "calibrate"),
    *("export", "flower", "fl"),
    "dashboard",
]

# The only modules of the library that may import what an extra brings.
HEAVY = {
    "altair": {"dashboard"},
    "flwr": {"fl"},
    "flwr_datasets": {"flower"},
    "isal": {"feda4fair_acs"},
    "matplotlib": {"plots"},
    "optuna": {"fl"},
    "ray": {"engine"},
    "streamlit": {"dashboard"},
    "torch": {"fl"},
    "xgboost": {"evaluate"},
}


def run(*command: str | Path, cwd: Path) -> str:
    """Run a program outside the repository, without its search path, and return its output."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


def project_files() -> list[Path]:
    """Return the files that are, or would be, committed."""
    if not (REPOSITORY / ".git").exists():
        pytest.skip("not a git checkout")
    listing = run(
        *("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"), cwd=REPOSITORY
    )
    paths = (Path(name) for name in listing.split("\0") if name)
    return [path for path in paths if (REPOSITORY / path).is_file()]


def pyproject() -> dict[str, Any]:
    return tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))


def imports(path: Path) -> Iterator[str]:
    """Yield the dotted names a file imports, wherever in the file it does."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                yield from (each.name for each in names)
            case ast.ImportFrom(module=module, level=0, names=names) if module is not None:
                yield from (f"{module}.{each.name}" for each in names)
            case ast.ImportFrom():
                raise AssertionError(f"{path}: relative import; write the full name")


def root(name: str) -> str:
    return name.partition(".")[0]


def library_modules() -> dict[Path, str]:
    """Return the top-level module of the library that each of its files belongs to."""
    paths = (path for path in LIBRARY.rglob("*.py") if path != LIBRARY / "__init__.py")
    return {path: path.relative_to(LIBRARY).parts[0].removesuffix(".py") for path in paths}


# Top level


def test_nothing_else_grows_at_the_root() -> None:
    assert {path.parts[0] for path in project_files()} <= TOP_LEVEL


def test_no_large_file_is_committed() -> None:
    limit = 500_000
    large = [path for path in project_files() if (REPOSITORY / path).stat().st_size > limit]
    assert large == []


# Import graph


def test_every_library_module_has_its_place() -> None:
    assert set(library_modules().values()) <= set(LAYERS)
    assert len(LAYERS) == len(set(LAYERS))


def test_library_imports_only_layers_above() -> None:
    wrong = []
    for path, module in library_modules().items():
        above = {*LAYERS[: LAYERS.index(module)], module, "__version__", "cards"}
        for name in imports(path):
            if root(name) == "feda4fair" and name.split(".")[1] not in above:
                wrong.append(f"{module} imports {name}")
    assert wrong == []


def test_library_knows_no_dataset_and_no_script() -> None:
    below = {*DATASETS, *NOT_IMPORTABLE}
    files = [*LIBRARY.rglob("*.py"), *(REPOSITORY / "cards").rglob("*.py")]
    wrong = {f"{path.name}: {name}" for path in files for name in imports(path)}
    assert {each for each in wrong if root(each.split(": ")[1]) in below} == set()


@pytest.mark.parametrize("dataset", DATASETS)
def test_dataset_knows_only_the_library(dataset: str) -> None:
    others = {*DATASETS, *NOT_IMPORTABLE} - {dataset}
    names = {name for path in (REPOSITORY / dataset).rglob("*.py") for name in imports(path)}
    assert {name for name in names if root(name) in others} == set()


def test_scripts_do_not_know_each_other_or_the_tests() -> None:
    scripts = [*(REPOSITORY / "scripts").glob("*.py")]
    below = {*NOT_IMPORTABLE, *(path.stem for path in scripts if path.stem[0] != "_")}
    names = {name for path in scripts for name in imports(path)}
    assert {name for name in names if root(name) in below} == set()


def test_heavy_imports_stay_in_their_modules() -> None:
    files = {**library_modules(), LIBRARY / "__init__.py": "feda4fair"}
    files |= {path: name for name in DATASETS for path in (REPOSITORY / name).rglob("*.py")}
    wrong = [
        f"{module} imports {name}"
        for path, module in files.items()
        for name in imports(path)
        if module not in HEAVY.get(root(name), {module})
    ]
    assert wrong == []


def test_every_import_is_a_declared_dependency() -> None:
    project = pyproject()["project"]
    core = {canonicalize_name(Requirement(text).name) for text in project["dependencies"]}
    extras = project["optional-dependencies"].values()
    heavy = {canonicalize_name(Requirement(text).name) for extra in extras for text in extra}
    distributions = metadata.packages_distributions()
    known = {*sys.stdlib_module_names, "feda4fair", *DATASETS, *HEAVY}
    folders = (LIBRARY, *(REPOSITORY / name for name in (*DATASETS, "scripts")))
    wrong = set()
    for path in (path for folder in folders for path in folder.rglob("*.py")):
        declared = {*core, *heavy} if path.parent.name == "scripts" else core
        for name in imports(path):
            module = root(name)
            if module not in known and not module.startswith("_"):
                sources = {canonicalize_name(each) for each in distributions.get(module, [module])}
                if sources.isdisjoint(declared):
                    wrong.add(f"{path.relative_to(REPOSITORY)} imports {module}")
    assert wrong == set()


def test_importing_the_library_is_light(installed: Path) -> None:
    program = "import feda4fair, json, sys; print(json.dumps(sorted(sys.modules)))"
    loaded = set(json.loads(run(*python_with(installed), program, cwd=installed)))
    assert loaded.isdisjoint({*HEAVY, "datasets", "folktables", "huggingface_hub", "sklearn"})


# Packaging: built from a copy, since a build leaves its own folders beside its sources


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("house") / "source"
    for path in project_files():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((REPOSITORY / path).read_bytes())
    return folder


def build(kind: str, source: Path) -> Path:
    """Unpack what setuptools builds, "wheel" or "editable", into a folder; return the folder."""
    output = source.parent / kind
    output.mkdir()
    program = f"from setuptools import build_meta; build_meta.build_{kind}({str(output)!r})"
    run(sys.executable, "-W", "ignore", "-c", program, cwd=source)
    (wheel,) = output.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(output / "site")
    return output / "site"


@pytest.fixture(scope="module")
def wheel(source: Path) -> Path:
    return build("wheel", source)


@pytest.fixture(scope="module")
def editable(source: Path) -> Path:
    return build("editable", source)


@pytest.fixture(params=["wheel", "editable"])
def installed(request: pytest.FixtureRequest) -> Path:
    folder: Path = request.getfixturevalue(request.param)
    return folder


def python_with(site: Path) -> list[str]:
    """Return a Python command line that sees an unpacked installation, and of this one only the
    dependencies: its .pth files, and with them its own feda4fair, are not read.
    """
    program = (
        f"import site, sys; site.addsitedir({str(site)!r});"
        f"sys.path.append({sysconfig.get_path('purelib')!r});"
        "exec(sys.argv.pop(1))"
    )
    return [sys.executable, "-S", "-c", program]


def test_wheel_holds_the_four_packages_and_nothing_else(wheel: Path) -> None:
    names = {path.name for path in wheel.iterdir()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"feda4fair", *DATASETS}
    assert len(names) == 5


def test_wheel_holds_every_file_of_the_packages(wheel: Path) -> None:
    places = {"shared/feda4fair": "feda4fair", "cards": "feda4fair/cards"}
    places |= {name: name for name in DATASETS}
    missing = [
        path
        for path in project_files()
        for folder, package in places.items()
        if path.is_relative_to(folder)
        and not (wheel / package / path.relative_to(folder)).is_file()
    ]
    assert missing == []


def test_wheel_carries_its_license(wheel: Path) -> None:
    (license_file,) = wheel.glob("*.dist-info/licenses/LICENSE")
    assert "Apache License" in license_file.read_text(encoding="utf-8")


def test_installed_packages_come_from_the_installation(installed: Path, source: Path) -> None:
    program = (
        "import importlib.util, json;"
        f"names = ['feda4fair', 'feda4fair.cards', *{DATASETS!r}];"
        "print(json.dumps([importlib.util.find_spec(name).origin for name in names]))"
    )
    home = source if installed.parent.name == "editable" else installed
    origins = json.loads(run(*python_with(installed), program, cwd=installed.parent))
    assert all(Path(origin).is_relative_to(home) for origin in origins)


@pytest.mark.parametrize("name", NOT_IMPORTABLE)
def test_folders_do_not_become_importable(name: str, installed: Path, source: Path) -> None:
    program = (
        "import importlib.util, json;"
        f"spec = importlib.util.find_spec({name!r});"
        "print(json.dumps(spec and [spec.origin, *(spec.submodule_search_locations or [])]))"
    )
    places = json.loads(run(*python_with(installed), program, cwd=installed.parent)) or []
    ours = [place for place in places if place and Path(place).is_relative_to(source.parent)]
    assert ours == []


def test_packages_are_mapped_completely() -> None:
    packages = pyproject()["tool"]["setuptools"]["packages"]
    folders = {path.parent for path in LIBRARY.rglob("__init__.py")}
    library = {".".join(["feda4fair", *folder.relative_to(LIBRARY).parts]) for folder in folders}
    assert sorted(packages) == sorted({*library, "feda4fair.cards", *DATASETS})


# Version and pins


def test_version_is_one(wheel: Path) -> None:
    (facts,) = wheel.glob("*.dist-info/METADATA")
    (version,) = re.findall(r"^Version: (.+)$", facts.read_text(encoding="utf-8"), re.M)
    citation = (REPOSITORY / "CITATION.cff").read_text(encoding="utf-8")
    init = (LIBRARY / "__init__.py").read_text(encoding="utf-8")
    assert f'__version__ = "{version}"' in init
    assert f"\nversion: {version}\n" in citation


def test_changelog_has_both_headings_in_every_release() -> None:
    text = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    releases = re.split(r"^## ", text, flags=re.M)[1:]
    assert releases
    assert all("### Library" in each and "### Datasets" in each for each in releases)


def pins(path: Path) -> dict[str, str]:
    lines = (line for line in path.read_text().splitlines() if not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in (ln.split("==") for ln in lines)}


@pytest.mark.parametrize(
    "constraints",
    ["constraints.txt", ".ci/constraints-datasets3.txt", ".ci/constraints-datasets5.txt"],
)
def test_every_direct_dependency_is_pinned_within_its_range(constraints: str) -> None:
    project = pyproject()["project"]
    wanted = [*map(Requirement, project["dependencies"])]
    if constraints == "constraints.txt":
        extras = project["optional-dependencies"].values()
        wanted += [Requirement(text) for extra in extras for text in extra]
    pinned = pins(REPOSITORY / constraints)
    wrong = [
        str(each)
        for each in wanted
        if each.name != "feda4fair"
        and not each.specifier.contains(pinned.get(canonicalize_name(each.name), "0.dev0"))
    ]
    assert wrong == []


def test_ci_and_contributing_call_targets_that_exist() -> None:
    read = {
        name: (REPOSITORY / name).read_text(encoding="utf-8")
        for name in ("Makefile", ".ci/run", ".github/workflows/ci.yml", "CONTRIBUTING.md")
    }
    targets = set(re.findall(r"^([a-z-]+):", read.pop("Makefile"), re.M))
    called = {name: set(re.findall(r"\bmake ([a-z-]+)", text)) for name, text in read.items()}
    assert all(called.values())
    assert all(names <= targets for names in called.values())


# The guards of the tests


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_sockets_beyond_loopback_raise(kind: socket.SocketKind) -> None:
    with (
        socket.socket(socket.AF_INET, kind) as client,
        pytest.raises(RuntimeError, match="loopback only"),
    ):
        client.connect(("192.0.2.1", 9))


def test_datagrams_beyond_loopback_raise() -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client,
        pytest.raises(RuntimeError, match="loopback only"),
    ):
        client.sendto(b"", ("192.0.2.1", 9))


def test_names_beyond_loopback_are_not_looked_up() -> None:
    with pytest.raises(RuntimeError, match="loopback only"):
        socket.getaddrinfo("huggingface.co", 443)


def test_loopback_is_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("localhost", port)) as client:
            client.sendall(b"x")
            connection, _ = server.accept()
            with connection:
                assert connection.recv(1) == b"x"


@pytest.mark.parametrize("move", [random.random, np.random.random])
def test_moved_random_state_is_noticed(move: Any, request: pytest.FixtureRequest) -> None:
    plugins = request.config.pluginmanager.get_plugins()
    (conftest,) = (each for each in plugins if hasattr(each, "global_random_state"))
    kept = random.getstate(), np.random.get_state()  # noqa: NPY002 - put back below
    before = conftest.global_random_state()
    assert conftest.global_random_state() == before
    move()
    after = conftest.global_random_state()
    random.setstate(kept[0])
    np.random.set_state(kept[1])  # noqa: NPY002 - leaves no trace
    assert after != before
    assert conftest.global_random_state() == before
