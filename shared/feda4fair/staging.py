"""A folder that appears complete or not at all."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from tempfile import gettempdir

from filelock import FileLock, Timeout

from feda4fair.errors import Feda4FairError, OutputError
from feda4fair.manifest import MANIFEST, read_manifest

__all__ = ["staging"]


@contextmanager
def staging(out: Path, *, overwrite: bool) -> Iterator[Path]:
    """Give a hidden folder that becomes ``out`` at the end, or vanishes.

    A lock keeps two builds of one folder apart; whoever holds it may clear what a killed build
    left behind.
    """
    try:
        out = out.resolve()
    except (ValueError, RuntimeError) as error:  # a NUL in it, links in a circle
        raise OutputError(f"{str(out)!r}: is no path ({error}); name another folder.") from None
    if not out.name:
        raise OutputError(f"{out}: is not a folder that can be replaced; name one below it.")
    made = [parent for parent in out.parents if not parent.exists()]
    lock = Path(gettempdir()) / f"feda4fair-{sha256(str(out).encode()).hexdigest()[:16]}.lock"
    try:
        with FileLock(lock, timeout=0):
            partial, old = (out.with_name(f".{out.name}.{kind}") for kind in ("partial", "old"))
            _clear(out, partial, old)
            _refuse(out, overwrite=overwrite)
            try:
                partial.mkdir(parents=True)
                yield partial
                _swap(partial, out, old)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
                _remove_empty(made)
    except Timeout:
        raise OutputError(f"{out}: another build is writing there; wait for it to end.") from None
    except OSError as error:
        if isinstance(error, Feda4FairError):
            raise
        reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or error
        raise OutputError(
            f"{out}: cannot be written ({reason}); free or name another place and build again, "
            "nothing was left behind."
        ) from None


def _remove_empty(folders: Sequence[Path]) -> None:
    """Remove the parents that a failed build made, the innermost first."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()


def _clear(out: Path, partial: Path, old: Path) -> None:
    """Undo what a killed build left: bring back the old folder or remove leftovers."""
    shutil.rmtree(partial, ignore_errors=True)
    if old.is_dir() and not out.exists():
        old.rename(out)
    shutil.rmtree(old, ignore_errors=True)


def _refuse(out: Path, *, overwrite: bool) -> None:
    if not out.exists():
        return
    if not out.is_dir():
        raise OutputError(f"{out}: is a file; name a folder.")
    if not any(out.iterdir()):
        return
    try:
        found = read_manifest(out)
    except OutputError:
        raise OutputError(
            f"{out}: holds files but no {MANIFEST} of ours, so it is not a build; name another "
            "folder, this one is never overwritten."
        ) from None
    known = {*found["files"], MANIFEST}
    foreign = sorted(
        name
        for path in out.rglob("*")
        if path.is_file() and (name := path.relative_to(out).as_posix()) not in known
    )
    if foreign:
        raise OutputError(
            f"{out}: holds {foreign[0]}, which no build wrote; move it away or name another "
            "folder."
        )
    if not overwrite:
        raise OutputError(
            f"{out}: holds a build of {found['dataset']} ({', '.join(found['configs'])}); replace "
            "it with --overwrite (overwrite=True in Python) or name another folder."
        )


def _swap(partial: Path, out: Path, old: Path) -> None:
    if out.exists() and any(out.iterdir()):
        out.rename(old)
    try:
        partial.replace(out)
    except OSError:
        if old.exists():
            old.rename(out)
        raise
    shutil.rmtree(old, ignore_errors=True)
