"""Federations for Flower: clients as partitions, by number and by name.

Flower's own ``NaturalIdPartitioner`` numbers the clients of each split anew, so that a client
without rows in one split shifts the numbers of the others, and it looks at every row in Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from feda4fair.assign import numbered as numbered_clients
from feda4fair.columns import PROVENANCE
from feda4fair.errors import MissingExtraError, OutputError, RecipeError, SchemaError
from feda4fair.export import Attach, to_datasets
from feda4fair.federation import Federation
from feda4fair.partition import Assigned

try:
    from flwr_datasets.partitioner import Partitioner
except ImportError:
    raise MissingExtraError(
        "flwr-datasets is not installed; install the extra that brings it: "
        "pip install 'feda4fair[flower]'."
    ) from None

__all__ = ["ClientPartitioner", "FlowerFederation", "FromFlower", "to_flower"]

Rows = range | NDArray[np.int64]

_ROW = "feda4fair row"


class ClientPartitioner(Partitioner):
    """A Flower partitioner with one partition for each client, by number or by name.

    It goes wherever a ``flwr_datasets`` partitioner goes. Rows of a client that lie side by side,
    as in every folder that this library writes, are a slice of the dataset; others are gathered.

    Parameters
    ----------
    clients : sequence of str, optional
        All clients in the order of their numbers; one without rows in this split keeps its number
        and gets an empty partition. By default the clients of the dataset, sorted.
    column : str, default "client_id"
        Column that names the client of a row.

    Examples
    --------
    >>> import datasets
    >>> partitioner = ClientPartitioner(["TX", "VT", "WY"])
    >>> partitioner.dataset = datasets.Dataset.from_dict(
    ...     {"client_id": ["TX", "TX", "WY"], "x": [1, 2, 3]}
    ... )
    >>> partitioner.num_partitions, partitioner.load_partition("WY")["x"][:]
    (3, [3])
    """

    def __init__(self, clients: Sequence[str] | None = None, *, column: str = "client_id") -> None:
        super().__init__()
        self._named = None if clients is None else tuple(clients)
        self._column = column

    @property
    def num_partitions(self) -> int:
        """Number of clients."""
        return len(self.clients)

    @property
    def clients(self) -> tuple[str, ...]:
        """The clients in the order of their numbers."""
        return tuple(self._rows) if self._named is None else self._named

    def load_partition(self, partition_id: int | str) -> Any:
        """Return the rows of a client, a ``datasets.Dataset`` in the order of the whole.

        Parameters
        ----------
        partition_id : int or str
            Number, from 0, or name of the client.

        Raises
        ------
        RecipeError
            If there is no such client.
        """
        clients = self.clients
        name = partition_id
        if not isinstance(name, str):
            if not isinstance(name, Integral) or not 0 <= name < len(clients):
                raise RecipeError(
                    f"partition {name!r}: there are {len(clients)}, numbered from 0."
                )
            name = clients[name]
        if name not in self._rows and name not in clients:
            raise RecipeError(
                f"client {name!r}: none of {len(clients)}, {clients[0]} to {clients[-1]}."
            )
        return self.dataset.select(self._rows.get(name, range(0)))

    @cached_property
    def _rows(self) -> Mapping[str, Rows]:
        """Rows of each client that has any, in one pass over the column."""
        if self._column not in self.dataset.column_names:
            raise SchemaError(
                f"ClientPartitioner: no column {self._column!r} among "
                f"{', '.join(self.dataset.column_names)}; name the one that holds the clients."
            )
        only = self.dataset.select_columns([self._column]).with_format("arrow")[:]
        encoded = only[self._column].cast(pa.string()).combine_chunks().dictionary_encode()
        if encoded.null_count:
            raise SchemaError(
                f"ClientPartitioner: {encoded.null_count} rows name no client in {self._column}."
            )
        names, codes = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
        foreign = sorted(set(names) - set(self._named or names))
        if foreign:
            raise RecipeError(
                f"ClientPartitioner: the dataset holds {foreign[0]}, which is not among the "
                f"{len(self._named or ())} clients named; name all of them or none."
            )
        if not names:
            return {}
        starts = np.flatnonzero(np.diff(codes, prepend=-1))
        if len(starts) == len(names):
            stops = [*starts[1:].tolist(), len(codes)]
            rows: dict[str, Rows] = {
                names[codes[start]]: range(start, stop)
                for start, stop in zip(starts.tolist(), stops, strict=True)
            }
        else:
            order = np.argsort(codes, kind="stable")
            bounds = np.searchsorted(codes[order], np.arange(1, len(names)))
            rows = dict(zip(names, np.split(order, bounds), strict=True))
        return {name: rows[name] for name in sorted(rows)}


class FromFlower:
    """A ``flwr_datasets`` partitioner as a partition; a recipe keeps it as its assignment.

    Parameters
    ----------
    partitioner : flwr_datasets.partitioner.Partitioner
        Any of them; its columns are those of the source. Clients are named by its numbers.

    Examples
    --------
    >>> from flwr_datasets.partitioner import LinearPartitioner
    >>> FromFlower(LinearPartitioner(2)).assigned(pa.table({"x": [1, 2, 3]})).clients
    ('c0', 'c1')
    """

    def __init__(self, partitioner: Partitioner) -> None:
        self.partitioner = partitioner

    def assigned(self, table: pa.Table) -> Assigned:
        """Return which client gets which row.

        Raises
        ------
        RecipeError
            If the partitioner fails, leaves a client empty, or gives a row to two clients.
        """
        import datasets

        name = type(self.partitioner).__name__
        if not isinstance(self.partitioner, Partitioner):
            raise RecipeError(f"FromFlower: {name} is no partitioner of flwr_datasets.")
        partitioner = deepcopy(self.partitioner)  # it takes rows only once
        numbered = table.replace_schema_metadata(None).append_column(
            _ROW, pa.array(np.arange(table.num_rows))
        )
        state = np.random.get_state()  # noqa: NPY002 - some partitioners draw from it
        try:
            partitioner.dataset = datasets.Dataset(numbered)
            rows = [
                np.array(partitioner.load_partition(i).with_format("arrow")[:][_ROW])
                for i in range(partitioner.num_partitions)
            ]
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise RecipeError(f"{name}: cannot part these rows ({error}).") from None
        finally:
            np.random.set_state(state)  # noqa: NPY002
        empty = [i for i, own in enumerate(rows) if not len(own)]
        if empty:
            raise RecipeError(
                f"{name}: {len(empty)} of {len(rows)} partitions are empty, the first is number "
                f"{empty[0]}; use fewer partitions or a larger alpha."
            )
        codes = np.full(table.num_rows, -1, dtype=np.int32)
        for client, own in enumerate(rows):
            if (codes[own] >= 0).any():
                raise RecipeError(f"{name}: partition {client} has rows of an earlier one.")
            codes[own] = client
        return Assigned.of(numbered_clients(len(rows)), codes)


class FlowerFederation:
    """What Flower calls a federated dataset: partitions and splits, see `to_flower`."""

    def __init__(self, splits: Mapping[str, Any], *, provenance: bool = True) -> None:
        self._splits = splits
        self._provenance = provenance
        present = {name: _clients(split) for name, split in splits.items()}
        every = sorted({client for clients in present.values() for client in clients})
        whole = len(every) < sum(map(len, present.values()))
        self.partitioners = {
            name: ClientPartitioner(every if whole else clients)
            for name, clients in present.items()
        }
        for name, split in splits.items():
            self.partitioners[name].dataset = split

    def load_partition(self, partition_id: int | str, split: str = "train") -> Any:
        """Return a client's rows of one split, by number or by name: a ``datasets.Dataset``."""
        self._check(split)
        return self._shown(self.partitioners[split].load_partition(partition_id))

    def load_split(self, split: str) -> Any:
        """Return all rows of one split, for evaluation at the server."""
        self._check(split)
        return self._shown(self._splits[split])

    def clients(self, split: str = "train") -> tuple[str, ...]:
        """Return the clients of a split in the order of their numbers."""
        self._check(split)
        return self.partitioners[split].clients

    def _check(self, split: str) -> None:
        if split not in self._splits:
            raise RecipeError(f"split {split!r}: there are {', '.join(self._splits)}.")

    def _shown(self, rows: Any) -> Any:
        if self._provenance:
            return rows
        return rows.remove_columns([name for name in PROVENANCE if name in rows.column_names])


def to_flower(
    source: Federation | str | Path,
    config: str | None = None,
    *,
    provenance: bool = True,
    attach: Attach | None = None,
    revision: str | None = None,
) -> FlowerFederation:
    """Return a federation for Flower, with the calls of ``flwr_datasets.FederatedDataset``.

    Parameters
    ----------
    source : Federation, str or Path
        A federation, a built folder, or a dataset repository such as ``"feda4fair/acs"``.
    config : str, optional
        Config of the folder or repository.
    provenance : bool, default True
        Keep ``client_id``, ``row_id`` and ``flipped``, which no model should see.
    attach : callable, optional
        Adds images to the rows of a federation.
    revision : str, optional
        Branch, tag or commit of the repository.

    Returns
    -------
    FlowerFederation
        ``load_partition(i, split)`` with a number or a name, ``load_split(split)``,
        ``clients(split)`` and ``partitioners``. Where clients have rows in several splits, a
        client has one number in all of them; where whole clients are test, each split numbers
        its own. Nothing is shuffled and nothing is reported to anyone.

    Raises
    ------
    RecipeError
        If the config is missing, or a federation comes with one.
    OutputError
        If folder or repository cannot be loaded.
    """
    if isinstance(source, Federation):
        if config is not None:
            raise RecipeError(f"{source.recipe}: a federation is one config; name no other.")
        return FlowerFederation(to_datasets(source, attach=attach), provenance=provenance)
    if config is None:
        raise RecipeError(f"{source}: name one of its configs, such as 'value-silo'.")
    import datasets

    try:
        splits = datasets.load_dataset(str(source), config, revision=revision)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise OutputError(f"{source}: {config} cannot be loaded ({reason}).") from None
    return FlowerFederation(splits, provenance=provenance)


def _clients(split: Any) -> tuple[str, ...]:
    return tuple(sorted(split.unique("client_id")))
