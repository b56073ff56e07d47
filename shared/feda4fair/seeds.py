"""Independent random streams, keyed by names.

A stream belongs to its key, not to a position in a loop: adding a client, changing another
client's rate or the number of workers moves nothing else. Only raw bits are drawn, since NumPy
guarantees the raw stream of a bit generator but not the methods built on it.
"""

from __future__ import annotations

from hashlib import blake2b
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

__all__ = ["choice", "key", "normal", "permutation", "raw_bits", "uniforms"]

_LARGE = 1 << 25
"""Numbers from which on memory matters more than speed."""


def key(seed: int, *names: str | int) -> int:
    """Return the 128-bit key of a seed and names: a random order of names where compared."""
    text = "\x1f".join(f"{type(name).__name__}:{name}" for name in (seed, *names))
    return int.from_bytes(blake2b(text.encode(), digest_size=16).digest(), "little")


def raw_bits(seed: int, *names: str | int, size: int) -> NDArray[np.uint64]:
    """Return the first raw bits of the stream keyed by a seed and names.

    Parameters
    ----------
    seed : int
        Seed of the recipe.
    *names : str or int
        What the stream is for, e.g. ``("value-silo", "TX", 0, "drop")``.
    size : int
        Number of draws.

    Returns
    -------
    ndarray of uint64, shape (size,)
        Philox4x64 output under a 128-bit BLAKE2b key of the names.

    Examples
    --------
    >>> raw_bits(7, "TX", 0, "drop", size=3)[:2].tolist() == raw_bits(
    ...     7, "TX", 0, "drop", size=2
    ... ).tolist()
    True
    """
    bits: NDArray[np.uint64] = np.random.Philox(key=key(seed, *names)).random_raw(size)
    return bits


def uniforms(seed: int, *names: str | int, size: int) -> NDArray[np.float64]:
    """Return uniform draws in [0, 1) with 53 bits, one for each raw draw of the stream."""
    bits = raw_bits(seed, *names, size=size) >> np.uint64(11)
    return bits.astype(np.float64) * 2.0**-53


def permutation(seed: int, *names: str | int, size: int) -> NDArray[np.int64]:
    """Return a random order of ``range(size)``: the stable rank order of raw bits."""
    return _stable_order(raw_bits(seed, *names, size=size))


def _stable_order(bits: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return ``argsort(bits, kind="stable")`` of random bits, several times as fast.

    Each number is sorted with its own position in place of its low bits; the few that agree in
    what is left of them are ordered by all their bits afterwards.
    """
    if len(bits) < 2:
        return np.arange(len(bits))
    if len(bits) > _LARGE:
        return _order_by_eighths(bits)
    width = np.uint64((len(bits) - 1).bit_length())
    low = (np.uint64(1) << width) - np.uint64(1)
    packed = (bits & ~low) | np.arange(len(bits), dtype=np.uint64)
    packed.sort()
    order = (packed & low).astype(np.int64)
    packed >>= width
    tied = np.concatenate(([False], packed[1:] == packed[:-1], [False]))
    starts, stops = np.flatnonzero(~tied[:-1] & tied[1:]), np.flatnonzero(tied[:-1] & ~tied[1:])
    for start, stop in zip(starts, stops + 1, strict=True):
        run = order[start:stop]
        order[start:stop] = run[np.argsort(bits[run], kind="stable")]
    return order


def _order_by_eighths(bits: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Order one eighth of the range after the other, which takes an eighth of the memory."""
    order = np.empty(len(bits), dtype=np.int64)
    start = 0
    for eighth in range(8):
        low, high = np.uint64(eighth << 61), np.uint64((eighth + 1 << 61) - 1)
        rows = np.flatnonzero((bits >= low) & (bits <= high))
        stop = start + len(rows)
        order[start:stop] = rows[_stable_order(bits[rows])]
        start = stop
    return order


def choice(seed: int, *names: str | int, size: int, count: int) -> NDArray[np.int64]:
    """Return ``count`` of ``range(size)`` without replacement, in random order.

    The choice is nested: a larger count returns a superset, so a higher drop rate drops the
    same rows and more.

    Examples
    --------
    >>> small = choice(7, "TX", size=100, count=10)
    >>> large = choice(7, "TX", size=100, count=20)
    >>> set(small) <= set(large)
    True
    """
    return permutation(seed, *names, size=size)[:count]


def normal(seed: int, *names: str | int, mean: float, std: float) -> float:
    """Return one Gaussian draw: the inverse CDF at the middle of a 53-bit cell.

    Parameters
    ----------
    seed, *names : int, str
        Key of the stream.
    mean, std : float
        Mean and standard deviation (not variance).
    """
    if std == 0:
        return mean
    unit = (int(raw_bits(seed, *names, size=1)[0]) >> 11) + 0.5
    return NormalDist(mean, std).inv_cdf(unit * 2.0**-53)
