"""Download a file: verified, resumed or restarted, and whole or not there.

A file appears under its own name only after its length, its first bytes and, where known, its
size and SHA-256 have been checked. Until then it is ``<name>.part``; beside it ``<name>.part.tag``
holds the server's name of that version, so that a later run may go on where this one stopped.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from filelock import FileLock
from tqdm import tqdm

from feda4fair.errors import SourceError

if TYPE_CHECKING:  # loads slowly, and most runs download nothing
    import requests

__all__ = ["Remote", "cache_folder", "fetch", "web_page"]

_LOG = logging.getLogger(__name__)
_BLOCK: Final = 1 << 16
_LONGEST_PAUSE: Final = 120.0
_PASSING: Final = frozenset({408, 425, 429, 500, 502, 503, 504, 507, 509, 520, 522, 524})
_MAGIC: Final = {".zip": b"PK\x03\x04", ".gz": b"\x1f\x8b", ".parquet": b"PAR1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """One file on a server.

    Attributes
    ----------
    url : str
        Where it is. Its query string never appears in a message.
    filename : str
        Its name on disk, without a folder.
    bytes : int or None
        Its size, if known.
    sha256 : str or None
        Its SHA-256 in hexadecimal digits, if known.
    """

    url: str
    filename: str
    bytes: int | None = None
    sha256: str | None = None


class _PassingError(Exception):
    """A failure that may not last, with the pause that the server asked for."""

    def __init__(self, reason: str, *, pause: float | None = None) -> None:
        super().__init__(reason)
        self.pause = pause


def cache_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """Return the cache folder: the argument, ``FEDA4FAIR_CACHE``, or the user's cache folder.

    Examples
    --------
    >>> cache_folder("there").as_posix()
    'there'
    """
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    chosen = folder or os.environ.get("FEDA4FAIR_CACHE") or Path(home) / "feda4fair"
    return Path(chosen).expanduser()


def web_page(start: bytes) -> bool:
    """Return whether the first bytes of a file are those of an HTML page.

    Examples
    --------
    >>> web_page(b" <!DOCTYPE html><html>"), web_page(b"PK")
    (True, False)
    """
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    return text.startswith((b"<!doctype", b"<html", b"<head", b"<body", b"<?xml"))


def fetch(
    remote: Remote,
    folder: Path,
    *,
    attempts: int = 5,
    timeout: float = 30.0,
    backoff: float = 1.0,
) -> Path:
    """Return the path of a verified file in a folder, downloading it if it is not there.

    Parameters
    ----------
    remote : Remote
        The file.
    folder : Path
        Where it goes; made if missing.
    attempts : int
        How often to try when the server is busy, silent, or drops the connection.
    timeout : float
        Seconds to wait for a connection, and for each further piece.
    backoff : float
        Seconds before the second attempt; doubled before each further one, unless the server
        names a time (``Retry-After``). No pause is longer than two minutes.

    Returns
    -------
    Path
        ``folder / remote.filename``.

    Raises
    ------
    SourceError
        The file cannot be had, or is not the one expected; nothing is left under its name.

    Notes
    -----
    Uses ``requests``, so proxies and ``REQUESTS_CA_BUNDLE`` are those of the environment.
    Two processes that want the same file download it once: the second waits.
    """
    target = folder / remote.filename
    if _verified(remote, target):
        return target
    with _writing(remote, folder):
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f".{remote.filename}.lock"):
            if not _verified(remote, target):
                _download(remote, target, attempts=attempts, timeout=timeout, backoff=backoff)
    return target


def _download(
    remote: Remote, target: Path, *, attempts: int, timeout: float, backoff: float
) -> None:
    part = Path(f"{target}.part")
    for attempt in range(1, attempts + 1):
        try:
            resumed = _receive(remote, part, timeout=timeout)
            if problem := _problem(remote, part):
                _discard(part)
                if resumed:
                    raise _PassingError(f"the resumed file {problem}")
                raise SourceError(f"{_shown(remote)} {problem}; {_by_hand(target)}")
            part.replace(target)
            _tag(part).unlink(missing_ok=True)
            return
        except _PassingError as failure:
            if attempt == attempts:
                raise SourceError(
                    f"{_shown(remote)} could not be downloaded in {attempts} attempts "
                    f"({failure}); {_by_hand(target)}"
                ) from None
            pause = backoff * 2 ** (attempt - 1) if failure.pause is None else failure.pause
            pause = min(pause, _LONGEST_PAUSE)
            _LOG.info("%s: %s; trying again in %.0f s", remote.filename, failure, pause)
            time.sleep(pause)


def _receive(remote: Remote, part: Path, *, timeout: float) -> bool:
    """Write the file to ``part``; return whether it went on from an earlier, equal version."""
    start, headers = _resume_point(part)
    with _answer(remote, headers, timeout) as response:
        if response.status_code == 416:
            _discard(part)
            raise _PassingError("the server cannot resume")
        _check_status(remote, response, part)
        resumed = response.status_code == 206 and _range_start(response) == start
        if response.status_code == 206 and not resumed:
            _discard(part)
            raise _PassingError("the server resumed at another place")
        start = start if resumed else 0
        length = response.headers.get("Content-Length")
        plain = response.headers.get("Content-Encoding", "identity") == "identity"
        total = start + int(length) if length and length.isdigit() and plain else None
        if not resumed:
            _remember_version(part, response)
        with (
            part.open("ab" if resumed else "wb") as file,
            tqdm(
                desc=remote.filename,
                total=total,
                initial=start,
                unit="B",
                unit_scale=True,
                disable=None,
            ) as bar,
        ):
            for block in response.iter_content(_BLOCK):
                file.write(block)
                bar.update(len(block))
    received = part.stat().st_size
    if total is not None and received != total:
        raise _PassingError(f"the connection ended after {received} of {total} bytes")
    return resumed


@contextmanager
def _answer(
    remote: Remote, headers: dict[str, str], timeout: float
) -> Iterator[requests.Response]:
    """Send the request; turn every failure into one that may pass or into a sentence."""
    import requests

    try:
        with requests.get(
            remote.url,
            headers={"Accept-Encoding": "identity", **headers},
            stream=True,
            timeout=timeout,
        ) as response:
            yield response
    except requests.exceptions.SSLError:
        raise SourceError(
            f"{_shown(remote)} could not be downloaded because the server's certificate is not "
            "trusted here; set REQUESTS_CA_BUNDLE to your organization's certificates, or "
            "download the file by hand and pass --source."
        ) from None
    except requests.exceptions.Timeout:
        raise _PassingError(f"no answer within {timeout:g} s") from None
    except requests.exceptions.ConnectionError:
        raise _PassingError("no connection, or it was dropped") from None
    except requests.exceptions.ChunkedEncodingError:
        raise _PassingError("the connection was dropped") from None
    except requests.exceptions.RequestException as error:
        raise SourceError(
            f"{_shown(remote)} could not be downloaded ({type(error).__name__}); "
            "check its address."
        ) from None


def _check_status(remote: Remote, response: requests.Response, part: Path) -> None:
    status = response.status_code
    by_hand = _by_hand(part.with_suffix(""))
    if status in _PASSING or status >= 500:
        raise _PassingError(f"the server answered {status}", pause=_retry_after(response))
    if status not in (200, 206):
        raise SourceError(
            f"{_shown(remote)} could not be downloaded, the server answered {status} "
            f"{response.reason or ''}".rstrip()
            + f"; {by_hand}"
        )
    media = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if media == "text/html" and not remote.filename.endswith((".html", ".htm")):
        raise SourceError(f"{_shown(remote)} is a web page instead of the file; {by_hand}")


def _retry_after(response: requests.Response) -> float | None:
    """Return the seconds of ``Retry-After``, given as a number or as a date."""
    value = response.headers.get("Retry-After", "").strip()
    if value.isdigit():
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def _tag(part: Path) -> Path:
    return Path(f"{part}.tag")


def _discard(part: Path) -> None:
    part.unlink(missing_ok=True)
    _tag(part).unlink(missing_ok=True)


def _remember_version(part: Path, response: requests.Response) -> None:
    """Keep what lets a later request ask for the rest of the same version only."""
    version = response.headers.get("ETag", "")
    if not version or version.startswith("W/"):
        version = response.headers.get("Last-Modified", "")
    if version:
        _tag(part).write_text(version, encoding="latin-1")
    else:
        _tag(part).unlink(missing_ok=True)


def _resume_point(part: Path) -> tuple[int, dict[str, str]]:
    """Return how many bytes are there, and the headers that ask for the rest."""
    try:
        version = _tag(part).read_text(encoding="latin-1").strip()
        start = part.stat().st_size
    except FileNotFoundError:
        return 0, {}
    if not start or not version:
        return 0, {}
    return start, {"Range": f"bytes={start}-", "If-Range": version}


def _range_start(response: requests.Response) -> int | None:
    """Return the first position of ``Content-Range: bytes 5-9/10``."""
    unit, _, span = response.headers.get("Content-Range", "").partition(" ")
    first = span.partition("-")[0]
    return int(first) if unit == "bytes" and first.isdigit() else None


def _verified(remote: Remote, path: Path) -> bool:
    return path.is_file() and _problem(remote, path) is None


def _problem(remote: Remote, path: Path) -> str | None:
    """Say what is wrong with a complete file, or nothing."""
    size = path.stat().st_size
    if remote.bytes is not None and size != remote.bytes:
        return f"has {size} bytes, expected {remote.bytes}"
    with path.open("rb") as file:
        start = file.read(512)
        if not start:
            return "is empty (0 bytes)"
        magic = _MAGIC.get(Path(remote.filename).suffix)
        if web_page(start) and not remote.filename.endswith((".html", ".htm", ".xml")):
            return "is a web page instead of the file"
        if magic and not start.startswith(magic):
            return f"does not begin as a {Path(remote.filename).suffix} file does"
        if remote.sha256 is not None:
            file.seek(0)
            found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != remote.sha256:
                return f"has SHA-256 {found}, expected {remote.sha256}"
    return None


@contextmanager
def _writing(remote: Remote, folder: Path) -> Iterator[None]:
    """Turn a failure of the disk into one sentence, and leave nothing half written."""
    try:
        yield
    except OSError as error:
        with suppress(OSError):
            _discard(folder / f"{remote.filename}.part")
        raise SourceError(
            f"{remote.filename} could not be written to {folder} ({error.strerror or error}); "
            "free some space there, or set FEDA4FAIR_CACHE to another folder."
        ) from error


def _shown(remote: Remote) -> str:
    """Name a file and its server, without user, port or query."""
    return f"{remote.filename} from {urlsplit(remote.url).hostname or 'an unknown server'}"


def _by_hand(target: Path) -> str:
    return (
        f"put {target.name} into {target.parent} by hand, "
        "or pass --source with a folder that holds it."
    )
