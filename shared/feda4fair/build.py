"""From a source to a folder in Hub layout, all or nothing.

The corridor: source, federate (encode, partition, inject, keep, split), write, manifest, card.
Everything is written to a hidden folder beside the target, which takes its name at the end.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from multiprocessing import get_context, parent_process
from pathlib import Path
from tempfile import gettempdir
from threading import Thread
from typing import Literal, Self

import pyarrow as pa
from filelock import FileLock, Timeout
from tqdm import tqdm

from feda4fair.card import CARD, merge_card, write_card
from feda4fair.dataset import Dataset, Source
from feda4fair.errors import Feda4FairError, OutputError, RecipeError
from feda4fair.federate import chosen_clients, federate_table
from feda4fair.federation import Federation
from feda4fair.manifest import MANIFEST, Manifest, build_manifest, read_manifest, write_manifest
from feda4fair.recipe import Recipe
from feda4fair.write import ConfigFiles, ConfigWriter

__all__ = ["build", "federations", "parts_of"]


def build(
    dataset: Dataset,
    recipes: Sequence[Recipe],
    source: Source,
    out: Path,
    *,
    clients: Sequence[str] = (),
    form: Literal["full", "index"] = "full",
    overwrite: bool = False,
    workers: int = 1,
    notes: Sequence[str] = (),
) -> Manifest:
    """Build a folder in Hub layout.

    Parameters
    ----------
    dataset : Dataset
        What is built.
    recipes : sequence of Recipe
        The configs to build, e.g. ``dataset.choose(["value-device"])``.
    source : Source
        Where the rows come from.
    out : Path
        Target folder; it appears complete or not at all.
    clients : sequence of str
        Only these clients, each exactly as among all others; all by default.
    form : {"full", "index"}
        Write the rows, or only the index that may be published where they may not.
    overwrite : bool, default False
        Replace an earlier build in ``out``. What people wrote into its README.md is kept if it
        was of the same dataset.
    workers : int, default 1
        Processes; any number gives the same bytes.
    notes : sequence of str
        Sentences on how this build differs from the published benchmark.

    Returns
    -------
    dict
        The manifest.

    Raises
    ------
    OutputError
        If ``out`` holds something else, or cannot be written.
    SourceError, SchemaError, RecipeError
        If source, schema and recipe do not fit.
    """
    if form == "index" and dataset.index is None:
        raise OutputError(
            f"{dataset.name}: has no index form, its rows may be published; use full."
        )
    with _staging(out, overwrite=overwrite) as folder:
        _own_words(out, dataset)
        task = _Task(dataset, source, folder, tuple(clients), form)
        recipes = [source.fit(recipe) for recipe in recipes]
        configs = _write_configs(task, recipes, workers)
        manifest = build_manifest(
            dataset,
            configs,
            source.files(),
            synthetic=source.synthetic,
            options=source.options,
            notes=[*source.notes, *notes],
        )
        write_card(folder, manifest, dataset, _own_words(out, dataset))
        return write_manifest(folder, manifest)


def federations(
    recipe: Recipe,
    source: Source,
    clients: Sequence[str] = (),
    parts: Sequence[str] | None = None,
) -> Iterator[Federation]:
    """Yield the federation of a recipe part by part, in client order.

    Parameters
    ----------
    recipe : Recipe
        What to make.
    source : Source
        Where the rows come from.
    clients : sequence of str
        Only these clients, each exactly as among all others; all by default.
    parts : sequence of str, optional
        Only these parts of the source.

    Raises
    ------
    RecipeError
        If a client is not one of the recipe's.
    """
    for part in parts_of(recipe, source, clients) if parts is None else parts:
        federation = _federate(recipe, source, part, source.read(part))
        yield federation.only(clients) if clients else federation


def _federate(recipe: Recipe, source: Source, part: str, table: pa.Table) -> Federation:
    if not source.natural:
        return federate_table(table, recipe)
    return federate_table(table, recipe, client=part, parents=source.parts)


def parts_of(recipe: Recipe, source: Source, clients: Sequence[str]) -> tuple[str, ...]:
    """Return the parts of the source that hold the recipe's clients."""
    wanted = chosen_clients(recipe, clients, source.parts)
    if not source.natural:
        return source.parts
    parents = {recipe.parent(client) for client in wanted}
    parts = tuple(part for part in source.parts if part in parents)
    if not parts:
        raise RecipeError(
            f"{recipe}: none of its clients is in the source, which has "
            f"{', '.join(source.parts)}; add their files or leave the config out."
        )
    return parts


@dataclass(frozen=True, slots=True)
class _Task:
    """What a worker process needs to write configs."""

    dataset: Dataset
    source: Source
    folder: Path
    clients: tuple[str, ...]
    form: Literal["full", "index"]


def _write_configs(task: _Task, recipes: Sequence[Recipe], workers: int) -> list[ConfigFiles]:
    """Write all configs, in this process or in several; the order of results is the recipes'."""
    wanted = {part for r in recipes for part in parts_of(r, task.source, task.clients)}
    parts = tuple(part for part in task.source.parts if part in wanted)
    groups = [recipes[i :: min(workers, len(recipes))] for i in range(min(workers, len(recipes)))]
    if workers == 1:
        return _write_group(task, recipes, parts)
    try:
        with ProcessPoolExecutor(
            workers, mp_context=get_context("spawn"), initializer=_end_with_parent
        ) as pool:
            warmed = pool.map(_warm, [task.source] * len(parts), parts)
            list(tqdm(warmed, "reading", total=len(parts), disable=None))
            done = pool.map(_write_group, [task] * len(groups), groups, [parts] * len(groups))
            configs = [
                config
                for group in tqdm(done, "writing", len(groups), disable=None)
                for config in group
            ]
    except BrokenProcessPool:
        raise OutputError(
            f"{task.dataset.name}: a worker process died, perhaps for want of memory; build with "
            "fewer --workers."
        ) from None
    order = [recipe.name for recipe in recipes]
    return sorted(configs, key=lambda config: order.index(config.recipe.name))


def _end_with_parent() -> None:
    """Let a worker end when the process that started it was killed."""

    def wait() -> None:
        if (parent := parent_process()) is not None:
            parent.join()
            os._exit(1)

    Thread(target=wait, daemon=True).start()


def _warm(source: Source, part: str) -> None:
    """Read a part so that it lies in the source's cache."""
    source.read(part)


def _write_group(
    task: _Task, recipes: Sequence[Recipe], parts: Sequence[str]
) -> list[ConfigFiles]:
    """Write configs side by side, each part of the source read once.

    Three steps run side by side: this thread reads a part while a second one federates the part
    before and a third encodes the federation before that; this bounds memory. Reading stays here,
    where Ctrl-C can end a download.
    """
    with ExitStack() as stack:
        writers = [
            stack.enter_context(
                ConfigWriter(
                    task.folder,
                    recipe,
                    attach=task.source.attach,
                    client_names=task.dataset.client_names,
                    index=task.dataset.index if task.form == "index" else None,
                )
            )
            for recipe in recipes
        ]
        encoder = stack.enter_context(_OneBehind())
        maker = stack.enter_context(_OneBehind())
        for part in tqdm(parts, "clients", disable=None, unit="part"):
            maker.submit(_make, task, part, task.source.read(part), writers, encoder)
        maker.wait()
        encoder.wait()
        return [writer.finish() for writer in writers]


def _make(
    task: _Task,
    part: str,
    table: pa.Table,
    writers: Sequence[ConfigWriter],
    encoder: _OneBehind,
) -> None:
    """Federate one part by every recipe that has clients in it, and hand it on to be encoded."""
    for writer in writers:
        if part not in parts_of(writer.recipe, task.source, task.clients):
            continue
        federation = _federate(writer.recipe, task.source, part, table)
        if task.clients:
            federation = federation.only(task.clients)
        encoder.submit(writer.add, federation)


class _OneBehind:
    """A thread that works on one thing while the next is made; errors come with the next one."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._pending: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(cancel_futures=True)

    def submit(self, work: Callable[..., None], *args: object) -> None:
        """Start this work once the work before it is done."""
        self.wait()
        self._pending = self._thread.submit(work, *args)

    def wait(self) -> None:
        """Wait for the work in hand and raise what it raised."""
        if self._pending is not None:
            self._pending.result()


@contextmanager
def _staging(out: Path, *, overwrite: bool) -> Iterator[Path]:
    """Give a hidden folder that becomes ``out`` at the end, or vanishes.

    A lock keeps two builds of one folder apart; whoever holds it may clear what a killed build
    left behind.
    """
    out = out.resolve()
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
            "it with --overwrite or name another folder."
        )


def _own_words(out: Path, dataset: Dataset) -> str:
    """Return the card of an earlier build of the dataset, in which people may have written.

    Raises
    ------
    OutputError
        If it cannot be merged; asked first, so that no work is done in vain.
    """
    card = out / CARD
    if not card.is_file() or read_manifest(out)["dataset"] != dataset.name:
        return ""
    try:
        text = card.read_text("utf-8")
        merge_card(text, "")
    except (OutputError, UnicodeDecodeError) as error:
        reason = error if isinstance(error, OutputError) else f"{CARD}: is not UTF-8; save it so."
        raise OutputError(f"{out}/{reason}") from None
    return text


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
