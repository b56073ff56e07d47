"""The paper's figures from fairness reports, as matplotlib figures without global state.

Color is never the only cue: every attribute or value has a color of the Okabe-Ito palette and a
marker shape of its own. How a marker is filled says what is earned: full, the report's verdict
names what the color says; half, a disparity is detected but not which; hollow, undetermined.
Thin lines are the report's simultaneous intervals. Text has at least 8 pt at a width of 8 inches
(1280 pixels).

The same report gives the same figure whatever the user's matplotlib settings are, and
:func:`save` writes the same bytes in every run.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from functools import wraps
from itertools import combinations
from pathlib import Path
from threading import RLock
from typing import Any, Literal, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from feda4fair.disparity import Figure as Measure
from feda4fair.drawing import (
    GRAY,
    MINUS,
    STYLE,
    WIDTH,
    client_axis,
    draw_points,
    grid,
    handle,
    key_handles,
    marker,
    marker_size,
    name_points,
    shade,
    sign_handles,
    wrap,
)
from feda4fair.errors import MissingExtraError, OutputError
from feda4fair.points import (
    FIGURES,
    Sign,
    both,
    change,
    describe,
    leaders,
    outcome,
    pair_gaps,
    points,
)
from feda4fair.rates import Metric
from feda4fair.report import FairnessReport

try:
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Rectangle
except ImportError:
    raise MissingExtraError(
        "feda4fair.plots draws with matplotlib, which is not installed; "
        "run pip install 'feda4fair[plots]'."
    ) from None

__all__ = [
    "Order",
    "describe",
    "differences",
    "dots",
    "heat_map",
    "local_against_global",
    "movement",
    "save",
    "sizes",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Order = Literal["client", "size"]

_P = ParamSpec("_P")
_T = TypeVar("_T")
_LOCK = RLock()

_RATES: dict[Metric, str] = {
    "DD": "rate",
    "TPR": "true positive rate",
    "FPR": "false positive rate",
}
_VALUE_SIGNS: dict[Sign, str] = {
    "told": "biased toward this value",
    "untold": "biased, which value is not told",
}
_LINES = "thin lines: 95 % simultaneous intervals"


def _styled(draw: Callable[_P, _T]) -> Callable[_P, _T]:
    """Run with matplotlib's defaults and our style, and put the user's settings back."""

    @wraps(draw)
    def styled(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        # Settings are global to the process: a lock keeps threads from restoring each other's.
        with _LOCK, matplotlib.rc_context():
            matplotlib.rcdefaults()
            settings: Any = matplotlib.rcParams
            settings.update(STYLE)
            return draw(*args, **kwargs)

    return styled


# Figures


@_styled
def dots(
    report: FairnessReport,
    attribute: str | None = None,
    *,
    figure: Measure = "DD",
    order: Order = "client",
    title: str | None = None,
) -> Figure:
    """Draw one dot per client, colored by its dominant attribute or its disadvantaged value.

    Parameters
    ----------
    report : FairnessReport
        Of labels, or of the predictions of local models.
    attribute : str, optional
        None colors by the contender with the client's largest disparity, whose height is that
        disparity; the other contenders are small and pale. A name colors by the value of that
        attribute with the lowest signed gap (under ``pairs`` the lowest rate), whose height is
        the size of that gap; a gray dash marks a larger disparity, attained by a favored value.
    figure : {"DD", "EOD"}
        Figure; EOD needs predictions.
    order : {"client", "size"}
        Clients as in the report, or by color and size.
    title : str, optional
        In place of the generated one.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    MeasureError
        For an attribute or a figure that the report does not have.

    References
    ----------
    FeDa4Fair, Figures 2, 5, 12, 31 (attribute) and 3, 6, 13, 32 (value).
    """
    if attribute is None and len(report.contenders) > 1:
        return _attribute_dots(report, figure, order, title)
    return _value_dots(report, attribute or report.contenders[0], figure, order, title)


def _attribute_dots(
    report: FairnessReport, figure: Measure, order: Order, title: str | None
) -> Figure:
    names = report.contenders
    leader, signs = leaders(report, figure)
    each = [points(report, name, figure, level="attribute") for name in names]
    size, low, high = (
        _led(leader, [getattr(one, field) for one in each]) for field in ("size", "low", "high")
    )
    place = _places(leader, size, order)
    what = f"{FIGURES[figure]} of {outcome(report)}"
    fig, (ax,) = _frame(title or f"{what.capitalize()}: dominant attribute")
    for k, one in enumerate(each):
        pale = marker(k, "told", marker_size(len(place)) * 0.6)
        ax.plot(place, np.where(leader == k, np.nan, one.size), **pale, alpha=0.45, gid="rest")
    draw_points(ax, place, size, leader, signs, interval=(low, high))
    _disparity_axis(ax, f"{FIGURES[figure]}\n{_rule(report)}", size, high)
    client_axis(ax, report.clients, place)
    decided: dict[Sign, str] = {"told": "dominance decided", "untold": "dominance undecided"}
    _legend(
        fig,
        [*key_handles(names, leader), *sign_handles(signs, decided)],
        "A dot is a client, its color the attribute with the largest disparity (pale: the others);"
        f" {_LINES}.",
    )
    return fig


def _value_dots(
    report: FairnessReport, attribute: str, figure: Measure, order: Order, title: str | None
) -> Figure:
    shown = points(report, attribute, figure, level="value")
    place = _places(shown.value, shown.size, order)
    what = f"{FIGURES[figure]} of {outcome(report)}"
    fig, (ax,) = _frame(title or f"{what.capitalize()} by {attribute}: disadvantaged value")
    above = np.where(shown.disparity > shown.size + 1e-12, shown.disparity, np.nan)
    dashes = int((~np.isnan(above)).sum())
    handles = key_handles(shown.attribute.values, shown.value)
    if dashes:
        size = marker_size(len(place)) * 1.1
        ax.plot(place, above, "_", color=GRAY, ms=size, gid="favored")
        handles.append(handle(f"larger gap of a favored value ({dashes})", marker="_"))
    draw_points(ax, place, shown.size, shown.value, shown.signs, interval=(shown.low, shown.high))
    _disparity_axis(ax, f"gap of the value\n{_rule(report)}", above, shown.high)
    client_axis(ax, report.clients, place)
    _legend(
        fig,
        [*handles, *sign_handles(shown.signs, _VALUE_SIGNS)],
        f"A dot is a client, its color the most disadvantaged value; {_LINES}.",
    )
    return fig


@_styled
def heat_map(
    report: FairnessReport,
    attribute: str | Sequence[str],
    *,
    pairs: bool = False,
    metric: Metric = "DD",
    title: str | None = None,
) -> Figure:
    """Draw the signed gaps of every client and value, or of every client and pair of values.

    A dot marks what is significant (of a value by the report's tests, of a pair by its
    simultaneous interval), hatching what is undefined. Up to twelve clients have their figures
    written in the cells, those of values with the rows behind them.

    Parameters
    ----------
    report : FairnessReport
        What was measured.
    attribute : str or sequence of str
        One attribute, or several as panels on one color scale.
    pairs : bool, default False
        Rates of two values against each other, in place of each value against the rest.
    metric : {"DD", "TPR", "FPR"}
        Which gaps; TPR and FPR need predictions.
    title : str, optional
        In place of the generated one.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    MeasureError
        For an attribute or a metric that the report does not have.

    References
    ----------
    FeDa4Fair, Figure 4.
    """
    names = (attribute,) if isinstance(attribute, str) else tuple(attribute)
    cells = [_cells(report, name, metric, pairs=pairs) for name in names]
    limit = max(0.01, *(float(np.nanmax(np.abs(gap), initial=0)) for _, gap, _, _ in cells))
    rows = [len(labels) for labels, *_ in cells]
    lines = max(label.count("\n") + 1 for labels, *_ in cells for label in labels)
    few = len(report.clients) <= 12
    lines = 2 if few and not pairs else lines
    kind = "pairs of values" if pairs else "each value against the rest"
    fig, axes = _frame(
        title or f"Gaps of {outcome(report)} by {' and '.join(names)}: {kind}",
        height=max(2.9, sum(rows) * (0.1 + 0.13 * lines) + 0.35 * len(names) + 1.4),
        rows=rows,
    )
    for ax, name, (labels, gap, sure, support) in zip(axes, names, cells, strict=True):
        mesh = _mesh(ax, gap, sure, limit)
        ax.set_yticks(range(len(labels)), labels, linespacing=0.95)
        ax.set_title(name if len(names) > 1 else "")
        ax.set_xticks([])
        if few:
            _write(ax, gap, None if pairs else support, limit)
    client_axis(axes[-1], report.clients, np.arange(len(report.clients)), width=385)
    bar = fig.colorbar(mesh, ax=axes, aspect=7 * fig.get_figheight(), pad=0.01)
    bar.outline.set_visible(False)
    bar.set_label(f"{_RATES[metric]} minus that of the {'second' if pairs else 'rest'}")
    found = sum(int(sure.sum()) for _, _, sure, _ in cells)
    _legend(
        fig,
        [
            handle(f"significant ({found})", marker=".", color="black"),
            Rectangle((0, 0), 1, 1, fc="white", ec=GRAY, hatch="////", lw=0, label="undefined"),
        ],
        f"Red: the {'first ' if pairs else ''}value has the lower rate of favorable outcomes, "
        f"blue: the higher.{' n: rows.' if few and not pairs else ''}",
    )
    return fig


def _cells(
    report: FairnessReport, attribute: str, metric: Metric, *, pairs: bool
) -> tuple[list[str], Floats, Bools, Ints]:
    """Return row labels, and gap, significance and support, each of shape (rows, clients)."""
    report.finding(report.clients[0], attribute, "DD" if metric == "DD" else "EOD")
    found = report.assessments[attribute, metric]
    values, support = found.part.attribute.values, found.part.support.T
    if not pairs:
        labels = [wrap(value, 20) for value in values]
        return labels, found.part.gap().T, found.significant.T, support
    chosen = list(combinations(range(len(values)), 2))
    gaps, lows, highs = zip(
        *(pair_gaps(found, np.array(one), np.array(other)) for one, other in chosen), strict=True
    )
    sure = np.logical_or(np.stack(lows) > 0, np.stack(highs) < 0)
    least = np.stack([np.minimum(support[one], support[other]) for one, other in chosen])
    labels = [wrap(f"{values[one]} {MINUS} {values[other]}", 26) for one, other in chosen]
    return labels, np.stack(gaps), sure, least


def _mesh(ax: Any, gap: Floats, sure: Bools, limit: float) -> Any:
    rows, columns = gap.shape
    ax.add_patch(
        Rectangle((-0.5, -0.5), columns, rows, fc="white", ec=GRAY, hatch="////", lw=0, zorder=0)
    )
    mesh = ax.pcolormesh(
        np.arange(columns + 1) - 0.5,
        np.arange(rows + 1) - 0.5,
        np.ma.masked_invalid(gap),
        cmap="RdBu",
        vmin=-limit,
        vmax=limit,
        edgecolors="white",
        linewidth=0.6 if columns <= 60 else 0.2,
    )
    y, x = np.nonzero(sure)
    lift = 0.38 if columns <= 12 else 0.0
    look = {"ms": np.clip(180 / columns, 1.4, 3.0), "mew": 0.4 if columns <= 60 else 0}
    ax.plot(x + lift, y - lift, "o", mfc="black", mec="white", **look, gid="significant")
    ax.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5))
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    return mesh


def _write(ax: Any, gap: Floats, support: Ints | None, limit: float) -> None:
    """Write the figures into the cells."""
    for (row, column), number in np.ndenumerate(gap):
        if np.isnan(number):
            continue
        text = f"{round(number, 2) + 0.0:+.2f}".replace("-", MINUS)
        if support is not None:
            text += f"\nn {support[row, column]:,}"
        color = "white" if abs(number) > 0.6 * limit else "black"
        ax.text(column, row, text, ha="center", va="center", linespacing=0.95, color=color)


@_styled
def local_against_global(
    local: FairnessReport,
    global_: FairnessReport,
    attribute: str | Sequence[str] = (),
    *,
    figure: Measure = "DD",
    names: tuple[str, str] = ("local", "global"),
    title: str | None = None,
) -> Figure:
    """Draw every client's disparity under its local model against that under the global model.

    Above the diagonal the global model is fairer to the client, below it less fair. Color is the
    client's dominant attribute under the local model; a marker is hollow where the interval of
    the difference holds 0 (:func:`feda4fair.points.change`). The clients that change most are
    named where there is room.

    Parameters
    ----------
    local, global_ : FairnessReport
        The same clients under two models, or before and after.
    attribute : str or sequence of str
        One panel each; the contenders by default.
    figure : {"DD", "EOD"}
        Figure.
    names : tuple of two str
        What the two reports are.
    title : str, optional
        In place of the generated one.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    MeasureError
        For reports of different clients, or an attribute or a figure that one does not have.

    References
    ----------
    FeDa4Fair, Figures 7, 14 to 16 and 23 to 26.
    """
    chosen = _chosen(local, attribute)
    sides = [both(local, global_, name, figure) for name in chosen]
    changes = [change(local, global_, name, figure) for name in chosen]
    leader, _ = leaders(local, figure)
    top = 1.06 * max(float(np.nanmax(one.size, initial=0.02)) for pair in sides for one in pair)
    fig, axes = _frame(
        title or f"{FIGURES[figure].capitalize()}: {names[0]} against {names[1]}",
        height=1.3 + (WIDTH - 0.9) / max(len(chosen), 1.7),
        columns=len(chosen),
    )
    for ax, name, (y, x), moved in zip(axes, chosen, sides, changes, strict=True):
        ax.plot([0, 1], [0, 1], color=GRAY, lw=0.8, ls=(0, (4, 3)))
        colors = [shade(k) for k in leader]
        ax.hlines(y.size, x.low, x.high, colors=colors, lw=0.5, alpha=0.35)
        ax.vlines(x.size, y.low, y.high, colors=colors, lw=0.5, alpha=0.35)
        draw_points(ax, x.size, y.size, leader, _open(*moved))
        ax.set(xlim=(0, top), ylim=(0, top), aspect="equal")
        ax.set(xlabel=f"{names[1]} {FIGURES[figure]}", title=_counted(name, names[1], moved[0]))
        grid(ax, "both")
    axes[0].set_ylabel(f"{names[0]} {FIGURES[figure]}")
    _legend(
        fig,
        [
            *key_handles(local.contenders, leader, f"largest {names[0]}: "),
            *_change_handles(changes),
        ],
        f"A dot is a client; above the diagonal {names[1]} is fairer; {_LINES}, cut at the frame.",
    )
    fig.draw_without_rendering()
    for ax, (y, x) in zip(axes, sides, strict=True):
        name_points(ax, _renderer(fig), x.size, y.size, local.clients)
    return fig


@_styled
def differences(
    local: FairnessReport,
    global_: FairnessReport,
    attribute: str | Sequence[str] = (),
    *,
    figure: Measure = "DD",
    names: tuple[str, str] = ("local", "global"),
    title: str | None = None,
) -> Figure:
    """Draw every client's disparity under its local model minus that under the global model.

    Above 0 the global model is fairer to the client. A marker is hollow where the interval of the
    difference holds 0 (:func:`feda4fair.points.change`).

    Parameters
    ----------
    local, global_, attribute, figure, names, title
        As in :func:`local_against_global`, with the panels below each other.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    MeasureError
        For reports of different clients, or an attribute or a figure that one does not have.

    References
    ----------
    FeDa4Fair, Figures 8 and 20 to 22.
    """
    chosen = _chosen(local, attribute)
    changes = [change(local, global_, name, figure) for name in chosen]
    reach = 1.15 * max(float(np.nanmax(np.abs(moved[0]), initial=0.02)) for moved in changes)
    fig, axes = _frame(
        title or f"{FIGURES[figure].capitalize()}: {names[0]} minus {names[1]}",
        height=1.5 + 1.75 * len(chosen),
        rows=[1] * len(chosen),
    )
    place = np.arange(len(local.clients))
    for k, (ax, name, moved) in enumerate(zip(axes, chosen, changes, strict=True)):
        ax.axhline(0, color=GRAY, lw=0.8)
        key = np.where(np.isnan(moved[0]), -1, k)
        draw_points(ax, place, moved[0], key, _open(*moved), interval=moved[1:])
        ax.set(ylim=(-reach, reach), ylabel="difference")
        ax.set_title(_counted(name, names[1], moved[0]))
        ax.set_xticks([])
        grid(ax)
    client_axis(axes[-1], local.clients, place)
    _legend(
        fig,
        _change_handles(changes),
        f"A dot is a client; above 0 {names[1]} is fairer. Thin lines: intervals as if the two "
        "figures were independent, cut at the frame.",
    )
    return fig


@_styled
def movement(
    local: FairnessReport,
    global_: FairnessReport,
    attribute: str,
    *,
    figure: Measure = "DD",
    names: tuple[str, str] = ("local", "global"),
    title: str | None = None,
) -> Figure:
    """Draw how the disadvantaged value of each client moves from a local to a global model.

    One lane per value on either side; a line joins a client's two dots, in the color of the
    value it moves to, or gray where the value stays.

    Parameters
    ----------
    local, global_, figure, names, title
        As in :func:`local_against_global`.
    attribute : str
        Whose values.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    MeasureError
        For reports of different clients, or an attribute or a figure that one does not have.

    References
    ----------
    FeDa4Fair, Figures 9, 17 to 19 and 27 to 30.
    """
    sides = both(local, global_, attribute, figure, "value")
    old, new = (one.value for one in sides)
    known = (old >= 0) & (new >= 0)
    moved = known & (old != new)
    used = [v for v in range(len(sides[0].attribute.values)) if v in old or v in new]
    shift = len(used) + 1.2
    x = [_lanes(one.value, used) + side * shift for side, one in enumerate(sides)]
    fig, (ax,) = _frame(
        title
        or f"{attribute}: the disadvantaged value moves in {moved.sum()} of {len(old)} clients",
        height=5.0,
    )
    for k in np.flatnonzero(known):
        look = {"color": shade(new[k]), "lw": 0.9} if moved[k] else {"color": GRAY, "lw": 0.4}
        ends = [x[0][k], x[1][k]], [sides[0].size[k], sides[1].size[k]]
        ax.plot(*ends, **look, alpha=0.5, gid="moves" if moved[k] else "stays")
    for at, one in zip(x, sides, strict=True):
        shown = one.value >= 0
        signs = tuple(sign for sign in one.signs if sign != "undefined")
        draw_points(ax, at[shown], one.size[shown], one.value[shown], signs)
    _lane_axis(ax, [one.value for one in sides], used, sides[0].attribute.values, names)
    _disparity_axis(ax, f"gap of the value\n{_rule(local)}", *(one.size for one in sides))
    _legend(
        fig,
        [
            *sign_handles([*sides[0].signs, *sides[1].signs], _VALUE_SIGNS),
            handle(f"stays ({known.sum() - moved.sum()})", ls="-", lw=0.6),
            handle(f"moves, colored by where to ({moved.sum()})", ls="-", lw=1.0, color="black"),
        ],
        f"Two dots are a client: its most disadvantaged value, {names[0]} (left) and {names[1]} "
        "(right).",
    )
    return fig


def _lane_axis(
    ax: Any,
    sides: Sequence[Ints],
    used: Sequence[int],
    values: Sequence[str],
    names: Sequence[str],
) -> None:
    """Name every lane below the axis with its number of clients, and the two sides above it."""
    shift = len(used) + 1.2
    at = [k + side * shift for side in (0, 1) for k in range(len(used))]
    many = len(at) > 12
    labels = [
        f"{wrap(values[v], 30 if many else 11)}\n{(value == v).sum()}"
        for value in sides
        for v in used
    ]
    ax.set_xticks(at, labels, rotation=90 if many else 0, linespacing=0.95)
    ax.tick_params(axis="x", length=0)
    ax.set(xlim=(-0.6, shift + len(used) - 0.4), xlabel="value, number of clients")
    for side, name in enumerate(names):
        middle = (len(used) - 1) / 2 + side * shift
        ax.text(middle, 1.01, name, transform=ax.get_xaxis_transform(), ha="center", va="bottom")


@_styled
def sizes(report: FairnessReport, attribute: str, *, title: str | None = None) -> Figure:
    """Draw the rows of every client, in all and of each value of an attribute.

    Parameters
    ----------
    report : FairnessReport
        What was measured.
    attribute : str
        Whose values.
    title : str, optional
        In place of the generated one.

    Returns
    -------
    matplotlib.figure.Figure
        Rows on a logarithmic scale with 0 at its foot.

    Raises
    ------
    MeasureError
        For an attribute that the report does not have.
    """
    report.finding(report.clients[0], attribute)
    part = report.assessments[attribute, "DD"].part
    values, total, rows = part.attribute.values, part.total[:, 0], part.support.sum(axis=0)
    fig, (ax,) = _frame(title or f"Rows of each client by {attribute}")
    place, size = np.arange(len(total)), marker_size(len(total))
    ax.plot(place, total, "_", color="black", ms=size * 1.5, mew=1.3, gid="all")
    for k in range(len(values)):
        ax.plot(place, part.support[:, k], **marker(k, "told", size * 0.8), clip_on=False)
    ax.set_yscale("symlog", linthresh=1, linscale=0.3)
    ax.set(ylim=(0, 2 * max(1, int(total.max()))), ylabel="rows")
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    grid(ax)
    client_axis(ax, report.clients, place)
    _legend(
        fig,
        [
            handle(f"all ({total.sum():,})", marker="_", color="black"),
            *(
                handle(f"{name} ({rows[k]:,})", **marker(k, "told", 6))
                for k, name in enumerate(values)
            ),
        ],
        "Rows of each client on a logarithmic scale, with 0 at its foot.",
    )
    return fig


@_styled
def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure as PNG, PDF or SVG, the same bytes in every run.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        What to write.
    path : str or Path
        Where; its suffix, ``.png``, ``.pdf`` or ``.svg``, says how.

    Returns
    -------
    Path
        The file, without dates or names of programs in it.

    Raises
    ------
    OutputError
        For another suffix, or a folder that does not exist.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise OutputError(f"{target}: its folder does not exist; create it first.")
    match target.suffix:
        case ".png":
            canvas: Any = FigureCanvasAgg(figure)
            canvas.draw()
            pixels = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
            # A palette of 256 colors is a third of the size, and looks the same.
            pixels.quantize(256).save(target, optimize=True, dpi=(figure.dpi, figure.dpi))
        case ".pdf":
            metadata = ("Creator", "Producer", "CreationDate")
            figure.savefig(target, metadata=dict.fromkeys(metadata))
        case ".svg":
            figure.savefig(target, metadata=dict.fromkeys(("Creator", "Date")))
        case suffix:
            raise OutputError(
                f"{target.name}: got the suffix {suffix!r}, expected .png, .pdf or .svg; "
                "rename the file."
            )
    return target


# What figures share


def _frame(
    title: str, *, height: float = 4.2, rows: Sequence[int] = (1,), columns: int = 1
) -> tuple[Figure, list[Any]]:
    """Return a titled figure with panels below or beside each other."""
    fig = Figure(figsize=(WIDTH, height), layout="constrained")
    FigureCanvasAgg(fig)
    text = textwrap.fill(title, 88)
    fig.suptitle(text, x=0.01, ha="left", fontsize=10.5, fontweight="bold")
    axes = fig.subplots(len(rows), columns, squeeze=False, height_ratios=rows)
    return fig, list(axes.flat)


def _legend(fig: Figure, handles: Sequence[Any], note: str) -> None:
    """Put a note and the legend below the panels, in as many columns as the width holds."""
    entries = [Line2D([], [], **one) if isinstance(one, dict) else one for one in handles]
    for columns in range(len(entries), 0, -1):
        legend = fig.legend(
            handles=entries,
            loc="outside lower left",
            ncols=columns,
            title=textwrap.fill(note, 132),
            alignment="left",
            title_fontsize=8,
        )
        if legend.get_window_extent(_renderer(fig)).width <= 0.98 * fig.bbox.width:
            return
        if columns > 1:
            legend.remove()


def _renderer(fig: Figure) -> Any:
    canvas: Any = fig.canvas
    return canvas.get_renderer()


def _change_handles(changes: Sequence[tuple[Floats, Floats, Floats]]) -> list[dict[str, Any]]:
    signs = [sign for moved in changes for sign in _open(*moved)]
    return sign_handles(signs, {"told": "changed", "undetermined": "not told from no change"})


def _open(difference: Floats, low: Floats, high: Floats) -> tuple[Sign, ...]:
    """Return whether each client's change is told from none."""
    told = (low > 0) | (high < 0)
    return tuple(
        "undefined" if np.isnan(d) else "told" if t else "undetermined"
        for d, t in zip(difference, told, strict=True)
    )


def _counted(attribute: str, name: str, difference: Floats) -> str:
    above, below = int((difference > 0).sum()), int((difference < 0).sum())
    return f"{attribute}: {name} fairer in {above}, less fair in {below}"


def _rule(report: FairnessReport) -> str:
    return {"rest": "against the rest", "pairs": "highest minus lowest"}[report.against]


def _chosen(report: FairnessReport, attribute: str | Sequence[str]) -> tuple[str, ...]:
    return ((attribute,) if isinstance(attribute, str) else tuple(attribute)) or report.contenders


def _disparity_axis(ax: Any, label: str, *heights: Floats) -> None:
    top = max(float(np.nanmax(height, initial=0.05)) for height in heights)
    ax.set(ylim=(0, min(1.02, top * 1.05)), ylabel=label)
    grid(ax)


def _led(leader: Ints, columns: Sequence[Floats]) -> Floats:
    """Return of each client the number of its leader; NaN without one."""
    led: Floats = np.stack(columns)[leader, np.arange(len(leader))]
    return np.where(leader >= 0, led, np.nan)


def _places(key: Ints, size: Floats, order: Order) -> Ints:
    """Return the position of each client on the axis."""
    place = np.arange(len(key))
    if order == "client":
        return place
    last = np.where(key < 0, key.max() + 1, key)
    sorted_: Ints = np.empty_like(place)
    sorted_[np.lexsort((-np.nan_to_num(size), last))] = place
    return sorted_


def _lanes(value: Ints, used: Sequence[int]) -> Floats:
    """Return the clients' places side by side in the lane of their value; NaN without one."""
    x = np.full(len(value), np.nan)
    for lane, v in enumerate(used):
        here = np.flatnonzero(value == v)
        x[here] = lane + ((np.arange(len(here)) + 0.5) / max(len(here), 1) - 0.5) * 0.7
    return x
