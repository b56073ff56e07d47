"""Small built folders, and one warm program that publishes them in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pytest

from feda4fair import shards
from feda4fair.build import build
from feda4fair.dataset import Dataset
from feda4fair_acs import DATASET as ACS

REPOSITORY = Path(__file__).resolve().parent.parent
DEVICES, SILOS = ("AK_0", "AL_0", "TX_0"), ("VT", "WY")


def small_release(
    folder: Path,
    configs: Sequence[str] = ("value-device",),
    *,
    dataset: Dataset = ACS,
    version: str = "1.0.0",
    seed: int = 0,
    shard_bytes: int | None = None,
    form: Literal["full", "index"] = "full",
) -> Path:
    """Build some clients of a sample; another seed gives other rows."""
    recipes = [
        replace(recipe, seed=recipe.seed + seed, sampler="keyed") if seed else recipe
        for recipe in dataset.choose(list(configs))
    ]
    devices = all(name.endswith("-device") for name in configs)
    clients = (DEVICES if devices else SILOS) if dataset is ACS else ("c00", "c01")
    source = dataset.open_source(
        None, recipes=recipes, clients=clients, sample=True, allow_missing=False
    )
    with pytest.MonkeyPatch.context() as patch:
        if shard_bytes is not None:
            patch.setattr(shards, "SHARD_BYTES", shard_bytes)
        build(
            replace(dataset, version=version), recipes, source, folder, clients=clients, form=form
        )
    return folder


WARM = """
import json, os, sys, traceback
sys.path.insert(0, {scripts!r})
import datasets, publish, verify
from _command import run
from feda4fair.client import load_client

def child(task):
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(task[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    os.environ.update(task["env"])
    os.chdir(task["cwd"])
    sys.argv = task["argv"]
    if task["file_bytes"]:
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (task["file_bytes"], resource.RLIM_INFINITY))
    if task["argv"][0] == "-c":
        exec(task["argv"][1], {{"load_client": load_client, "datasets": datasets}})
        return 0
    return run({{"publish": publish, "verify": verify}}[task["argv"][0]].main)

for line in sys.stdin:
    task = json.loads(line)
    if "wait" in task:
        print(os.waitstatus_to_exitcode(os.waitpid(task["wait"], 0)[1]), flush=True)
        continue
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            code = child(task)
        except SystemExit as end:
            code = end.code
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    print(pid, flush=True)
"""


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


@dataclass
class Running:
    pid: int
    warm: Warm
    files: tuple[Path, Path]

    def wait(self) -> Ended:
        code = int(self.warm.ask({"wait": self.pid}))
        return Ended(code, *(path.read_text() for path in self.files))


class Warm:
    """A program that has imported everything and forks for each command.

    A command is a process of its own, which can be killed, and reads endpoint and cache from its
    environment as any other; only the seconds of importing are saved.
    """

    def __init__(
        self, environment: dict[str, str], folder: Path, python: str = sys.executable
    ) -> None:
        self.folder, self.count = folder, 0
        self.process = subprocess.Popen(
            [python, "-c", WARM.format(scripts=str(REPOSITORY / "scripts"))],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, task: dict[str, Any]) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(task), file=self.process.stdin, flush=True)
        return self.process.stdout.readline()

    def start(
        self, *argv: str | Path, file_bytes: int = 0, cwd: Path | None = None, **env: str
    ) -> Running:
        self.count += 1
        out, err = (self.folder / f"{self.count}.{kind}" for kind in ("out", "err"))
        task = {
            "argv": [str(each) for each in argv],
            "env": env,
            "cwd": str(cwd or self.folder),
            "out": str(out),
            "err": str(err),
            "file_bytes": file_bytes,
        }
        return Running(int(self.ask(task)), self, (out, err))

    def run(self, *argv: str | Path, **how: Any) -> Ended:
        return self.start(*argv, **how).wait()

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()
