"""What a dataset folder hands to the library: its source, its recipes, its prose."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from feda4fair.content import SourceFile
from feda4fair.errors import RecipeError
from feda4fair.recipe import Control, Recipe

__all__ = ["Dataset", "Index", "Prose", "Source"]


class Source(Protocol):
    """Where the rows come from, read part by part. Instances can be pickled."""

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts in the order in which they are read.

        They are the natural clients where `natural` names a column, else one part holds all rows.
        """

    @property
    def natural(self) -> str:
        """What a part is, e.g. "state"; empty where parts are not natural clients."""

    @property
    def synthetic(self) -> bool:
        """Whether the rows are a made-up sample."""

    def read(self, part: str) -> pa.Table:
        """Return the tidy rows of a part: ``row_id``, source columns, ``label``."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on how the source differs from the benchmark's; none where it does not."""

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments of ``open_source`` that give this source again, beside the common."""

    def fit(self, recipe: Recipe) -> Recipe:
        """Return a recipe with the columns that `attach` will add."""

    def attach(self, table: pa.Table) -> pa.Table:
        """Add columns too large to carry along (images) to the rows of one client."""

    def files(self) -> tuple[SourceFile, ...]:
        """Return what was read, for the manifest."""


@dataclass(frozen=True, kw_only=True)
class Index:
    """The form of a dataset that may be published where its rows may not.

    Parameters
    ----------
    features : dict
        The index columns in the Hub's notation.
    schema : pyarrow.Schema
        Schema of the index columns.
    rows : callable
        ``rows(table, split) -> table`` gives the index of a client's full rows.
    """

    features: dict[str, Any]
    schema: pa.Schema
    rows: Callable[[pa.Table, str], pa.Table]


Prose = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Everything particular to one dataset, as data.

    Parameters
    ----------
    name : str
        Short name: folder, Hub repository and command line argument.
    folder : Path or None
        Folder that holds ``prose.toml``, ``CITATION.bib`` and the assets; None for a user's own
        data, which have no loading script either.
    recipes : tuple of Recipe
        One for each config, the default first.
    open_source : callable
        ``open_source(data_dir, *, recipes, clients, sample, allow_missing, ...) -> Source``;
        further keyword arguments are the dataset's own options.
    index : Index, optional
        The form that may be published where full rows may not.
    assets : tuple of str
        Files of the folder that are copied beside the card.
    client_names : dict of str to str
        Names of natural clients for people, e.g. ``{"TX": "Texas"}``.
    version : str
        Version of the rows, ``MAJOR.MINOR.PATCH``; it changes when any content hash does.
    own_prose : dict
        What a user wrote about own data, with the keys of ``prose.toml``.
    """

    name: str
    folder: Path | None
    recipes: tuple[Recipe, ...]
    open_source: Callable[..., Source]
    index: Index | None = None
    assets: tuple[str, ...] = ()
    client_names: dict[str, str] = field(default_factory=dict)
    version: str = "1.0.0"
    own_prose: Prose = field(default_factory=dict)

    @cached_property
    def prose(self) -> Prose:
        """What no program can compute, from ``prose.toml`` or as the user gave it."""
        if self.folder is None:
            return self.own_prose
        return tomllib.loads((self.folder / "prose.toml").read_text("utf-8"))

    @cached_property
    def citation(self) -> str:
        """BibTeX of the source and the paper."""
        if self.folder is None:
            return str(self.own_prose.get("citation", ""))
        return (self.folder / "CITATION.bib").read_text("utf-8").strip()

    def recipe(self, config: str) -> Recipe:
        """Return the recipe of a config.

        Raises
        ------
        RecipeError
            If there is no such config.
        """
        for recipe in self.recipes:
            if recipe.name == config:
                return recipe
        known = ", ".join(recipe.name for recipe in self.recipes)
        raise RecipeError(f"{self.name}: no config {config!r}; there are {known}.")

    def choose(self, configs: Sequence[str] = (), *, control: Control = "") -> tuple[Recipe, ...]:
        """Return the recipes of the named configs, all of them by default, in their order."""
        wanted = [self.recipe(config).name for config in configs] or [r.name for r in self.recipes]
        chosen = tuple(recipe for recipe in self.recipes if recipe.name in wanted)
        if not control:
            return chosen
        return tuple(recipe.with_control(control) for recipe in chosen)
