"""Charts of the page, drawn by Vega in the browser from counts and reports.

Color and shape of a value, and what a sign means, are those of :mod:`feda4fair.plots`. A chart
holds at most :data:`MOST_BARS` clients, evenly spaced by size or disparity; each has a title,
axis titles and a legend below.
"""

from __future__ import annotations

from typing import Any, Final

import altair as alt
import numpy as np
import pandas as pd

from feda4fair.cube import Cube
from feda4fair.disparity import Figure
from feda4fair.drawing import COLORS, GRAY, MINUS
from feda4fair.points import FIGURES, leaders, outcome, points
from feda4fair.rates import Metric
from feda4fair.report import FairnessReport

__all__ = ["MOST_BARS", "dots", "heat_map", "shares", "sizes", "top"]

MOST_BARS: Final = 150
HEIGHT: Final = 340
"""Pixels of a chart with its title, axis and legend."""
PALETTE: Final = [*COLORS[:-1], "#A0A0A0", "#8C564B", "#17BECF"]
"""Of the paper's figures; black, which a dark page swallows, gives way to gray."""
SHAPES: Final = ["circle", "square", "triangle-up", "diamond", "triangle-down", "cross"]
SIGNS: Final = {
    "told": "told apart from chance",
    "untold": "biased, but which is open",
    "small": "small",
    "undetermined": "undetermined",
    "undefined": "no figure",
}
"""What a point's filling means."""
FILL: Final = {"told": 1.0, "untold": 0.45, "small": 0.2, "undetermined": 0.0, "undefined": 0.0}
RATES: Final = {"DD": "rate", "TPR": "true positive rate", "FPR": "false positive rate"}


def _shown(order: Any) -> Any:
    """Return positions of the clients that are drawn, ascending: all, or some evenly spaced."""
    ranked = np.argsort(order, kind="stable")
    if len(ranked) > MOST_BARS:
        ranked = ranked[np.linspace(0, len(ranked) - 1, MOST_BARS).round().astype(int)]
    return np.sort(ranked)


def _clients(names: list[str]) -> alt.X:
    """Return the axis of clients; many of them keep some of their names only."""
    return alt.X(
        "client:N",
        sort=names,
        title="Client",
        axis=alt.Axis(labelOverlap="greedy", labelAngle=-90, labelLimit=90, ticks=False),
    )


def _color(field: str, title: str, names: list[str]) -> alt.Color:
    scale = alt.Scale(domain=names, range=[PALETTE[i % len(PALETTE)] for i in range(len(names))])
    return alt.Color(f"{field}:N", title=title, scale=scale, legend=_legend())


def _legend() -> alt.Legend:
    return alt.Legend(orient="bottom", columns=3, labelLimit=220, titleLimit=400)


def _finish(chart: Any, title: str, height: int = HEIGHT) -> Any:
    head = alt.TitleParams(title, anchor="start", fontSize=14, limit=900)
    fit = alt.AutoSizeParams(type="fit", contains="padding")
    return chart.properties(title=head, width="container", height=height, autosize=fit)


def sizes(cube: Cube, labels: tuple[str, str]) -> Any:
    """Return bars of the clients' rows, stacked by label."""
    at = _shown(cube.rows())
    counts = cube.counts.sum(axis=(1, 3))[at]
    names = [cube.clients[k] for k in at]
    frame = pd.DataFrame(
        {
            "client": np.repeat(names, 2),
            "label": np.tile(labels, len(names)),
            "rows": counts.ravel(),
        }
    )
    chart = alt.Chart(frame).mark_bar()
    chart = chart.encode(
        x=_clients(names),
        y=alt.Y("rows:Q", title="Rows"),
        color=_color("label", "Label", list(labels)),
        tooltip=["client", "label", alt.Tooltip("rows:Q", format=",")],
    )
    return _finish(chart, "Rows of each client, by label")


def shares(cube: Cube, attribute: str) -> Any:
    """Return bars of each client's shares of an attribute's values."""
    part = cube.on(attribute)
    at = _shown(cube.rows())
    counts = part.counts.sum(axis=(2, 3))[at]
    names, values = [cube.clients[k] for k in at], list(part.attributes[0].values)
    frame = pd.DataFrame(
        {
            "client": np.repeat(names, len(values)),
            "value": np.tile(values, len(names)),
            "rows": counts.ravel(),
        }
    )
    chart = alt.Chart(frame).mark_bar()
    chart = chart.encode(
        x=_clients(names),
        y=alt.Y("rows:Q", stack="normalize", title="Share", axis=alt.Axis(format="%")),
        color=_color("value", attribute, values),
        tooltip=["client", "value", alt.Tooltip("rows:Q", format=",")],
    )
    return _finish(chart, f"{attribute} in each client")


def top(reports: list[FairnessReport], attribute: str | None, figure: Figure) -> float:
    """Return the end of an axis that two charts share."""
    ends = [
        float(np.nanmax(np.r_[0.02, _points(report, attribute, figure)["high"]]))
        for report in reports
    ]
    return min(1.0, 1.05 * max(ends))


def _points(report: FairnessReport, attribute: str | None, figure: Figure) -> pd.DataFrame:
    """Return one row per client: what its dot shows."""
    if attribute is not None:
        one = points(report, attribute, figure, level="value")
        values = (*one.attribute.values, "none")  # noqa: PD011 - names, not a frame
        found = {"size": one.size, "low": one.low, "high": one.high}
        kinds, signs = [values[k] for k in one.value], one.signs
    else:
        leader, signs = leaders(report, figure)
        each = [points(report, name, figure, level="attribute") for name in report.contenders]
        names = (*report.contenders, "none")
        rows = np.arange(len(leader))
        found = {
            end: np.stack([getattr(one, end) for one in each])[np.maximum(leader, 0), rows]
            for end in ("size", "low", "high")
        }
        kinds = [names[k] for k in leader]
    frame = pd.DataFrame({"client": report.clients, **found, "kind": kinds, "sign": signs})
    return frame.assign(known=frame["sign"].map(SIGNS), fill=frame["sign"].map(FILL))


def dots(
    report: FairnessReport, attribute: str | None, figure: Figure, *, end: float, title: str
) -> Any:
    """Return one dot per client, colored by its dominant attribute or most disadvantaged value.

    Parameters
    ----------
    report : FairnessReport
        Of labels or predictions.
    attribute : str or None
        None colors by attribute, a name by that attribute's values.
    figure : {"DD", "EOD"}
        Which figure.
    end : float
        End of the axis.
    title : str
        What this report is, e.g. "Before injection".
    """
    frame = _points(report, attribute, figure)
    frame = frame.iloc[_shown(frame["size"].fillna(-1).to_numpy())]
    names = list(frame["client"])
    measured = {one.name: one for one in report.attributes()}
    kinds = [*report.contenders] if attribute is None else [*measured[attribute].values]  # noqa: PD011 - as above
    base = alt.Chart(frame)
    scale = alt.Scale(domain=[0, end])
    lines = base.mark_rule(opacity=0.4, color=GRAY, strokeWidth=0.8).encode(
        x=_clients(names),
        y=alt.Y("low:Q", scale=scale, title=FIGURES[figure].capitalize()),
        y2="high:Q",
    )
    what = (
        "Attribute with the largest disparity"
        if attribute is None
        else f"Worst value of {attribute}"
    )
    shape = alt.Shape(
        "kind:N",
        title=what,
        scale=alt.Scale(domain=kinds, range=[SHAPES[i % len(SHAPES)] for i in range(len(kinds))]),
        legend=_legend(),
    )
    marks = base.mark_point(size=55, strokeWidth=1.5).encode(
        x=_clients(names),
        y=alt.Y("size:Q", scale=scale),
        color=_color("kind", what, kinds),
        fill=_color("kind", what, kinds),
        shape=shape,
        fillOpacity=alt.FillOpacity("fill:Q", scale=None),
        tooltip=[
            "client",
            alt.Tooltip("kind", title=what),
            alt.Tooltip("size", title=figure, format=".3f"),
            alt.Tooltip("low", format=".3f"),
            alt.Tooltip("high", format=".3f"),
            alt.Tooltip("known", title="verdict"),
        ],
    )
    return _finish(lines + marks, f"{title}: {figure} of {outcome(report)}", 380)


def heat_map(
    report: FairnessReport, attribute: str, metric: Metric, *, limit: float, title: str
) -> Any:
    """Return signed gaps of every client and value; a ring marks what is significant."""
    found = report.assessments[attribute, metric]
    at = _shown(found.part.support.sum(axis=1))
    values, names = list(found.part.attribute.values), [report.clients[k] for k in at]
    frame = pd.DataFrame(
        {
            "client": np.repeat(names, len(values)),
            "value": np.tile(values, len(names)),
            "gap": found.part.gap()[at].ravel(),
            "low": found.low[at].ravel(),
            "high": found.high[at].ravel(),
            "rows": found.part.support[at].ravel(),
            "sure": found.significant[at].ravel(),
        }
    )
    y = alt.Y("value:N", sort=values, title=attribute, axis=alt.Axis(labelLimit=130))
    scale = alt.Scale(domain=[-limit, 0, limit], range=["#B2182B", "#F7F7F7", "#2166AC"])
    bar = alt.Legend(orient="bottom", format="+.2f", gradientLength=220, titleLimit=400)
    none = alt.Chart(frame[frame["gap"].isna()]).mark_rect(color=GRAY, opacity=0.5)
    cells = alt.Chart(frame).mark_rect()
    cells = cells.encode(
        x=_clients(names),
        y=y,
        color=alt.Color(
            "gap:Q",
            scale=scale,
            title=f"{RATES[metric].capitalize()} {MINUS} that of the rest",
            legend=bar,
        ),
        tooltip=[
            "client",
            "value",
            alt.Tooltip("gap:Q", format="+.3f"),
            alt.Tooltip("low:Q", format="+.3f"),
            alt.Tooltip("high:Q", format="+.3f"),
            alt.Tooltip("rows:Q", format=","),
            alt.Tooltip("sure", title="significant"),
        ],
    )
    marks = alt.Chart(frame[frame["sure"]]).mark_point(size=14, filled=True, color="black")
    return _finish(
        none.encode(x=_clients(names), y=y) + cells + marks.encode(x=_clients(names), y=y),
        f"{title}: {metric} gaps of {attribute} (dot: significant, gray: no figure)",
        210 + max(60, 26 * len(values)),
    )
