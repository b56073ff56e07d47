"""From a source to a folder in Hub layout, all or nothing.

The corridor: source, federate (encode, partition, inject, keep, split), write, manifest, card.
Everything is written to a hidden folder beside the target, which takes its name at the end.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any, Literal, Self

import pyarrow as pa
from tqdm import tqdm

from feda4fair.card import write_card
from feda4fair.content import SourceFile
from feda4fair.dataset import Dataset, Source
from feda4fair.errors import OutputError, RecipeError
from feda4fair.federation import Federation
from feda4fair.manifest import Manifest, build_manifest, write_manifest
from feda4fair.parquet import ConfigFiles, ConfigWriter
from feda4fair.recipe import Recipe
from feda4fair.staging import staging
from feda4fair.steps import chosen_clients, federate_table

__all__ = ["build", "federations", "finish", "parts_of"]


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
        Replace an earlier build in ``out``.
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
    with staging(out, overwrite=overwrite) as folder:
        task = _Task(dataset, source, folder, tuple(clients), form)
        recipes = [source.fit(recipe) for recipe in recipes]
        configs = _write_configs(task, recipes, workers)
        return finish(
            folder,
            dataset,
            configs,
            source.files(),
            synthetic=source.synthetic,
            options=source.options,
            notes=[*source.notes, *notes],
        )


def finish(
    folder: Path,
    dataset: Dataset,
    configs: Sequence[ConfigFiles],
    sources: Sequence[SourceFile],
    *,
    synthetic: bool = False,
    options: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
) -> Manifest:
    """Add pages and manifest to a folder whose data are written.

    Parameters are those of :func:`feda4fair.manifest.build_manifest`.
    """
    manifest = build_manifest(
        dataset, configs, sources, synthetic=synthetic, options=options or {}, notes=notes
    )
    write_card(folder, manifest, dataset)
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
        yield _federate(recipe, source, part, source.read(part), clients)


def _federate(
    recipe: Recipe, source: Source, part: str, table: pa.Table, clients: Sequence[str]
) -> Federation:
    """Federate one part and keep the wanted clients; all rows together can tell who is none."""
    if source.natural:
        federation = federate_table(table, recipe, client=part, parents=source.parts)
    else:
        federation = federate_table(table, recipe)
        for name in clients:
            federation.find(name)
    return federation.only(clients) if clients else federation


def parts_of(recipe: Recipe, source: Source, clients: Sequence[str]) -> tuple[str, ...]:
    """Return the parts of the source that hold the recipe's clients."""
    wanted = chosen_clients(recipe, clients, source.parts if source.natural else ())
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
        federation = _federate(writer.recipe, task.source, part, table, task.clients)
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
