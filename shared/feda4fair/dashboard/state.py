"""What a session remembers between two clicks, and long work that shows progress and stops.

A result is kept under the content hash of the rows and the recipe that it was made from, so that
a changed row or choice never shows an old figure.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import mkdtemp
from threading import Event, Thread
from typing import Any, Final, TypeVar, cast
from weakref import finalize

import pandas as pd
import streamlit as st

from feda4fair.dashboard.opening import Opening
from feda4fair.dashboard.rows import Rows, Tick
from feda4fair.errors import Feda4FairError, RecipeError
from feda4fair.partition import Natural
from feda4fair.recipe import ClientGroup, Recipe

__all__ = [
    "KEEP",
    "Session",
    "Stopped",
    "keep_widgets",
    "plain",
    "result",
    "session",
    "show_table",
    "start",
    "watch",
]

T = TypeVar("T")
Key = tuple[str, ...]

KEEP: Final = "keep-"
"""Prefix of widgets whose values outlive the step that shows them."""

MOST_RESULTS: Final = 8
_MARKS: Final = re.compile(r"[!-/:-@\[-`{-~]")
"""What Markdown may take for more than a letter."""

PATIENCE: Final = 0.4
"""Seconds after which work shows its progress."""


class Stopped(Exception):  # noqa: N818 - a wish, not an error
    """The person stopped the work, or changed what it was for."""


@dataclass(slots=True, weakref_slot=True)
class Session:
    """Everything that one visitor has chosen and got.

    Parameters
    ----------
    step : int
        Position of the step that is shown.
    pending : Opening or None
        Rows that are to be read.
    rows : Rows or None
        Rows that were read.
    base : Recipe or None
        The recipe that Load yields: schema, names, and the benchmark's choices.
    layout : dict
        Fields of the recipe that Split chose.
    groups : tuple of ClientGroup or None
        What Inject chose; None for the groups of ``base``.
    results : OrderedDict
        What was computed, or the error that it ended in, newest last.
    stopped : tuple of str or None
        Key of the work that was stopped.
    """

    step: int = 0
    pending: Opening | None = None
    rows: Rows | None = None
    base: Recipe | None = None
    layout: dict[str, Any] = field(default_factory=dict)
    groups: tuple[ClientGroup, ...] | None = None
    results: OrderedDict[Key, Any] = field(default_factory=OrderedDict)
    stopped: Key | None = None
    _folder: Path | None = None

    @property
    def folder(self) -> Path:
        """A temporary folder of this session, removed with it."""
        if self._folder is None:
            self._folder = Path(mkdtemp(prefix="feda4fair-dashboard-"))
            finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder

    @property
    def recipe(self) -> Recipe:
        """The recipe as it is chosen so far.

        Raises
        ------
        RecipeError
            If the choices contradict each other.
        """
        return self._with(() if self.groups is None and self.is_moved else self.groups)

    @property
    def clean(self) -> Recipe:
        """The same recipe without rules."""
        return self._with(())

    @property
    def is_benchmark(self) -> bool:
        """Whether the recipe is a built-in config, untouched."""
        return self.rows is not None and self.rows.base is not None and self.recipe == self.base

    @property
    def is_moved(self) -> bool:
        """Whether the clients are others than those that the groups of ``base`` name."""
        named = self.base is not None and any(
            isinstance(group.clients, tuple) for group in self.base.groups
        )
        return named and "partition" in self.layout

    def _with(self, groups: tuple[ClientGroup, ...] | None) -> Recipe:
        if self.base is None:
            raise RecipeError("no rows are loaded; go back to Load.")
        parts = self.layout if groups is None else {**self.layout, "groups": groups}
        changed = {k: value for k, value in parts.items() if value != getattr(self.base, k)}
        if changed and self.rows is not None and self.rows.base is not None:
            changed |= {"name": "custom", "description": "", "sampler": "keyed"}
        return replace(self.base, **changed)

    @property
    def tag(self) -> str:
        """Prefix of widgets that offer what these rows and this schema have."""
        assert self.rows is not None, "steps after Load have rows"
        assert self.base is not None, "steps after Load have a schema"
        schema = hashlib.sha256(repr(replace(self.base.schema, guesses=())).encode()).hexdigest()
        return f"{KEEP}{self.rows.content[:8]}-{schema[:8]}-"

    def load(self, rows: Rows) -> None:
        """Take new rows; what was chosen for others is forgotten."""
        self.rows, self.base, self.layout, self.groups = rows, None, {}, None
        if rows.base is not None:
            self.base = rows.base
        self.results.clear()

    def set_base(self, base: Recipe) -> None:
        """Take another recipe for the same rows."""
        if base == self.base:
            return
        before, self.base = self.base, base
        if before is None or before.schema != base.schema:
            self.layout, self.groups = {}, None

    def natural(self) -> Natural | None:
        """Return the partition that the source itself has, if it is read client by client."""
        if self.rows is None or not self.rows.source.natural:
            return None
        return Natural(self.rows.source.natural)


def session() -> Session:
    """Return the session of this visitor."""
    found = st.session_state.setdefault("feda4fair", Session())
    return cast(Session, found)


def keep_widgets() -> None:
    """Keep the values of widgets that this run does not show."""
    for key in list(st.session_state):
        if str(key).startswith(KEEP):
            st.session_state[key] = st.session_state[key]


def start(key: str, value: Any) -> str:
    """Give a widget its first value by its key, and return the key."""
    st.session_state.setdefault(key, value)
    return key


def plain(text: object) -> str:
    r"""Return a text that Streamlit shows as it is: nothing in data is Markdown, nor a link.

    Examples
    --------
    >>> print(plain(">50K [see](x)"))
    \>50K \[see\]\(x\)
    """
    return _MARKS.sub(r"\\\g<0>", " ".join(str(text).split()))


def show_table(frame: pd.DataFrame) -> None:
    """Show a small table of texts as they are, its first column as the head of each row."""
    texts = frame.map(plain)
    texts.columns = [plain(name) for name in texts.columns]
    st.table(texts.set_index(texts.columns[0]))


def key_of(kind: str, rows: Rows, recipe: Recipe) -> Key:
    """Return the key of a result: what it is, of which rows, by which recipe."""
    return kind, rows.content, hashlib.sha256(recipe.to_json().encode()).hexdigest()


def result(kind: str, recipe: Recipe, label: str, work: Callable[[Tick], T]) -> T | None:
    """Return a result of this session, made now unless it is there.

    Parameters
    ----------
    kind : str
        What it is; with rows and recipe the key.
    recipe : Recipe
        What it is made by.
    label : str
        What is being done, for people.
    work : callable
        Makes it; is handed a :data:`Tick`.

    Returns
    -------
    object or None
        None where the work was stopped.

    Raises
    ------
    Feda4FairError
        What the work ended in, each time until a choice changes.
    """
    here = session()
    assert here.rows is not None, "steps after Load have rows"
    key = key_of(kind, here.rows, recipe)
    if key not in here.results:
        if here.stopped == key:
            st.info(f"Stopped: {label}. Change a choice, or start again.")
            st.button("Start again", key="again", on_click=_forget_stop)
            return None
        try:
            here.results[key] = watch(label, work, key)
        except Feda4FairError as error:
            here.results[key] = error
        while len(here.results) > MOST_RESULTS:
            here.results.popitem(last=False)
    here.results.move_to_end(key)
    found = here.results[key]
    if isinstance(found, Feda4FairError):
        raise type(found)(str(found))
    return cast(T, found)


def _forget_stop() -> None:
    session().stopped = None


def _stop(key: Key) -> None:
    here = session()
    here.stopped, here.pending = key, None


def watch(label: str, work: Callable[[Tick], T], key: Key = ()) -> T:
    """Do work beside the page, show how far it is, and end it when the page moves on.

    The person's click on Stop, or on anything else, ends this run at the next sign of progress;
    the work then sees it at its own next tick.
    """
    stop = Event()
    said: tuple[str, float] = (label, 0.0)
    found: list[Any] = []

    def tick(what: str, share: float) -> None:
        nonlocal said
        if stop.is_set():
            raise Stopped
        said = (what, min(1.0, max(0.0, share)))

    def run() -> None:
        try:
            found.append((work(tick), None))
        except BaseException as error:
            found.append((None, error))

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    place = st.empty()
    try:
        if thread.is_alive():
            with place.container():
                bar = st.progress(0.0, text=f"{label} …")
                st.button("Stop", key=f"stop-{'-'.join(key)}", on_click=_stop, args=(key,))
            while thread.is_alive():
                bar.progress(said[1], text=f"{label}: {said[0]} …")
                time.sleep(0.1)
    finally:
        stop.set()
        thread.join()
        place.empty()
    value, error = found[0]
    if error is not None:
        raise error
    return cast(T, value)
