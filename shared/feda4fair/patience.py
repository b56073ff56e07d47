"""Calls to the Hub that fail for a while: which failures pass, how long to wait, when to stop."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeVar

from huggingface_hub import set_client_factory
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import _http

from feda4fair.errors import Feda4FairError, PublishError

__all__ = ["Patience", "is_status", "patient_client", "persist"]

T = TypeVar("T")

PASSING: Final = frozenset({408, 409, 412, 425, 429, 500, 502, 503, 504})
"""Statuses after which the same call may succeed."""

_TRANSPORT: Final[Any] = HfHubHTTPError.__mro__[1]
"""Root of the errors of the HTTP client, which differs between versions of the Hub's library."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to go on when the Hub does not do what it is asked.

    Parameters
    ----------
    timeout : float, default 60
        Seconds to wait for one answer.
    limit : float, default 180
        Seconds without any successful answer after which to stop.
    tries : int, default 6
        How often to try one step.
    wait : float, default 1
        Seconds before the second try; doubled for each further one, with up to a quarter more
        by chance so that two publishers fall out of step.
    """

    timeout: float = 60
    limit: float = 180
    tries: int = 6
    wait: float = 1

    @classmethod
    def within(cls, seconds: float) -> Patience:
        """Return the patience that stops ``seconds`` after the last success.

        Examples
        --------
        >>> Patience.within(180) == Patience()
        True
        """
        return cls(timeout=seconds / 3, limit=seconds, wait=seconds / 180)


@contextmanager
def patient_client(patience: Patience) -> Iterator[None]:
    """Give the Hub's library an HTTP client that never waits forever.

    The library's own client has no time limit and retries by itself; here every answer is due
    within ``patience.timeout``, and no request starts once ``patience.limit`` has passed since
    the first that failed after the last success. Time between requests, in which files may be
    sent by other means, does not count.
    """
    since: float | None = None

    def start(_request: Any) -> None:
        nonlocal since
        if since is None:
            since = time.monotonic()
        elif time.monotonic() - since > patience.limit:
            raise PublishError(
                f"the Hub: no request succeeded for {patience.limit:.0f} s; run the same command "
                "again later, what has arrived is not sent twice."
            )

    def end(response: Any) -> None:
        nonlocal since
        if response.status_code < 400:
            since = None

    factory = _http._GLOBAL_CLIENT_FACTORY

    def make() -> Any:
        client = factory()
        client.timeout = patience.timeout
        hooks = client.event_hooks
        client.event_hooks = {
            "request": [*hooks["request"], start],
            "response": [*hooks["response"], end],
        }
        return client

    # The library's warnings on its own retries hold addresses that are signed for the upload.
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.ERROR)
    set_client_factory(make)
    try:
        yield
    finally:
        set_client_factory(factory)
        logger.setLevel(level)


def persist(step: Callable[[], T], what: str, patience: Patience, say: Callable[[str], None]) -> T:
    """Run a step until it succeeds, as often and as slowly as patience has it.

    Parameters
    ----------
    step : callable
        Done from its beginning each time, so that it sees what has changed meanwhile.
    what : str
        Names the step in messages, e.g. "commit to feda4fair/acs".
    patience : Patience
        How often and how slowly.
    say : callable
        Receives a line for each failure that may pass.

    Raises
    ------
    PublishError
        If the step fails for good; the message holds no address, header or token.
    """
    wait = patience.wait
    for attempt in range(1, patience.tries + 1):
        try:
            return step()
        except Exception as error:
            own = _first(error, Feda4FairError)
            if own is not None:
                raise own from None
            reason, asked = _reason(error)
            if asked is None:
                raise PublishError(f"{what}: {reason}.") from None
            if attempt == patience.tries:
                raise PublishError(
                    f"{what}: {reason}, {attempt} times; nothing was half done, run the same "
                    "command again later."
                ) from None
            pause = max(asked, wait * (1 + random.SystemRandom().random() / 4))
        if pause > patience.limit:
            raise PublishError(
                f"{what}: the Hub asks to wait {pause:.0f} s; run the same command again then."
            )
        say(f"{what}: {reason}; trying again in {pause:.1f} s")
        time.sleep(pause)
        wait = min(2 * wait, 30)
    raise AssertionError("tries is at least 1")


def is_status(error: BaseException, *statuses: int) -> bool:
    """Whether an error is an answer of the Hub with one of the statuses."""
    return isinstance(error, HfHubHTTPError) and error.response.status_code in statuses


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what caused it."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def _first(error: BaseException, kind: type[Feda4FairError]) -> Feda4FairError | None:
    return next((each for each in _chain(error) if isinstance(each, kind)), None)


def _reason(error: Exception) -> tuple[str, float | None]:
    """Return what happened in words, and the seconds asked to wait, None if it will not pass."""
    for each in _chain(error):
        if isinstance(each, HfHubHTTPError):
            status = each.response.status_code
            if status in PASSING:
                return f"the Hub answered {status}", _retry_after(each.response.headers)
            return _refusal(status, each.server_message or ""), None
        if isinstance(each, _TRANSPORT | ConnectionError | TimeoutError):
            late = "Timeout" in type(each).__name__
            return "no answer in time" if late else "the connection failed", 0.0
    first = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__} {first[0]}".strip(), None


def _refusal(status: int, message: str) -> str:
    match status:
        case 401:
            return "the Hub knows no such token, or no such repository (401)"
        case 403:
            return "the token has no right to do this (403)"
        case 404:
            return "there is no such repository, revision or file, or the token may not see it"
        case _:
            first = message.strip().splitlines() or ["no reason given"]
            return f"the Hub answered {status} ({first[0][:200]})"


def _retry_after(headers: Any) -> float:
    """Return the seconds that a Retry-After header asks for, 0 without one."""
    text = headers.get("Retry-After", "").strip()
    if text.isdigit():
        return float(text)
    try:
        due = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return 0.0
    return max(0.0, due.timestamp() - time.time())
