"""From a source to a folder in Hub layout, all or nothing.

The corridor: source, federate (encode, partition, inject, keep, split), write, manifest, card.
Everything is written to a hidden folder beside the target, which takes its name at the end.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import pyarrow as pa
from tqdm import tqdm

from feda4fair.card import CARD, merge_card, write_card
from feda4fair.content import SourceFile
from feda4fair.dataset import Dataset, Source
from feda4fair.engine import EngineName, run
from feda4fair.errors import OutputError, RecipeError
from feda4fair.federation import Federation
from feda4fair.manifest import Manifest, build_manifest, read_manifest, write_manifest
from feda4fair.parquet import ConfigFiles, ConfigWriter
from feda4fair.recipe import Recipe
from feda4fair.spill import Blocks, Spilled, spill
from feda4fair.staging import staging
from feda4fair.steps import chosen_clients, federate_table

__all__ = ["build", "federations", "finish", "own_words", "parts_of"]


def build(
    dataset: Dataset,
    recipes: Sequence[Recipe],
    source: Source,
    out: Path | str,
    *,
    clients: Sequence[str] = (),
    form: Literal["full", "index"] = "full",
    overwrite: bool = False,
    workers: int = 1,
    engine: EngineName = "local",
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
    out : Path or str
        Target folder, which appears complete or not at all; or the URL of one, see
        :func:`feda4fair.staging.staging`.
    clients : sequence of str
        Only these clients, each exactly as among all others; all by default.
    form : {"full", "index"}
        Write the rows, or only the index that may be published where they may not.
    overwrite : bool, default False
        Replace an earlier build in ``out``. What people wrote into its README.md is kept if it
        was of the same dataset.
    workers : int, default 1
        Processes; any number gives the same bytes.
    engine : {"local", "ray"}
        Where they run; either gives the same bytes.
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
        words = own_words(out, dataset)
        task = _Task(
            dataset=dataset,
            source=source,
            folder=folder,
            clients=tuple(clients),
            form=form,
            workers=workers,
            engine=engine,
        )
        configs = _write_configs(task, [source.fit(recipe) for recipe in recipes])
        return finish(
            folder,
            dataset,
            configs,
            source.files(),
            synthetic=source.synthetic,
            options=source.options,
            notes=[*source.notes, *notes],
            existing=words,
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
    existing: str = "",
) -> Manifest:
    """Add pages and manifest to a folder whose data are written.

    Parameters are those of :func:`feda4fair.manifest.build_manifest`; ``existing`` is the card of
    an earlier build, whose hand-written parts are kept.
    """
    manifest = build_manifest(
        dataset, configs, sources, synthetic=synthetic, options=options or {}, notes=notes
    )
    write_card(folder, manifest, dataset, existing)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """Parts of a source, what reads one, and what makes federations of it, one a recipe."""

    recipes: tuple[Recipe, ...]
    parts: Sequence[Any]
    read: Callable[[Any], pa.Table]
    work: Callable[[Any, pa.Table], list[Federation | None]]
    near: bool = False
    left_out: int = 0


@contextmanager
def _parts_in_turn(
    source: Source, recipes: Sequence[Recipe], clients: Sequence[str], scratch: Path
) -> Iterator[Iterator[_Parts]]:
    """Give what is worked on: all recipes together, or for a large source one by one."""
    if not (isinstance(source, Blocks) and source.is_large):
        wanted = {part for recipe in recipes for part in parts_of(recipe, source, clients)}
        work = partial(_federations_of, tuple(recipes), source, tuple(clients))
        yield iter(
            [
                _Parts(
                    recipes=tuple(recipes),
                    parts=[part for part in source.parts if part in wanted],
                    read=source.read,
                    work=work,
                    near=bool(source.natural),
                )
            ]
        )
        return
    try:
        yield (_spilled(source, recipe, clients, scratch / recipe.name) for recipe in recipes)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _spilled(source: Blocks, recipe: Recipe, clients: Sequence[str], folder: Path) -> _Parts:
    spilled = spill(source, recipe, folder)
    parts = spilled.parts if not clients else spilled.holding(clients)
    return _Parts(
        recipes=(recipe,),
        parts=parts,
        read=spilled.read,
        work=partial(_federation_of_file, spilled, tuple(clients)),
        left_out=spilled.left_out,
    )


def _federations_of(
    recipes: Sequence[Recipe],
    source: Source,
    clients: Sequence[str],
    part: str,
    table: pa.Table,
) -> list[Federation | None]:
    """Federate one part by every recipe that has clients in it."""
    return [
        _federate(recipe, source, part, table, clients)
        if part in parts_of(recipe, source, clients)
        else None
        for recipe in recipes
    ]


def _federation_of_file(
    spilled: Spilled, clients: Sequence[str], part: int, table: pa.Table
) -> list[Federation | None]:
    federation = spilled.federate(part, table)
    return [federation.only(clients) if clients else federation]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """What is written, and where the work is done."""

    dataset: Dataset
    source: Source
    folder: Path
    clients: tuple[str, ...]
    form: Literal["full", "index"]
    workers: int
    engine: EngineName


def _write_configs(task: _Task, recipes: Sequence[Recipe]) -> list[ConfigFiles]:
    """Write all configs; the order of results is the recipes'."""
    scratch = task.folder / ".rows"
    configs: list[ConfigFiles] = []
    with _parts_in_turn(task.source, recipes, task.clients, scratch) as turns:
        for turn in turns:
            configs += _write_turn(task, turn)
    return configs


def _write_turn(task: _Task, turn: _Parts) -> list[ConfigFiles]:
    """Write configs side by side, each part of the source read once.

    While a part is federated, the federations of the part before are encoded, each config by a
    thread of its own; this bounds memory.
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
            for recipe in turn.recipes
        ]
        encoders = [stack.enter_context(_OneBehind()) for _ in writers]
        done = run(
            turn.parts,
            turn.read,
            turn.work,
            workers=task.workers,
            engine=task.engine,
            near=turn.near,
            scratch=task.folder,
        )
        bar = tqdm(done, "clients", total=len(turn.parts), disable=None, unit="part")
        for federations_of_part in bar:
            for writer, encoder, federation in zip(
                writers, encoders, federations_of_part, strict=True
            ):
                if federation is not None:
                    encoder.submit(writer.add, federation)
        for encoder in encoders:
            encoder.wait()
        for writer in writers:
            if writer.clients == 0:
                raise RecipeError(
                    f"{writer.recipe}: no client {', '.join(task.clients)} came out; check "
                    "the name."
                )
            writer.leave_out(turn.left_out)
        return [writer.finish() for writer in writers]


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


def own_words(out: Path | str, dataset: Dataset) -> str:
    """Return the card of an earlier build of the dataset, in which people may have written.

    Raises
    ------
    OutputError
        If it cannot be merged; asked first, so that no work is done in vain.
    """
    card = Path(out) / CARD
    if not card.is_file() or read_manifest(Path(out))["dataset"] != dataset.name:
        return ""
    try:
        text = card.read_text("utf-8")
        merge_card(text, "")
    except (OutputError, UnicodeDecodeError) as error:
        reason = error if isinstance(error, OutputError) else f"{CARD}: is not UTF-8; save it so."
        raise OutputError(f"{out}/{reason}") from None
    return text
