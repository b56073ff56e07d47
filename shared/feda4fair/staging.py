"""A folder that appears complete or not at all."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

from filelock import FileLock, Timeout
from tqdm import tqdm

from feda4fair.errors import Feda4FairError, OutputError
from feda4fair.manifest import MANIFEST, read_manifest
from feda4fair.tables import is_url

__all__ = ["staging"]


@contextmanager
def staging(out: Path | str, *, overwrite: bool) -> Iterator[Path]:
    """Give a folder that becomes ``out`` at the end, or vanishes.

    Parameters
    ----------
    out : Path or str
        A folder, or the URL of one that ``fsspec`` can write, such as ``s3://bucket/name``. Files
        go there one by one, the manifest last; without it a folder is no build.
    overwrite : bool
        Replace an earlier build there.

    Raises
    ------
    OutputError
        If something else is there, or it cannot be written.
    """
    where = _remote(str(out), overwrite=overwrite) if is_url(out) else _local(Path(out), overwrite)
    with where as folder:
        yield folder


@contextmanager
def _remote(url: str, *, overwrite: bool) -> Iterator[Path]:
    """Give a temporary folder and upload it at the end."""
    import fsspec

    if url.startswith("hf://"):
        raise OutputError(
            f"{url}: a release to the Hub is one commit; build into a folder and use publish.py."
        )
    try:
        system, path = fsspec.url_to_fs(url)
        there = sorted(system.find(path))
        if there and f"{path.rstrip('/')}/{MANIFEST}" not in there:
            raise OutputError(f"{url}: holds files but no {MANIFEST}; name another place.")
        if there and not overwrite:
            raise OutputError(f"{url}: holds a build; replace it with --overwrite.")
        with TemporaryDirectory(prefix="feda4fair-build-") as place:
            folder = Path(place) / "build"
            folder.mkdir()
            yield folder
            _upload(system, folder, path.rstrip("/"), there)
    except (OSError, ImportError, ValueError) as error:
        if isinstance(error, Feda4FairError):
            raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise OutputError(
            f"{url}: cannot be written ({reason}); check address and access and build again."
        ) from None


def _upload(system: Any, folder: Path, path: str, there: Sequence[str]) -> None:
    """Put all files in place; as long as some are missing there is no manifest."""
    names = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    names.sort(key=lambda name: name == MANIFEST)
    if there:
        system.rm_file(f"{path}/{MANIFEST}")
    for name in tqdm(names, "uploading", disable=None):
        system.makedirs(f"{path}/{name}".rpartition("/")[0], exist_ok=True)
        system.put_file(str(folder / name), f"{path}/{name}")
    for old in set(there) - {f"{path}/{name}" for name in names}:
        system.rm_file(old)


@contextmanager
def _local(out: Path, overwrite: bool) -> Iterator[Path]:
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
