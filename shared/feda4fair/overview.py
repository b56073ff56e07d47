"""The two tables that a reader of a report sees first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import numpy as np
import pandas as pd

from feda4fair.finding import Finding
from feda4fair.rates import Against, Metric
from feda4fair.render import Page
from feda4fair.uncertainty import Assessment, Verdict

__all__ = ["largest", "page", "ranked_row", "summary"]

Assessments = Mapping[tuple[str, Metric], Assessment]

_AGAINST = {"rest": "each value against the rest", "pairs": "highest minus lowest rate"}

_NOTES = (
    "toward: one value is worse than every other, by exact tests with false discoveries held at "
    "5 % of clients; disparity: detected, but which value is not told; small: all gaps within "
    "0.05; undetermined: too few rows to say; undefined: no figure, and none enters a maximum.",
    "Disparities of a fixed file are exact; tests and intervals concern the process that made "
    "its rows.",
)


def summary(clients: Assessments, pooled: Assessments, against: Against) -> pd.DataFrame:
    """Return one row per attribute and metric.

    Parameters
    ----------
    clients, pooled : mapping of (attribute, metric) to Assessment
        Of every client, and of all rows as one client.
    against : {"rest", "pairs"}
        Definition.

    Returns
    -------
    pandas.DataFrame
        ``clients`` with a figure, its ``median`` and ``largest``, the figure of all rows
        ``pooled``, and the number of clients of each verdict.
    """
    rows = []
    for (name, metric), found in clients.items():
        sizes = found.part.size(against)
        known = sizes[~np.isnan(sizes)]
        rows.append(
            {
                "attribute": name,
                "metric": metric,
                "clients": len(known),
                "pooled": float(pooled[name, metric].part.size(against)[0]),
                "median": float(np.median(known)) if len(known) else np.nan,
                "largest": float(known.max()) if len(known) else np.nan,
                **{verdict: found.verdicts.count(verdict) for verdict in get_args(Verdict)},
            }
        )
    return pd.DataFrame(rows)


def largest(judged: Mapping[str, Assessment], against: Against) -> list[int]:
    """Return client positions by the largest figure over attributes, undefined ones last."""
    sizes = np.array([found.part.size(against) for found in judged.values()])
    most = np.nan_to_num(sizes, nan=-1.0).max(axis=0)
    order: list[int] = np.argsort(-most, kind="stable").tolist()
    return order


def ranked_row(found: Finding, judged: Assessment, client: int, rows: int) -> dict[str, object]:
    """Return one client's line: its largest disparity, the lowest gap with its interval."""
    size = found.disparity.size
    low = int(judged.part.worst()[client].argmax())
    gap = judged.part.gap()[client, low]
    bounds = f"{judged.low[client, low]:+.3f} to {judged.high[client, low]:+.3f}"
    return {
        "client": found.client,
        "rows": rows,
        "attribute": found.attribute,
        "DD": "-" if size is None else f"{size:.3f}",
        "worst": ", ".join(found.worst_set) or "-",
        "lowest gap": "-" if size is None else f"{gap:+.3f} ({bounds})",
        "n": "-" if size is None else str(judged.part.support[client, low]),
        "verdict": f"toward {found.toward}" if found.toward else found.verdict,
    }


def page(
    *, title: str, outcome: str, against: Against, tables: Mapping[str, pd.DataFrame]
) -> Page:
    """Return the page that a terminal and a notebook show."""
    return Page(
        title=title, caption=f"{outcome}; {_AGAINST[against]}", tables=tables, notes=_NOTES
    )
