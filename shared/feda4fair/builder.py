"""The builder that ``datasets`` runs: a thin shell over source and federate.

It runs as a loading script on datasets 3, and through the builder API on 4 and 5. What it yields
equals the built folder row for row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, assert_never

import datasets
import pyarrow as pa

from feda4fair.build import federations, parts_of
from feda4fair.dataset import Dataset, Source
from feda4fair.errors import RecipeError
from feda4fair.parquet import arrow_schema, complete, hub_features
from feda4fair.recipe import ClientSplit, Control, Recipe, RowSplit
from feda4fair.split import SPLITS
from feda4fair.steps import chosen_clients

__all__ = ["FederatedBuilder", "FederatedConfig", "code_fingerprint"]


@dataclass
class FederatedConfig(datasets.BuilderConfig):
    """A config of a built-in dataset.

    Parameters
    ----------
    recipe : Recipe, optional
        The scientific choice; each named config carries its own.
    clients : tuple of str, optional
        Only these clients.
    sample : bool, default False
        Use the built-in synthetic sample instead of the source.
    allow_missing : bool, default False
        Accept a source that lacks some of the clients.
    control : {"", "none", "homogeneous"}
        Build the unbiased or the homogeneous counterpart.
    """

    recipe: Recipe | None = None
    clients: tuple[str, ...] | list[str] = ()
    sample: bool = False
    allow_missing: bool = False
    control: Control = ""


class FederatedBuilder(datasets.ArrowBasedBuilder):
    """Base of the three builders; a subclass names its `Dataset` and its configs.

    Parameters
    ----------
    cache_dir : str, optional
        Cache folder of ``datasets``; a config name here is refused.
    config_name : str, optional
        One of the four configs.
    data_dir : str, optional
        Folder of the source; without it the source is downloaded, or the sample is used.
    **kwargs
        Fields of `FederatedConfig` and arguments of ``datasets.ArrowBasedBuilder``.

    Raises
    ------
    RecipeError
        If ``cache_dir`` is the name of a config.
    """

    DATASET: ClassVar[Dataset]
    BUILDER_CONFIG_CLASS = FederatedConfig

    def __init__(self, cache_dir: str | None = None, *args: Any, **kwargs: Any) -> None:
        names = [recipe.name for recipe in self.DATASET.recipes]
        if cache_dir in names:
            raise RecipeError(
                f"{type(self).__name__}({cache_dir!r}): the first argument is cache_dir; write "
                f"config_name={cache_dir!r}."
            )
        given = kwargs.get("hash") or ""
        data_dir = kwargs.get("data_dir")
        source = source_fingerprint(Path(data_dir)) if data_dir else ""
        text = "\n".join((given, code_fingerprint(self.DATASET.folder), source))
        kwargs["hash"] = hashlib.sha256(text.encode()).hexdigest()
        super().__init__(cache_dir, *args, **kwargs)

    def _info(self) -> datasets.DatasetInfo:
        return datasets.DatasetInfo(
            description=self.config.description,
            features=datasets.Features.from_dict(hub_features(self.recipe.schema)),
            citation=self.DATASET.citation,
            license=self.DATASET.prose["license"],
        )

    @property
    def recipe(self) -> Recipe:
        """Recipe of the chosen config, with its control."""
        recipe = self.config.recipe or self.DATASET.recipe(self.config.name)
        return recipe.with_control(self.config.control) if self.config.control else recipe

    def _source(self) -> Source:
        data_dir = Path(self.config.data_dir) if self.config.data_dir else None
        return self.DATASET.open_source(
            data_dir,
            recipes=(self.recipe,),
            clients=tuple(self.config.clients),
            sample=self.config.sample,
            allow_missing=self.config.allow_missing,
        )

    def _split_generators(self, dl_manager: Any) -> list[datasets.SplitGenerator]:
        source, clients = self._source(), tuple(self.config.clients)
        parts = parts_of(self.recipe, source, clients)
        return [
            datasets.SplitGenerator(
                name=split,
                gen_kwargs={"split": split, "source": source, "parts": list(parts)},
            )
            for split in self._splits(self._present(source, clients))
        ]

    def _present(self, source: Source, clients: tuple[str, ...]) -> tuple[str, ...]:
        """Return the chosen clients that the source can give."""
        chosen = chosen_clients(self.recipe, clients, source.parts)
        if not source.natural:
            return chosen
        return tuple(client for client in chosen if self.recipe.parent(client) in source.parts)

    def _splits(self, clients: tuple[str, ...]) -> list[str]:
        match self.recipe.split:
            case ClientSplit(test=test):
                sides = {"test" if client in test else "train" for client in clients}
            case RowSplit(validation=validation, test=share):
                sides = {"train"} | {
                    name for name, part in (("validation", validation), ("test", share)) if part
                }
            case _:
                assert_never(self.recipe.split)
        return [name for name in SPLITS if name in sides]

    def _generate_tables(
        self, split: str, source: Source, parts: list[str]
    ) -> Iterator[tuple[int, pa.Table]]:
        schema = arrow_schema(self.recipe.schema)
        key = 0
        for federation in federations(self.recipe, source, tuple(self.config.clients), parts):
            for client in federation.clients:
                table = federation.client(client.name, split)
                if table.num_rows:
                    yield key, complete(table, schema, source.attach)
                    key += 1


@cache
def code_fingerprint(folder: Path) -> str:
    """Return a hash of the library's and a dataset folder's code and data.

    It is part of the cache path of ``datasets``, so that a change in the library never serves
    rows that an older library made.
    """
    digest = hashlib.sha256()
    for root in (Path(__file__).parent, folder):
        for path in sorted(root.rglob("*")):
            if path.suffix in (".py", ".tsv", ".toml"):
                digest.update(path.relative_to(root).as_posix().encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()


def source_fingerprint(folder: Path) -> str:
    """Return a hash of the names, sizes and times of a source folder's files.

    ``datasets`` caches by this, so a source that changed is read again.
    """
    stats = [
        (path.relative_to(folder).as_posix(), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        for stat in (path.stat(),)
    ]
    return hashlib.sha256(repr(stats).encode()).hexdigest()
