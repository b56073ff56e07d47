"""Work for the tests of engines, which other processes import."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pyarrow as pa

from feda4fair.errors import RecipeError


def read(part: int) -> int:
    return 10 * part


def work(part: int, content: int) -> tuple[int, int, int]:
    return part, content, pa.cpu_count()


def fail(part: int, content: int) -> int:
    if part == 2:
        raise RecipeError(f"part {part} is wrong.")
    return content


def die(folder: Path, part: int, content: int) -> int:
    """Kill this process at part 2, the first time."""
    mark = folder / "died"
    if part == 2 and not mark.exists():
        mark.write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)
    return content
