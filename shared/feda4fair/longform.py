"""The long-form statistics table: one row per client, attribute, value and metric.

Column order and dtypes are fixed, and every number is made of counts by IEEE arithmetic in a fixed
order, so that the same counts give the same table everywhere. Null marks what is undefined; the
column ``reason`` says why.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from feda4fair.rates import Against
from feda4fair.uncertainty import Assessment, Contrast

__all__ = ["STATISTICS", "statistics_block"]

_NAMES = pa.list_(pa.field("element", pa.string()))

STATISTICS = pa.schema(
    [
        pa.field("scope", pa.string(), nullable=False),
        pa.field("client_id", pa.string()),
        pa.field("attribute", pa.string(), nullable=False),
        pa.field("value", pa.string(), nullable=False),
        pa.field("code", pa.string(), nullable=False),
        pa.field("metric", pa.string(), nullable=False),
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("n", pa.int64(), nullable=False),
        pa.field("support", pa.int64(), nullable=False),
        pa.field("positives", pa.int64(), nullable=False),
        pa.field("rate", pa.float64()),
        pa.field("rest_support", pa.int64(), nullable=False),
        pa.field("rest_positives", pa.int64(), nullable=False),
        pa.field("rest_rate", pa.float64()),
        pa.field("gap", pa.float64()),
        pa.field("gap_low", pa.float64()),
        pa.field("gap_high", pa.float64()),
        pa.field("p", pa.float64()),
        pa.field("p_adjusted", pa.float64()),
        pa.field("detectable_gap", pa.float64()),
        pa.field("significant", pa.bool_(), nullable=False),
        pa.field("disparity", pa.float64()),
        pa.field("against", pa.string(), nullable=False),
        pa.field("argmax", _NAMES, nullable=False),
        pa.field("worst_set", _NAMES, nullable=False),
        pa.field("verdict", pa.string(), nullable=False),
        pa.field("toward", pa.string()),
        pa.field("dominant_attribute", pa.string()),
        pa.field("reason", pa.string()),
    ]
)
"""Schema of the statistics table.

``scope`` is ``client`` or ``pooled`` (then ``client_id`` is null). ``n`` counts all rows of the
value, ``support`` those in the metric's stratum, ``positives`` those among them with outcome 1;
``gap`` is the signed gap against the rest with its simultaneous interval. ``disparity``,
``argmax``, ``worst_set``, ``verdict`` and ``toward`` belong to the client's attribute and repeat
over its values: ``argmax`` is the plain maximum of the definition in ``against`` (under ``pairs``
the lowest-rate value, as in the paper's tables), ``worst_set`` what the tests leave.
``dominant_attribute`` belongs to the client.
"""


def statistics_block(
    found: Assessment,
    *,
    clients: tuple[str, ...] | None,
    rows: NDArray[np.int64],
    dominant: Contrast | None,
    against: Against,
) -> pa.Table:
    """Return the rows of one attribute under one metric.

    Parameters
    ----------
    found : Assessment
        Of K clients and V values.
    clients : tuple of str, K names, or None
        None for the pooled rows.
    rows : ndarray of int64, shape (K, V)
        All rows of each value, whatever their label.
    dominant : Contrast or None
        Which attribute dominates, when there are several.
    against : {"rest", "pairs"}
        Definition of ``disparity`` and ``argmax``.

    Returns
    -------
    pyarrow.Table
        K x V rows with the schema :data:`STATISTICS`.
    """
    part = found.part
    count, width = part.support.shape
    scope = "pooled" if clients is None else "client"
    names = [None] * count if clients is None else list(clients)
    values = part.attribute.values

    def each_value(texts: Iterable[str]) -> Any:
        return _repeat(list(texts), np.tile(np.arange(width), count))

    def each_client(items: list[Any], dtype: Any = None) -> Any:
        return _repeat(items, np.repeat(np.arange(count), width), dtype)

    def constant(text: str) -> Any:
        return pa.repeat(text, count * width)

    rest, rest_positives = part.total - part.support, part.total_positives - part.positives
    argmax = part.attained(against)
    columns: dict[str, Any] = {
        "scope": constant(scope),
        "client_id": each_client(names, pa.string()),
        "attribute": constant(part.attribute.name),
        "value": each_value(values),
        "code": each_value(map(str, part.attribute.codes)),
        "metric": constant(part.metric),
        "outcome": constant(part.outcome),
        "n": _flat(rows),
        "support": _flat(part.support),
        "positives": _flat(part.positives),
        "rate": _flat(part.rate()),
        "rest_support": _flat(rest),
        "rest_positives": _flat(rest_positives),
        "rest_rate": _flat(part.rest_rate()),
        "gap": _flat(part.gap()),
        "gap_low": _flat(found.low),
        "gap_high": _flat(found.high),
        "p": _flat(found.p),
        "p_adjusted": _flat(found.p_adjusted),
        "detectable_gap": _flat(found.detectable),
        "significant": _flat(found.significant),
        "disparity": _flat(np.broadcast_to(part.size(against)[:, None], (count, width))),
        "against": constant(against),
        "argmax": each_client([_named(values, row) for row in argmax], _NAMES),
        "worst_set": each_client([found.worst_values(k) for k in range(count)], _NAMES),
        "verdict": each_client(list(found.verdicts)),
        "toward": each_client([found.toward(k) for k in range(count)], pa.string()),
        "dominant_attribute": each_client(
            [dominant.dominant(k) if dominant else None for k in range(count)], pa.string()
        ),
        "reason": pa.array(part.reasons().ravel(), pa.string()),
    }
    return pa.Table.from_arrays([columns[field.name] for field in STATISTICS], schema=STATISTICS)


def _named(values: tuple[str, ...], mask: NDArray[np.bool_]) -> tuple[str, ...]:
    return tuple(values[z] for z in np.flatnonzero(mask))


def _flat(array: NDArray[Any]) -> Any:
    return pa.array(np.ascontiguousarray(array).ravel(), from_pandas=True)


def _repeat(items: list[Any], positions: NDArray[np.int64], dtype: Any = None) -> Any:
    return pa.array(items, dtype or pa.string()).take(pa.array(positions))
