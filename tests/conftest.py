"""Shared fixtures: real inputs where they lie beside the repository, and a closed network."""

from __future__ import annotations

import os
import pickle
import random
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

REPOSITORY = Path(__file__).resolve().parent.parent
GOLDEN = REPOSITORY / "tests" / "golden"

# Hugging Face libraries read these when they are imported. Tests and the programs they start keep
# away from the caches, the token and the statistics of whoever runs them.
if "PYTEST_XDIST_WORKER" not in os.environ:
    HUB_HOME = tempfile.TemporaryDirectory(prefix="feda4fair-tests-", ignore_cleanup_errors=True)
    os.environ["HF_HOME"] = HUB_HOME.name
for inherited in (
    *("HF_TOKEN", "HF_TOKEN_PATH", "HUGGING_FACE_HUB_TOKEN", "HF_ENDPOINT"),
    *("HF_DATASETS_CACHE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_MODULES_CACHE"),
):
    os.environ.pop(inherited, None)
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["HF_UPDATE_DOWNLOAD_COUNTS"] = "0"

# A busy machine is slow, not wrong: examples have no deadline. CI tries the same ones every time.
settings.register_profile(
    "patient", deadline=None, max_examples=40, derandomize="CI" in os.environ
)
settings.load_profile("patient")


class NetworkBlockedError(RuntimeError):
    """A test reached beyond loopback; not an OSError, which a client might take for an outage."""


def is_loopback(host: object) -> bool:
    if isinstance(host, bytes):
        host = host.decode()
    if host in (None, "", "localhost"):
        return True
    try:
        return ip_address(str(host).partition("%")[0]).is_loopback
    except ValueError:
        return False


def block_network(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse what leaves the machine: an audit hook also sees what no monkeypatch can reach."""
    if not event.startswith("socket."):
        return
    match event.removeprefix("socket."):
        case "connect" | "sendto" | "sendmsg":
            internet = arguments[0].family in (socket.AF_INET, socket.AF_INET6)
            host = arguments[1][0] if internet and arguments[1] is not None else None
        case "getaddrinfo" | "gethostbyname" | "gethostbyaddr":
            host = arguments[0]
        case _:
            return
    if not is_loopback(host):
        raise NetworkBlockedError(f"{event} to {host!r}: tests reach loopback only.")


sys.addaudithook(block_network)


def shared_folder() -> Path:
    """Return the folder of internal test inputs, whether or not it exists."""
    return Path(os.environ.get("FEDA4FAIR_SHARED", REPOSITORY.parent / "shared"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    folder = shared_folder() / "data"
    if not folder.is_dir():
        pytest.skip(f"real inputs not found at {folder}; set FEDA4FAIR_SHARED to their folder")
    return folder


@pytest.fixture(scope="session")
def shared_tools(shared_data: Path) -> Path:
    return shared_data.parent / "tools"


@pytest.fixture
def untouched_random() -> Iterator[None]:
    """Fail the test that moves the global random state of ``random`` or NumPy."""
    before = global_random_state()
    yield
    assert global_random_state() == before, "the global random state was moved"


def global_random_state() -> bytes:
    return pickle.dumps((random.getstate(), np.random.get_state()))  # noqa: NPY002 - only read


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """Compare a text with a file of tests/golden; `make golden` writes the files anew."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if os.environ.get("FEDA4FAIR_GOLDEN") == "write":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
        assert path.is_file(), f"{path} does not exist; `make golden` writes it"
        assert text == path.read_text(encoding="utf-8"), f"{name} differs; see `make golden`"

    return compare
