"""Write the pins anew: what pip resolves today for the project and for the other datasets majors.

Run it with the oldest supported Python, from the root of the repository: `make pins`. Nothing is
installed; pip only resolves.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

HEADER = "# Written by `make pins`. {what}\n"

# flwr's simulation extra pins this Ray; CI has this torch as a small CPU build.
CHOSEN = ["ray==2.55.1", "torch==2.13.0"]

# The majors that constraints.txt cannot hold at the same time.
OTHER_DATASETS = ["3.6.0", "5.2.0"]

# torch names its own accelerator packages exactly; they differ from platform to platform.
LEFT_TO_TORCH = ("cuda-", "nvidia-", "triton")


def resolve(*requirements: str) -> list[str]:
    """Return the sorted pins that pip chooses for requirements, the project itself left out."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed"]
    report = subprocess.run(
        [*command, "--quiet", "--report", "-", *requirements],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    metadata = [item["metadata"] for item in json.loads(report)["install"]]
    pins = {
        each["name"].lower().replace("_", "-"): each["version"].split("+")[0]
        for each in metadata
        if each["name"] != "feda4fair"
    }
    return [
        f"{name}=={version}"
        for name, version in sorted(pins.items())
        if not name.startswith(LEFT_TO_TORCH)
    ]


def main() -> None:
    """Resolve the three sets and write their files."""
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    extras = ",".join(project["optional-dependencies"])
    every_extra = [f".[{extras}]", *CHOSEN]
    plan = {
        "constraints.txt": ("Every dependency and extra, for releases and CI.", every_extra),
        **{
            f".ci/constraints-datasets{version[0]}.txt": (
                f"The core dependencies beside datasets {version[0]}, for `make compat`.",
                [".", f"datasets=={version}"],
            )
            for version in OTHER_DATASETS
        },
    }
    for name, (what, requirements) in plan.items():
        pins = resolve("pip", *requirements)
        Path(name).write_text(HEADER.format(what=what) + "\n".join(pins) + "\n")


if __name__ == "__main__":
    main()
