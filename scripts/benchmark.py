"""Measure feda4fair against what a user would use instead, side by side on this machine.

Every line runs both sides in turn (A B A B) in processes of their own, checks that the results are
equal before any time is printed, and gives ratios of medians. Nothing here is a pass or a fail.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median

from _command import run
from _rivals import YEAR
from _scale import Point, draw, sizes
from feda4fair_acs.schema import STATES

SCRIPTS = Path(__file__).resolve().parent
QUICK = ["WY", "VT", "ND", "SD", "DE"]
EXAMPLES = """examples:
  benchmark.py --quick                 small files, one round: does it run?
  benchmark.py                         the table of the documentation
  benchmark.py --only four              one line
  benchmark.py --scale 1e7 --plot scale.png   cost against size, up to ten million rows
"""


@dataclass(frozen=True)
class Cost:
    """What a process took: CPU and wall seconds, peak memory in MB."""

    cpu: float
    wall: float
    memory: float


def measure(command: Sequence[str], environment: dict[str, str]) -> tuple[Cost, str]:
    """Run a command to its end and return what it took and its last line of output."""
    with tempfile.TemporaryFile() as output:
        start = os.times().elapsed
        process = subprocess.Popen(
            command, stdout=output, env=environment, cwd=tempfile.gettempdir()
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = os.times().elapsed - start
        output.seek(0)
        lines = output.read().decode().splitlines()
    if process.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {process.returncode}")
    return Cost(usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / 1024), lines[-1]


@dataclass(frozen=True)
class Line:
    """One line of the table: two commands that must print the same last line."""

    name: str
    against: str
    goal: str
    ours: Callable[[], list[str]]
    theirs: Callable[[], list[str]]


def compare(line: Line, rounds: int) -> str:
    """Measure one line and return its row of the Markdown table."""
    ours, theirs = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            cost, seen = measure(line.ours(), environment(Path(cache)))
            rival, expected = measure(line.theirs(), environment(Path(cache)))
        if seen != expected:
            raise SystemExit(f"{line.name}: the results differ: {seen!r} and {expected!r}")
        ours.append(cost)
        theirs.append(rival)

    def figure(attribute: str) -> str:
        a = median(getattr(cost, attribute) for cost in ours)
        b = median(getattr(cost, attribute) for cost in theirs)
        return f"{a:.2f} / {b:.2f} = **{b / a:.1f}x**"

    return (
        f"| {line.name} | {line.against} | {figure('cpu')} | {figure('wall')} | "
        f"{figure('memory')} | {line.goal} |"
    )


@dataclass(frozen=True)
class Bench:
    """Inputs of all lines, and a new output folder for every run."""

    folder: Path
    states: list[str]

    def command(self, side: str, configs: str) -> list[str]:
        """Return the command of one side."""
        out = tempfile.mkdtemp(prefix=f"{side}-", dir=self.folder)
        script = str(SCRIPTS / "_rivals.py")
        source = str(self.folder / "source")
        return [sys.executable, script, side, source, f"{out}/out", configs, *self.states]

    def line(self, name: str, against: str, goal: str, configs: str) -> Line:
        """Return a line that builds configs from cold, against folktables."""
        return Line(
            name,
            against,
            goal,
            lambda: self.command("ours", configs),
            lambda: self.command("folktables", configs),
        )


@dataclass(frozen=True)
class Timing:
    """One line measured within a process: its arguments, and how its figures read."""

    name: str
    against: str
    goal: str
    arguments: tuple[str, ...]

    def row(self, cache: Path) -> str:
        """Measure it and return its row of the Markdown table."""
        command = [sys.executable, str(SCRIPTS / "_timings.py"), *self.arguments]
        _, seen = measure(command, environment(cache))
        ours, theirs = map(float, seen.split())
        figure = f"{ours:.3g} / {theirs:.3g} = **{theirs / ours:.3g}x**"
        return f"| {self.name} | {self.against} | | {figure} | | {self.goal} |"


def timings(bench: Bench, *, quick: bool) -> list[Timing]:
    """Return the lines that are measured within a process."""
    rows, rounds = ("50000", "1") if quick else ("1600000", "3")
    small = ("20000", "1") if quick else ("200000", "1")
    many = "51" if quick else "306"
    pictures = ("200", "1") if quick else ("4000", "3")
    out = tempfile.mkdtemp(prefix="rebuild-", dir=bench.folder)
    where = (str(bench.folder / "source"), out, str(YEAR), *bench.states)
    per_client = "fairlearn MetricFrame per client"
    return [
        Timing(
            "rebuild one config from the cache",
            "writing its Parquet alone",
            "at least 0.5x",
            ("rebuild", *where),
        ),
        Timing("inject, 51 clients", "pandas per client", "30x", ("inject", rows, rounds)),
        Timing(
            "load one client of 150, first time",
            "load_dataset, filter",
            "20x",
            ("client", "first", rows, rounds),
        ),
        Timing(
            "load one client of 150, again",
            "load_dataset from its cache, filter",
            "",
            ("client", "again", rows, rounds),
        ),
        *(
            Timing(
                f"partition {many} clients ({kind}), {int(rows):,} rows, first client",
                f"flwr-datasets, {kind}",
                "50x",
                ("partition", kind, many, rows, rounds),
            )
            for kind in ("natural", "dirichlet")
        ),
        Timing(f"DD and EOD, {many} clients", per_client, "500x", ("fairness", many, *small)),
        Timing(
            "package JPEGs of CelebA's size", "decode, encode again", "8x", ("images", *pictures)
        ),
    ]


ONE = "attribute-silo"
FOUR = "attribute-silo,value-silo,attribute-device,value-device"


def environment(cache: Path) -> dict[str, str]:
    """Return what both sides see: an empty cache, compiled modules, one thread for BLAS."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    own = {"FEDA4FAIR_CACHE": str(cache), "HF_HOME": str(cache / "hub"), "OMP_NUM_THREADS": "1"}
    return kept | own


def sweep(largest: int, plot: Path | None) -> None:
    """Build made-up sources of growing size and print what each cost."""
    points: list[Point] = []
    print("| rows | clients | CPU s | wall s | memory MB | rows a CPU second |")
    print("|---:|---:|---:|---:|---:|---:|")
    for rows, clients in sizes(largest):
        with tempfile.TemporaryDirectory(prefix="feda4fair-scale-") as place:
            folder = Path(place)
            own = environment(folder / "cache")
            make = [sys.executable, str(SCRIPTS / "_scale.py"), place, str(rows), str(clients)]
            subprocess.run(make, env=own, check=True)
            build = [sys.executable, str(SCRIPTS / "build.py"), "--out", f"{place}/out"]
            build += ["--recipe", f"{place}/recipe.json", "--source", f"{place}/rows.parquet"]
            cost, _ = measure(build, own)
        points.append((rows, clients, cost.cpu, cost.wall, cost.memory))
        print(
            f"| {rows:,} | {clients:,} | {cost.cpu:.1f} | {cost.wall:.1f} | {cost.memory:,.0f} | "
            f"{rows / cost.cpu:,.0f} |",
            flush=True,
        )
    if plot is not None:
        draw(points, plot)


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="benchmark.py",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="small inputs, one round")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of A B (default 3)")
    parser.add_argument("--only", metavar="TEXT", default="", help="lines whose name holds TEXT")
    parser.add_argument(
        "--scale", type=float, metavar="ROWS", help="sweep sizes up to so many rows instead"
    )
    parser.add_argument("--plot", type=Path, metavar="PNG", help="draw the sweep")
    args = parser.parse_args(argv)
    if args.scale:
        sweep(int(args.scale), args.plot)
        return
    states = QUICK if args.quick else list(STATES)
    rounds = 1 if args.quick else args.rounds
    with tempfile.TemporaryDirectory(prefix="feda4fair-benchmark-") as folder:
        bench = Bench(Path(folder), states)
        # In a process of its own: what this one holds would count towards its children's peak.
        widen = [
            sys.executable,
            str(SCRIPTS / "_rivals.py"),
            "widen",
            str(bench.folder / "source"),
        ]
        copies = "2" if args.quick else "53"
        _, seen = measure([*widen, copies, *states], environment(bench.folder))
        size = int(seen)
        print(f"{size / 1e6:.0f} MB of CSV, 286 columns, {len(states)} states\n")
        print("| work | against | CPU s | wall s | memory MB | goal |\n|---|---|---|---|---|---|")
        against = "folktables, pandas per client, CSV"
        goal = "7x CPU, 9x wall, 3x memory"
        for line in (
            bench.line("build one config", against, goal, ONE),
            bench.line("build all four in one call", "four such runs", "20x CPU", FOUR),
        ):
            if args.only in line.name:
                print(compare(line, rounds), flush=True)
        for timing in timings(bench, quick=args.quick):
            if args.only in timing.name:
                print(timing.row(Path(folder) / "cache"), flush=True)
    packages = ("feda4fair", "folktables", "numpy", "pandas", "polars", "pyarrow")
    versions = {name: version(name) for name in packages}
    print(
        f"\nOurs / theirs = ratio, medians. Python {platform.python_version()}, "
        f"{os.cpu_count()} cores, {json.dumps(versions)}"
    )


if __name__ == "__main__":
    sys.exit(run(main))
