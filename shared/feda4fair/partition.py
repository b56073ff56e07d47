"""How rows become clients: partitions as data.

A partition is a frozen data class here and one function in :mod:`feda4fair.assign`.
"""

from __future__ import annotations

import base64
import math
from dataclasses import KW_ONLY, dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from feda4fair.errors import RecipeError
from feda4fair.typed import check_fields

__all__ = [
    "Assigned",
    "Dirichlet",
    "Iid",
    "LogNormal",
    "Natural",
    "Partition",
    "PowerLaw",
    "Shards",
    "Sizes",
    "Subdivide",
]

MOST: Final = 1_000_000
"""Bound of clients and parts: a recipe is read from untrusted files, and names cost memory."""


LEAST_ALPHA: Final = 1e-300
"""Least concentration whose draws can be computed, in logarithms."""


def _check_clients(kind: object, clients: int, smallest: int = 1) -> None:
    name = type(kind).__name__
    if not 1 <= clients <= MOST:
        raise RecipeError(f"{name}(clients={clients}): 1 to {MOST:,} clients can be made.")
    if smallest < 1:
        raise RecipeError(
            f"{name}(smallest={smallest}): every client gets at least 1 row; use 1 or more."
        )


@dataclass(frozen=True, slots=True)
class Natural:
    """One client for each value of a column of the source.

    Examples
    --------
    >>> Natural("state")
    Natural(column='state')
    """

    column: str

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class PowerLaw:
    """Client sizes proportional to ``rank ** -exponent``; ranks are dealt at random."""

    exponent: float = 1.0

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 <= self.exponent <= 10:
            raise RecipeError(f"PowerLaw(exponent={self.exponent}): use 0 (equal sizes) to 10.")


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Client sizes proportional to ``exp(sigma * z)`` with z standard normal."""

    sigma: float = 1.0

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 <= self.sigma <= 10:
            raise RecipeError(f"LogNormal(sigma={self.sigma}): use 0 (equal sizes) to 10.")


Sizes = PowerLaw | LogNormal | tuple[float, ...] | None


@dataclass(frozen=True, slots=True)
class Iid:
    """Rows in random order, dealt to clients whatever the rows hold.

    Parameters
    ----------
    clients : int
        Number of clients.
    sizes : PowerLaw, LogNormal, tuple of float, or None
        Relative sizes; a tuple gives one positive number for each client, in client order. None
        makes all clients equal, within one row.
    smallest : int, default 1
        No client gets fewer rows; where that cannot be, an error says so.
    """

    clients: int
    _: KW_ONLY
    sizes: Sizes = None
    smallest: int = 1

    def __post_init__(self) -> None:
        check_fields(self)
        _check_clients(self, self.clients, self.smallest)
        if not isinstance(self.sizes, tuple):
            return
        if len(self.sizes) != self.clients:
            raise RecipeError(
                f"Iid(clients={self.clients}): {len(self.sizes)} sizes are given; give one for "
                "each client."
            )
        if not all(0 < size < math.inf for size in self.sizes):
            raise RecipeError("Iid: every size must be a positive number; leave the client out.")


@dataclass(frozen=True, slots=True)
class Dirichlet:
    """Rows of each level of ``by`` are shared among clients by a Dirichlet draw.

    Parameters
    ----------
    clients : int
        Number of clients.
    by : str or tuple of str, default "label"
        ``label``, sensitive attributes, or several: then each combination is a level.
    alpha : float, default 0.5
        Concentration. Small means skewed (near 0, a level lies with one client); large means
        alike (toward infinity, every client mirrors the whole).
    smallest : int, default 1
        No client gets fewer rows. Draws are repeated, at most a hundred times, until that holds;
        else an error names what is feasible.

    References
    ----------
    Hsu, Qi, Brown (2019), Measuring the effects of non-identical data distribution for federated
    visual classification.
    """

    clients: int
    _: KW_ONLY
    by: tuple[str, ...] = ("label",)
    alpha: float = 0.5
    smallest: int = 1

    def __post_init__(self) -> None:
        _one_name(self)
        check_fields(self)
        _check_clients(self, self.clients, self.smallest)
        if not LEAST_ALPHA <= self.alpha < math.inf:
            raise RecipeError(
                f"Dirichlet(alpha={self.alpha}): use a positive number, {LEAST_ALPHA:g} or more; "
                "small means more skew."
            )


@dataclass(frozen=True, slots=True)
class Shards:
    """Rows sorted by level, cut into equal shards, a few of which go to each client.

    Parameters
    ----------
    clients : int
        Number of clients.
    by : str or tuple of str, default "label"
        What the rows are sorted by, as in :class:`Dirichlet`; rows of a level are in random order.
    per_client : int, default 2
        Shards of each client; one or two of them mean one or two levels.

    References
    ----------
    McMahan, Moore, Ramage, Hampson, Agüera y Arcas (2017), Communication-efficient learning of
    deep networks from decentralized data.
    """

    clients: int
    _: KW_ONLY
    by: tuple[str, ...] = ("label",)
    per_client: int = 2

    def __post_init__(self) -> None:
        _one_name(self)
        check_fields(self)
        _check_clients(self, self.clients)
        if not 1 <= self.per_client <= MOST // self.clients:
            raise RecipeError(
                f"Shards(clients={self.clients}, per_client={self.per_client}): 1 to {MOST:,} "
                "shards can be made in all."
            )


def _one_name(partition: Dirichlet | Shards) -> None:
    """Take one name for a tuple of one; at least one is needed."""
    if isinstance(partition.by, str):
        object.__setattr__(partition, "by", (partition.by,))
    if not partition.by:
        raise RecipeError(
            f"{type(partition).__name__}: by names nothing; use label or a sensitive attribute."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """A partition made elsewhere, kept as the client of every row of the source.

    Parameters
    ----------
    clients : tuple of str
        Client names, sorted.
    rows : int
        Rows of the source.
    codes : str
        Base64 of one little-endian unsigned integer for each row: its client's position, or
        ``len(clients)`` where no client gets the row. The smallest of 1, 2 and 4 bytes is used.

    Examples
    --------
    >>> Assigned.of(("a", "b"), np.array([0, 1, 1])).decode().tolist()
    [0, 1, 1]
    """

    clients: tuple[str, ...]
    rows: int
    codes: str

    def __post_init__(self) -> None:
        check_fields(self)
        _check_clients(self, len(self.clients))
        if list(self.clients) != sorted(set(self.clients)):
            raise RecipeError("Assigned: client names must be sorted and different.")
        size = self.rows * _width(len(self.clients)).itemsize
        if len(self.codes) != -(-size // 3) * 4:  # before gigabytes are decoded in vain
            raise RecipeError(
                f"Assigned: {len(self.codes):,} characters of codes do not fit {self.rows:,} rows "
                f"and {len(self.clients)} clients; store the partition anew."
            )
        codes = self.decode()
        if len(codes) != self.rows or (len(codes) and codes.max() >= len(self.clients)):
            raise RecipeError(
                f"Assigned: {len(codes)} codes up to {codes.max(initial=-1)} for {self.rows} rows "
                f"and {len(self.clients)} clients; store the partition anew."
            )

    @classmethod
    def of(cls, clients: tuple[str, ...], codes: NDArray[np.int32]) -> Assigned:
        """Keep an assignment: client names, and the position of each row's client (-1: none)."""
        codes = np.asarray(codes)
        is_whole = codes.ndim == 1 and np.issubdtype(codes.dtype, np.integer)
        if not is_whole or codes.min(initial=0) < -1 or codes.max(initial=-1) >= len(clients):
            raise RecipeError(
                f"Assigned: codes must be whole numbers from -1 to {len(clients) - 1}, one for "
                f"each row; got {codes.dtype} of shape {codes.shape}, {codes.min(initial=0)} to "
                f"{codes.max(initial=-1)}."
            )
        order = sorted(range(len(clients)), key=clients.__getitem__)
        rank = np.empty(len(clients) + 1, dtype=np.int64)
        rank[order], rank[-1] = np.arange(len(clients)), len(clients)
        packed = rank[codes].astype(_width(len(clients)))
        text = base64.b64encode(packed.tobytes()).decode("ascii")
        return cls(clients=tuple(clients[i] for i in order), rows=len(codes), codes=text)

    def decode(self) -> NDArray[np.int32]:
        """Return the position of each row's client, -1 where none gets it, shape (rows,)."""
        width = _width(len(self.clients))
        try:
            packed = np.frombuffer(base64.b64decode(self.codes, validate=True), width)
        except ValueError:
            raise RecipeError(
                "Assigned: codes are not whole Base64 numbers; store the partition anew."
            ) from None
        codes = packed.astype(np.int32)
        codes[codes == len(self.clients)] = -1
        return codes


def _width(clients: int) -> np.dtype[np.unsignedinteger]:
    return np.dtype("<u1" if clients < 2**8 else "<u2" if clients < 2**16 else "<u4")


Partition = Natural | Iid | Dirichlet | Shards | Assigned


@dataclass(frozen=True, slots=True)
class Subdivide:
    """Cut every client, after injection, into clients named ``<client>_<i>``.

    Parameters
    ----------
    parts : int, optional
        Number of pieces, at least 2.
    rows : int, optional
        Instead: as many pieces as ``rows`` fits into the client's rows, at least one.
    cut : {"balanced", "floor"}
        "balanced" gives pieces that differ by at most one row, the first ones larger; "floor"
        gives pieces of ``n // parts`` rows and leaves the last ``n % parts`` rows out.
    """

    parts: int | None = None
    _: KW_ONLY
    rows: int | None = None
    cut: Literal["balanced", "floor"] = "balanced"

    def __post_init__(self) -> None:
        check_fields(self)
        if (self.parts is None) == (self.rows is None):
            raise RecipeError("Subdivide: name either parts or rows.")
        if self.parts is not None and not 2 <= self.parts <= MOST:
            raise RecipeError(f"Subdivide(parts={self.parts}): 2 to {MOST:,} parts can be made.")
        if self.rows is not None and self.rows < 1:
            raise RecipeError(f"Subdivide(rows={self.rows}): a piece has at least 1 row.")

    def pieces(self, rows: int) -> int:
        """Return the number of pieces of a client with that many rows."""
        if self.parts is not None:
            return self.parts
        assert self.rows is not None
        return min(max(1, rows // self.rows), MOST)

    def may_be(self, piece: str) -> bool:
        """Tell whether a piece may carry this number."""
        if not (piece.isascii() and piece.isdigit() and str(int(piece)) == piece):
            return False
        return int(piece) < (self.parts or MOST)
