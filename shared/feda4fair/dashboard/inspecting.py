"""Step 4, Inspect: the disparities of every client, before and after injection."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd
import streamlit as st

from feda4fair.dashboard import charts
from feda4fair.dashboard.splitting import counted
from feda4fair.dashboard.state import KEEP, Session, plain, result, show_table
from feda4fair.disparity import PARTS, Figure
from feda4fair.evaluate import MODELS, Model
from feda4fair.measurement import contenders
from feda4fair.points import FIGURES, describe
from feda4fair.rates import Metric
from feda4fair.recipe import Recipe
from feda4fair.report import FairnessReport

__all__ = ["show", "table"]

SIDES: Final = ("Before injection", "After injection")
LABELS: Final = "labels, before any training"
LEADING: Final = "each client's dominant attribute"
MOST_RANKED: Final = 10


def show(here: Session) -> None:
    """Show the step: figures of both sides, charts side by side, and the table behind them."""
    st.subheader("Inspect: how unfair is each client?")
    one, two, three = st.columns(3)
    kinds = [LABELS, *(f"predictions of local {name} models" for name in MODELS.values())]
    kind = one.selectbox("Measured on", kinds, key=f"{KEEP}measured")
    model = None if kind == LABELS else list(MODELS)[kinds.index(kind) - 1]
    figures: list[Figure] = ["DD"] if model is None else ["DD", "EOD"]
    figure = two.selectbox(
        "Figure",
        figures,
        format_func=lambda name: f"{FIGURES[name].capitalize()} ({name})",
        key=f"{KEEP}figure-{len(figures)}",
        help="EOD needs predictions: choose local models.",
    )
    reports = _reports(here, model)
    if reports is None or not _judged(here, reports, model, figure):
        return
    choices = [LEADING] if len(reports[1].contenders) > 1 else []
    choices += [attribute.name for attribute in reports[1].attributes()]
    level = three.selectbox("Color by", choices, key=f"{KEEP}level-{'-'.join(choices)}")
    attribute = None if level == LEADING else level
    _show_pooled(reports, figure)
    _show_charts(reports, attribute, figure)
    _show_ranking(reports[1], figure)
    _show_table(reports, attribute or reports[1].contenders[0], figure)


def _reports(here: Session, model: Model | None) -> list[FairnessReport] | None:
    """Return the reports before and after injection."""
    if model is None:
        found = counted(here, here.recipe)
        return None if found is None else list(found.reports)
    reports = []
    for recipe in (here.clean, here.recipe):
        modeled = _model(here, recipe, model)
        if modeled is None:
            return None
        reports.append(modeled.report)
        if modeled.notes:
            with st.expander(f"{len(modeled.notes)} notes on the models of {recipe}"):
                st.markdown("\n".join(f"- {plain(note)}" for note in modeled.notes[:50]))
    return reports


def _judged(
    here: Session, reports: list[FairnessReport], model: Model | None, figure: Figure
) -> bool:
    rows = here.rows
    assert rows is not None, "the step is open once there are rows"
    kind = f"verdicts {model} {figure}"
    judged = result(
        kind, here.recipe, "Judging clients", lambda tick: rows.judge(reports, figure, tick)
    )
    return bool(judged)


def _model(here: Session, recipe: Recipe, model: Model) -> Any:
    rows = here.rows
    assert rows is not None, "the step is open once there are rows"
    compare = contenders(here.recipe)
    return result(
        f"model {model} {compare}",
        recipe,
        f"Training each client's {MODELS[model]} model",
        lambda tick: rows.model(recipe, model, compare, tick),
    )


def _sizes(report: FairnessReport, name: str, figure: Figure) -> Any:
    return report.attribute(name, figure)["size"].astype("float64")


def _show_pooled(reports: list[FairnessReport], figure: Figure) -> None:
    """Show of each attribute the pooled figure and the clients' median, after and before.

    Counts are exact and pooled figures have six digits: one label among a million shows.
    """
    for report, side in zip(reports, SIDES, strict=True):
        cells = report.cube.counts.sum(axis=(0, 1))
        good, rows = int(cells[1].sum()), int(cells.sum())
        st.caption(f"{side}: {good:,} of {rows:,} measured rows have the favorable label.")
    for attribute in reports[1].attributes():
        name = attribute.name
        pooled = [one.pooled.finding("pooled", name, figure).disparity.size for one in reports]
        middle = [float(np.nanmedian(_sizes(one, name, figure))) for one in reports]
        told = [int((one.attribute(name, figure)["verdict"] == "toward").sum()) for one in reports]
        st.markdown(f"**{plain(name)}**")
        one, two, three = st.columns(3)
        _metric(one, f"Pooled {figure}", pooled[1], pooled[0], digits=6)
        _metric(two, f"Median {figure} of clients", middle[1], middle[0])
        three.metric(
            "Biased toward one value",
            f"{told[1]} of {len(reports[1].clients):,}",
            f"{told[1] - told[0]:+} by injection",
            delta_color="inverse" if told[1] != told[0] else "off",
            delta_arrow="auto" if told[1] != told[0] else "off",
            border=True,
            help="Said only where it can be told apart from chance.",
        )


def _metric(
    place: Any, name: str, after: float | None, before: float | None, digits: int = 4
) -> None:
    shown = "undefined" if after is None or np.isnan(after) else f"{after:.{digits}f}"
    delta = None if before is None or after is None else f"{after - before:+.4f} by injection"
    still = delta is None or "0.0000" in delta
    place.metric(
        name,
        shown,
        delta,
        delta_color="off" if still else "inverse",
        delta_arrow="off" if still else "auto",
        border=True,
    )


def _show_charts(reports: list[FairnessReport], attribute: str | None, figure: Figure) -> None:
    end = charts.top(reports, attribute, figure)
    for place, report, side in zip(st.columns(2), reports, SIDES, strict=True):
        chart = charts.dots(report, attribute, figure, end=end, title=side)
        place.altair_chart(chart, alt=f"{side}: {describe(report, figure)}")
        place.caption(plain(describe(report, figure)))
    st.caption(
        "A dot is a client, a line its simultaneous 95 % interval. Filled: told apart from "
        "chance. Half: biased, but which is open. Pale: small. Hollow: undetermined."
    )
    name = attribute or reports[1].contenders[0]
    for metric in PARTS[figure]:
        gaps = [report.assessments[name, metric].part.gap() for report in reports]
        limit = max(0.01, *(float(np.nanmax(np.abs(np.r_[0.0, gap.ravel()]))) for gap in gaps))
        for report, side in zip(reports, SIDES, strict=True):
            chart = charts.heat_map(report, name, metric, limit=limit, title=side)
            st.altair_chart(chart, alt=f"{side}: {metric} gaps of {name}, as in the table below")
    if len(reports[1].clients) > charts.MOST_BARS:
        st.caption(
            f"Charts show {charts.MOST_BARS} of {len(reports[1].clients):,} clients; figures and "
            "the table have all."
        )


def _show_ranking(report: FairnessReport, figure: Figure) -> None:
    """Show the clients with the largest disparity, in words."""
    found = [report.worst(client, figure) for client in report.clients]
    known = [one for one in found if one.disparity.size is not None]
    known.sort(key=lambda one: -(one.disparity.size or 0))
    st.markdown(f"**Largest {FIGURES[figure]} after injection**")
    frame = pd.DataFrame(
        {
            "Client": one.client,
            "Attribute": one.attribute,
            figure: f"{one.disparity.size:.4f}",
            "Worst value": ", ".join(one.worst_set),
            "Verdict": f"toward {one.toward}" if one.toward else one.verdict,
        }
        for one in known[:MOST_RANKED]
    )
    if frame.empty:
        st.caption("No client has a figure.")
    else:
        show_table(frame)


def table(reports: list[FairnessReport], attribute: str, metric: Metric) -> pd.DataFrame:
    """Return every client and value of an attribute, before and after injection.

    Parameters
    ----------
    reports : list of two FairnessReport
        Before and after.
    attribute : str
        Which attribute.
    metric : {"DD", "TPR", "FPR"}
        Which gaps.

    Returns
    -------
    pandas.DataFrame
        ``client_id, value, support, gap before, gap, low, high, disparity, verdict``.
    """
    before, after = (_values(report.to_frame(), attribute, metric) for report in reports)
    frame = after[
        ["client_id", "value", "support", "gap", "gap_low", "gap_high", "disparity", "verdict"]
    ].reset_index(drop=True)
    frame.insert(3, "gap before", before["gap"].to_numpy())
    return frame.rename(columns={"gap_low": "low", "gap_high": "high"})


def _values(frame: pd.DataFrame, attribute: str, metric: Metric) -> pd.DataFrame:
    """Return the rows of clients for one attribute and metric."""
    wanted = (frame["attribute"] == attribute) & (frame["metric"] == metric)
    return frame[wanted & (frame["scope"] == "client")]


def _show_table(reports: list[FairnessReport], attribute: str, figure: Figure) -> None:
    for metric in PARTS[figure]:
        st.markdown(f"**{plain(attribute)}, {metric}: support, gap with interval, and verdict**")
        frame = table(reports, attribute, metric)
        number = st.column_config.NumberColumn(format="%.4f")
        names = ("gap before", "gap", "low", "high", "disparity")
        st.dataframe(frame, hide_index=True, column_config=dict.fromkeys(names, number))
