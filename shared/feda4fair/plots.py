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

from feda4fair.disparity import Figure as Measure
from feda4fair.errors import MeasureError, MissingExtraError
from feda4fair.marks import Marks, Sign, change, leaders, marks, pair_gaps, same_clients
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
Order = Literal["client", "size"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

WIDTH = 8.0
DPI = 160
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
SHAPES = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
GRAY = "#6e6e6e"
STYLE = {
    "font.size": 8.0,
    "axes.labelsize": 8.5,
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "figure.dpi": DPI,
    "savefig.dpi": DPI,
    "legend.frameon": False,
    "legend.handletextpad": 0.4,
    "legend.columnspacing": 1.4,
    "svg.hashsalt": "feda4fair",
    "pdf.fonttype": 42,
}
_LOCK = RLock()

_NAMES: dict[Measure, str] = {
    "DD": "demographic disparity",
    "EOD": "equalized odds difference",
}
_RATES: dict[Metric, str] = {
    "DD": "rate",
    "TPR": "true positive rate",
    "FPR": "false positive rate",
}
_FILLS: dict[Sign, str] = {"told": "full", "untold": "left", "small": "full"}


def _styled(draw: Callable[_P, _T]) -> Callable[_P, _T]:
    """Run with matplotlib's defaults and our style, and put the user's settings back."""

    @wraps(draw)
    def styled(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        # Settings are global to the process: a lock keeps threads from restoring each other's.
        with _LOCK, matplotlib.rc_context():
            matplotlib.rcdefaults()
            matplotlib.rcParams.update(STYLE)
            return draw(*args, **kwargs)

    return styled


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
    each = [marks(report, name, figure, level="attribute") for name in names]
    place = _places(leader, _led(leader, [one.size for one in each]), order)
    fig, (ax,) = _frame(title or f"{_what(report, figure).capitalize()}: dominant attribute")
    rest = [np.where(leader == k, np.nan, one.size) for k, one in enumerate(each)]
    for k, pale in enumerate(rest):
        ax.plot(place, pale, **_marker(k, "told", _size(len(place)) * 0.6), alpha=0.45, gid="rest")
    low, high, size = (
        _led(leader, [getattr(one, field) for one in each]) for field in ("low", "high", "size")
    )
    _draw(ax, place, size, leader, signs, low=low, high=high)
    _client_axis(ax, report.clients, place)
    _disparity_axis(ax, f"{_NAMES[figure]} ({_against(report)})", size, high)
    sign_names: dict[Sign, str] = {
        "told": "attribute decided",
        "untold": "which attribute is undecided",
    }
    _legend(
        fig,
        [*_keys(names, leader), *_sign_keys(signs, sign_names)],
        "One dot per client, colored by the attribute with its largest disparity (pale: the "
        "others); thin lines: 95 % simultaneous intervals.",
    )
    return fig


def _value_dots(
    report: FairnessReport, attribute: str, figure: Measure, order: Order, title: str | None
) -> Figure:
    shown = marks(report, attribute, figure, level="value")
    place = _places(shown.value, shown.size, order)
    what = _what(report, figure)
    fig, (ax,) = _frame(title or f"{what.capitalize()} by {attribute}: disadvantaged value")
    above = np.where(shown.disparity > shown.size + 1e-12, shown.disparity, np.nan)
    handles = [*_keys(shown.attribute.values, shown.value)]
    if not np.isnan(above).all():
        ax.plot(place, above, "_", color=GRAY, ms=_size(len(place)) * 1.1, gid="favored")
        handles.append(_handle("_", GRAY, f"a favored value's gap ({_count(above)})"))
    _draw(ax, place, shown.size, shown.value, shown.signs, low=shown.low, high=shown.high)
    _client_axis(ax, report.clients, place)
    _disparity_axis(ax, f"gap of the value ({_against(report)})", above, shown.high)
    sign_names: dict[Sign, str] = {
        "told": "value earned",
        "untold": "disparity, which value is not told",
    }
    _legend(
        fig,
        [*handles, *_sign_keys(shown.signs, sign_names)],
        "One dot per client, colored by its most disadvantaged value; thin lines: 95 % "
        "simultaneous intervals.",
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

    Few clients have their figures written in the cells, with the rows behind them; a dot marks
    what is significant (of a value by the report's tests, of a pair by its simultaneous
    interval), hatching what is undefined.

    Parameters
    ----------
    report : FairnessReport
        What was measured.
    attribute : str or sequence of str
        One attribute, or several as panels on one color scale.
    pairs : bool
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
    grids = [_gaps(report, name, metric, pairs=pairs) for name in names]
    limit = max(0.01, *(float(np.nanmax(np.abs(grid[1]), initial=0)) for grid in grids))
    rows = [len(grid[0]) for grid in grids]
    few = len(report.clients) <= 12
    height = sum(rows) * (0.34 if few and not pairs else 0.24) + 0.35 * len(names) + 1.5
    kind = "pair" if pairs else "value"
    fig, axes = _frame(
        title or f"Gaps of {_outcome(report)} by client and {kind}: {', '.join(names)}",
        height=max(height, 2.6),
        rows=rows,
    )
    for ax, name, (labels, gap, sure, support) in zip(axes, names, grids, strict=True):
        mesh = _mesh(ax, gap, sure, limit)
        ax.set_yticks(range(len(labels)), labels)
        ax.set_title(name if len(names) > 1 else "")
        if few:
            _write(ax, gap, None if pairs else support, limit)
    for ax in axes[:-1]:
        ax.set_xticks([])
    _client_axis(axes[-1], report.clients, np.arange(len(report.clients)), width=330)
    bar = fig.colorbar(mesh, ax=axes, aspect=30, pad=0.01, shrink=0.95)
    bar.outline.set_visible(False)
    second = "second of the pair" if pairs else "rest"
    bar.set_label(f"{_RATES[metric]} minus that of the {second}")
    _legend(
        fig,
        [
            _handle(".", "black", f"significant ({sum(int(grid[2].sum()) for grid in grids)})"),
            Rectangle((0, 0), 1, 1, fc="white", ec=GRAY, hatch="////", lw=0, label="undefined"),
        ],
        "Red: fewer favorable outcomes, blue: more." + (" n: rows." if few and not pairs else ""),
    )
    return fig


Grid = tuple[list[str], Floats, NDArray[np.bool_], Ints]


def _gaps(report: FairnessReport, attribute: str, metric: Metric, *, pairs: bool) -> Grid:
    """Return row labels, and gaps, significance and support of shape (rows, clients)."""
    report.value(attribute, report.finding(report.clients[0], attribute).disparity.groups[0].value)
    found = report.assessments[attribute, metric]
    values = [_short(value, 26) for value in found.part.attribute.values]
    if not pairs:
        return values, found.part.gap().T, found.significant.T, found.part.support.T
    chosen = list(combinations(range(len(values)), 2))
    gaps = [pair_gaps(found, np.array(one), np.array(other)) for one, other in chosen]
    gap = np.stack([each[0] for each in gaps])
    sure = np.stack([(low > 0) | (high < 0) for _, low, high in gaps])
    support = found.part.support.T
    least = np.stack([np.minimum(support[one], support[other]) for one, other in chosen])
    labels = [f"{_short(values[one], 18)} − {_short(values[other], 18)}" for one, other in chosen]
    return labels, gap, sure, least


def _mesh(ax: Any, gap: Floats, sure: NDArray[np.bool_], limit: float) -> Any:
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
    lift = 0.36 if columns <= 12 else 0.0
    ax.plot(x + lift, y - lift, ".", color="black", ms=min(3.5, 200 / columns), gid="significant")
    ax.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5))
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    return mesh


def _write(ax: Any, gap: Floats, support: Ints | None, limit: float) -> None:
    for (row, column), number in np.ndenumerate(gap):
        if np.isnan(number):
            continue
        text = f"{number:+.2f}".replace("-", "−")
        if support is not None:
            text += f"\nn {support[row, column]:,}"
        ax.text(
            column,
            row,
            text,
            ha="center",
            va="center",
            linespacing=0.95,
            color="white" if abs(number) > 0.6 * limit else "black",
        )


@_styled
def local_against_global(
    local: FairnessReport,
    global_: FairnessReport,
    attributes: str | Sequence[str] = (),
    *,
    figure: Measure = "DD",
    names: tuple[str, str] = ("local", "global"),
    title: str | None = None,
) -> Figure:
    """Draw every client's disparity under its local model against that under the global model.

    Above the diagonal the global model is fairer to the client, below it less fair. Color is the
    client's dominant attribute under the local model; a marker is hollow where the interval of
    the difference holds 0 (:func:`feda4fair.marks.change`). The clients that change most are
    named.

    Parameters
    ----------
    local, global_ : FairnessReport
        The same clients under two models, or before and after.
    attributes : str or sequence of str
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
        For reports of different clients, or an attribute that one does not have.

    References
    ----------
    FeDa4Fair, Figures 7, 14 to 16 and 23 to 26.
    """
    chosen = ((attributes,) if isinstance(attributes, str) else attributes) or local.contenders
    pairs = [_pair(local, global_, name, figure) for name in chosen]
    leader, _ = leaders(local, figure)
    top = 1.06 * max(float(np.nanmax(one.size, initial=0.02)) for pair in pairs for one in pair)
    what = _NAMES[figure]
    fig, axes = _frame(
        title or f"{what.capitalize()}: {names[0]} against {names[1]}",
        height=5.0 if len(chosen) > 1 else 6.4,
        columns=len(chosen),
    )
    for ax, name, (x, y) in zip(axes, chosen, [(after, before) for before, after in pairs]):
        difference, low, high = change(y, x)
        open_ = (low <= 0) & (high >= 0)
        signs = _signs_of(difference, open_)
        color = [COLORS[k % len(COLORS)] if k >= 0 else GRAY for k in leader]
        ax.hlines(y.size, x.low, x.high, colors=color, lw=0.5, alpha=0.35)
        ax.plot([0, 1], [0, 1], color=GRAY, lw=0.8, ls=(0, (4, 3)))
        _draw(ax, x.size, y.size, leader, signs, low=y.low, high=y.high)
        ax.set(xlim=(0, top), ylim=(0, top), aspect="equal", xlabel=f"{names[1]} {what}")
        above, below = int((difference > 0).sum()), int((difference < 0).sum())
        ax.set_title(f"{name}: {names[1]} fairer in {above}, less fair in {below}")
        ax.grid(color="#e6e6e6", lw=0.6)
    axes[0].set_ylabel(f"{names[0]} {what}")
    _legend(
        fig,
        [*_keys(local.contenders, leader, note="largest: "), *_change_keys()],
        f"Above the diagonal {names[1]} is fairer. Thin lines: 95 % simultaneous intervals, cut "
        "at the frame.",
    )
    fig.draw_without_rendering()
    for ax, (before, after) in zip(axes, pairs, strict=True):
        _name_points(fig, ax, after.size, before.size, local.clients)
    return fig


@_styled
def differences(
    local: FairnessReport,
    global_: FairnessReport,
    attributes: str | Sequence[str] = (),
    *,
    figure: Measure = "DD",
    names: tuple[str, str] = ("local", "global"),
    title: str | None = None,
) -> Figure:
    """Draw every client's disparity under its local model minus that under the global model.

    Above 0 the global model is fairer to the client. A marker is hollow where the interval of the
    difference holds 0 (:func:`feda4fair.marks.change`).

    Parameters
    ----------
    local, global_, attributes, figure, names, title
        As in :func:`local_against_global`; one color for each attribute.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    MeasureError
        For reports of different clients, or an attribute that one does not have.

    References
    ----------
    FeDa4Fair, Figures 8 and 20 to 22.
    """
    chosen = ((attributes,) if isinstance(attributes, str) else attributes) or local.contenders
    what = _NAMES[figure]
    fig, axes = _frame(
        title or f"{what.capitalize()}: {names[0]} minus {names[1]}",
        height=1.5 + 1.75 * len(chosen),
        rows=[1] * len(chosen),
    )
    place = np.arange(len(local.clients))
    for k, (ax, name) in enumerate(zip(axes, chosen, strict=True)):
        difference, low, high = change(*_pair(local, global_, name, figure))
        key = np.where(np.isnan(difference), -1, k)
        ax.axhline(0, color=GRAY, lw=0.8)
        signs = _signs_of(difference, (low <= 0) & (high >= 0))
        _draw(ax, place, difference, key, signs, low=low, high=high)
        above, below = int((difference > 0).sum()), int((difference < 0).sum())
        ax.set_title(f"{name}: {names[1]} fairer in {above}, less fair in {below}")
        reach = 1.15 * float(np.nanmax(np.abs(difference), initial=0.02))
        ax.set(ylim=(-reach, reach), xlim=(-0.7, len(place) - 0.3), ylabel="difference")
        ax.grid(axis="y", color="#e6e6e6", lw=0.6)
        ax.set_xticks([])
    _client_axis(axes[-1], local.clients, place)
    _legend(
        fig,
        _change_keys(),
        f"Above 0 {names[1]} is fairer. Thin lines: intervals as if the two figures were "
        "independent, cut at the frame.",
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
        For reports of different clients, or an attribute that one does not have.

    References
    ----------
    FeDa4Fair, Figures 9, 17 to 19 and 27 to 30.
    """
    pair = _pair(local, global_, attribute, figure, level="value")
    values = pair[0].attribute.values
    used = [v for v in range(len(values)) if any((one.value == v).any() for one in pair)]
    lane = {v: k for k, v in enumerate(used)}
    moved = (pair[0].value != pair[1].value) & (pair[0].value >= 0) & (pair[1].value >= 0)
    fig, (ax,) = _frame(
        title
        or f"{attribute}: the disadvantaged value moves in {moved.sum()} of {len(moved)} clients",
        height=5.2,
    )
    shift = len(used) + 1.2
    x = [_lanes(one.value, lane) + side * shift for side, one in enumerate(pair)]
    for k in np.argsort(moved, kind="stable"):
        color = COLORS[pair[1].value[k] % len(COLORS)] if moved[k] else "#9a9a9a"
        ends = [x[0][k], x[1][k]], [pair[0].size[k], pair[1].size[k]]
        ax.plot(*ends, color=color, lw=0.9 if moved[k] else 0.5, alpha=0.5, gid="move")
    for side, one in enumerate(pair):
        _draw(ax, x[side], one.size, one.value, one.signs)
    counts = [[int((one.value == v).sum()) for v in used] for one in pair]
    labels = [f"{_wrapped(values[v])}\n{count[k]}" for count in counts for k, v in enumerate(used)]
    at = [k + side * shift for side in (0, 1) for k in range(len(used))]
    ax.set_xticks(at, labels, rotation=90 if len(at) > 12 else 0, linespacing=0.95)
    ax.tick_params(axis="x", length=0)
    ax.set(xlim=(-0.6, shift + len(used) - 0.4), xlabel="disadvantaged value, number of clients")
    for side, name in enumerate(names):
        middle = (len(used) - 1) / 2 + side * shift
        ax.text(middle, 1.01, name, transform=ax.get_xaxis_transform(), ha="center", va="bottom")
    _disparity_axis(ax, f"gap of the value ({_against(local)})", *(one.size for one in pair))
    told: dict[Sign, str] = {"told": "value earned", "untold": "disparity, value not told"}
    _legend(
        fig,
        [
            *_sign_keys([*pair[0].signs, *pair[1].signs], told),
            Line2D([], [], color="#9a9a9a", lw=0.8, label="stays"),
            Line2D([], [], color="black", lw=1.0, label="moves (color of where to)"),
        ],
        f"Two dots per client: its gap under {names[0]} (left) and {names[1]} (right).",
    )
    return fig


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
    """
    report.finding(report.clients[0], attribute)
    found = report.assessments[attribute, "DD"].part
    fig, (ax,) = _frame(title or f"Rows of each client by {attribute}")
    place = np.arange(len(report.clients))
    size = _size(len(place))
    total = found.total[:, 0]
    ax.plot(place, total, "_", color="black", ms=size * 1.5, mew=1.3, gid="total")
    for k in range(len(found.attribute.values)):
        ax.plot(place, found.support[:, k], **_marker(k, "told", size * 0.8), clip_on=False)
    ax.set_yscale("symlog", linthresh=1, linscale=0.3)
    ax.set(ylim=(0, 2 * max(1, int(total.max()))), ylabel="rows")
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    ax.grid(axis="y", color="#e6e6e6", lw=0.6)
    _client_axis(ax, report.clients, place)
    values = found.attribute.values
    rows = found.support.sum(axis=0)
    _legend(
        fig,
        [
            _handle("_", "black", f"all ({total.sum():,})"),
            *(
                Line2D([], [], **_marker(k, "told", 6), label=f"{_short(name, 30)} ({rows[k]:,})")
                for k, name in enumerate(values)
            ),
        ],
        "Rows on a logarithmic scale; 0 at its foot.",
    )
    return fig


def describe(report: FairnessReport) -> str:
    """Return what the figures of a report show in two sentences, for readers who cannot see them.

    Examples
    --------
    >>> from feda4fair.cube import Cube
    >>> from feda4fair.report import measure_cube
    >>> cube = Cube.count(
    ...     clients=np.zeros(4, dtype=int),
    ...     client_names=["WY"],
    ...     attributes={"SEX": (np.array([1, 1, 2, 2]), {1: "male", 2: "female"})},
    ...     y_true=np.array([1, 1, 0, 1]),
    ... )
    >>> print(describe(measure_cube(cube)))
    Demographic disparity of labels in 1 client by SEX (each value against the rest): median 0.500,
    from 0.500 (WY) to 0.500 (WY). Biased toward a value: 0; a disparity whose value is not told:
    0; small: 0; undetermined: 1; undefined: 0.
    """
    found = [report.worst(client) for client in report.clients]
    known = {f.client: f.disparity.size for f in found if f.disparity.size is not None}
    count = len(report.clients)
    head = (
        f"{_NAMES['DD'].capitalize()} of {_outcome(report)} in {count} client"
        f"{'' if count == 1 else 's'} by {' and '.join(report.contenders)} ({_against(report)})"
    )
    if not known:
        return f"{head}: undefined in all of them."
    low, high = min(known, key=known.__getitem__), max(known, key=known.__getitem__)
    spread = (
        f"median {np.median(list(known.values())):.3f}, from {known[low]:.3f} ({low}) to "
        f"{known[high]:.3f} ({high})"
    )
    lead = ""
    if len(report.contenders) > 1:
        per = [
            f"{sum(f.attribute == n for f in found if f.client in known)} for {n}"
            for n in report.contenders
        ]
        lead = f"; largest {', '.join(per)}"
    verdicts = [f.verdict for f in found]
    said = {
        "biased toward a value": "toward",
        "a disparity whose value is not told": "disparity",
        "small": "small",
        "undetermined": "undetermined",
        "undefined": "undefined",
    }
    counts = "; ".join(f"{text}: {verdicts.count(v)}" for text, v in said.items())
    return f"{head}: {spread}{lead}. {counts[0].upper()}{counts[1:]}."


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
    MeasureError
        For another suffix.
    """
    target = Path(path)
    match target.suffix:
        case ".png":
            metadata = {"Software": None}
        case ".pdf":
            metadata = {"Creator": None, "Producer": None, "CreationDate": None}
        case ".svg":
            metadata = {"Creator": None, "Date": None}
        case suffix:
            raise MeasureError(
                f"{target.name}: a figure is written as .png, .pdf or .svg, not {suffix or 'so'}."
            )
    figure.savefig(target, metadata=metadata)
    return target


# Words


def _outcome(report: FairnessReport) -> str:
    return "predictions" if report.cube.has_predictions else "labels"


def _what(report: FairnessReport, figure: Measure) -> str:
    return f"{_NAMES[figure]} of {_outcome(report)}"


def _against(report: FairnessReport) -> str:
    return {"rest": "each value against the rest", "pairs": "highest minus lowest rate"}[
        report.against
    ]


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"


def _wrapped(text: str) -> str:
    return textwrap.fill(_short(text, 40).replace("/", "/ "), 10)


def _count(values: Floats) -> int:
    return int((~np.isnan(values)).sum())


# Numbers


def _pair(
    local: FairnessReport,
    global_: FairnessReport,
    attribute: str,
    figure: Measure,
    level: Literal["attribute", "value"] = "attribute",
) -> tuple[Marks, Marks]:
    same_clients(local, global_)
    before, after = (marks(one, attribute, figure, level=level) for one in (local, global_))
    return before, after


def _led(leader: Ints, columns: Sequence[Floats]) -> Floats:
    """Return of each client the figure of its leader; NaN without one."""
    led: Floats = np.stack(columns)[leader, np.arange(len(leader))]
    return np.where(leader >= 0, led, np.nan)


def _places(key: Ints, size: Floats, order: Order) -> Ints:
    """Return the position of each client on the axis."""
    if order == "client":
        return np.arange(len(key))
    last = np.where(key < 0, key.max() + 1, key)
    place = np.empty(len(key), dtype=np.int64)
    place[np.lexsort((-np.nan_to_num(size), last))] = np.arange(len(key))
    return place


def _lanes(value: Ints, lane: dict[int, int]) -> Floats:
    """Return the clients' places side by side in the lane of their value; NaN without one."""
    x = np.full(len(value), np.nan)
    for v, k in lane.items():
        here = np.flatnonzero(value == v)
        x[here] = k + ((np.arange(len(here)) + 0.5) / max(len(here), 1) - 0.5) * 0.7
    return x


def _signs_of(difference: Floats, open_: NDArray[np.bool_]) -> tuple[Sign, ...]:
    return tuple(
        "undefined" if np.isnan(d) else "undetermined" if o else "told"
        for d, o in zip(difference, open_, strict=True)
    )


# Drawing


def _frame(
    title: str, *, height: float = 4.2, rows: Sequence[int] = (1,), columns: int = 1
) -> tuple[Figure, list[Any]]:
    fig = Figure(figsize=(WIDTH, height), layout="constrained")
    FigureCanvasAgg(fig)
    fig.suptitle(textwrap.fill(title, 95), x=0.01, ha="left", fontsize=10.5, fontweight="bold")
    axes = fig.subplots(len(rows), columns, squeeze=False, height_ratios=rows)
    return fig, list(axes.flat)


def _size(count: int) -> float:
    """Return the marker size in points for a number of clients."""
    return float(np.clip(330 / max(count, 1), 3.6, 6.0))


def _marker(key: int, sign: Sign, size: float) -> dict[str, Any]:
    color = COLORS[key % len(COLORS)] if key >= 0 else GRAY
    if sign == "undefined":
        return {"marker": "x", "color": GRAY, "ms": size, "ls": ""}
    hollow = sign == "undetermined"
    return {
        "marker": SHAPES[key % len(SHAPES)] if key >= 0 else "o",
        "color": color,
        "ms": size * (0.55 if sign == "small" else 1),
        "ls": "",
        "mew": 1.0,
        "fillstyle": _FILLS.get(sign, "full"),
        "markerfacecolor": "white" if hollow else color,
        "markerfacecoloralt": "white",
    }


def _draw(
    ax: Any,
    x: NDArray[Any],
    y: Floats,
    key: Ints,
    signs: Sequence[Sign],
    *,
    low: Floats | None = None,
    high: Floats | None = None,
) -> None:
    """Draw the marks, one artist for each key and sign, and their intervals."""
    if low is not None and high is not None:
        color = [COLORS[k % len(COLORS)] if k >= 0 else GRAY for k in key]
        ax.vlines(x, low, high, colors=color, lw=0.6, alpha=0.55)
    kinds = sorted({*zip(key.tolist(), signs, strict=True)})
    for k, sign in kinds:
        here = (key == k) & (np.array(signs) == sign)
        height = np.zeros(here.sum()) if sign == "undefined" else y[here]
        ax.plot(x[here], height, **_marker(k, sign, _size(len(x))), gid=f"{k} {sign}", zorder=3)


def _disparity_axis(ax: Any, label: str, *heights: Floats) -> None:
    top = max(float(np.nanmax(height, initial=0.05)) for height in heights)
    ax.set(ylim=(0, min(1.02, top * 1.05)), ylabel=label)
    ax.grid(axis="y", color="#e6e6e6", lw=0.6)


def _client_axis(ax: Any, names: Sequence[str], place: Ints, *, width: float = 490) -> None:
    """Name the clients below an axis of a width in points, only some where not all fit."""
    count = len(names)
    short = [names[k] if len(names[k]) <= 14 else _short(names[k], 14) for k in np.argsort(place)]
    flat = max(map(len, short)) * 5.5 <= width / count
    step = 1 if flat else int(np.ceil(count * 10.5 / width))
    ax.set_xticks(range(0, count, step), short[::step], rotation=0 if flat else 90)
    ax.set_xticks(range(count), minor=True)
    ax.tick_params(axis="x", which="both", length=2)
    every = "" if step == 1 else f", every {_ORDINAL.get(step, f'{step}th')} named"
    ax.set(xlim=(-0.7, count - 0.3), xlabel=f"client ({count}{every})")


_ORDINAL = {2: "second", 3: "third", 4: "fourth", 5: "fifth"}


def _handle(marker: str, color: str, label: str) -> Any:
    return Line2D([], [], marker=marker, color=color, ls="", ms=6, label=label)


def _keys(names: Sequence[str], key: Ints, note: str = "") -> list[Any]:
    """Return legend entries of the keys that occur, each with its number of clients."""
    return [
        Line2D(
            [], [], **_marker(k, "told", 6), label=f"{note}{_short(name, 30)} ({(key == k).sum()})"
        )
        for k, name in enumerate(names)
        if (key == k).any()
    ]


def _sign_keys(signs: Sequence[Sign], names: dict[Sign, str]) -> list[Any]:
    """Return legend entries of how markers are filled, each with its number of clients."""
    texts: dict[Sign, str] = {
        **names,
        "small": "small: within 0.05",
        "undetermined": "undetermined",
        "undefined": "no figure",
    }
    return [
        Line2D([], [], **{**_marker(-1, sign, 6)}, label=f"{text} ({list(signs).count(sign)})")
        for sign, text in texts.items()
        if sign in signs
    ]


def _change_keys() -> list[Any]:
    return [
        Line2D([], [], **_marker(-1, "told", 6), label="changed"),
        Line2D([], [], **_marker(-1, "undetermined", 6), label="not told from no change"),
    ]


def _legend(fig: Figure, handles: Sequence[Any], note: str) -> None:
    """Put the legend below the figure, in as many columns as its width holds."""
    renderer = fig.canvas.get_renderer()
    for columns in range(len(handles), 0, -1):
        legend = fig.legend(
            handles=handles,
            loc="outside lower left",
            ncols=columns,
            title=textwrap.fill(note, 130),
            alignment="left",
            title_fontsize=8,
        )
        if legend.get_window_extent(renderer).width <= fig.bbox.width * 0.98:
            return
        legend.remove()


def _name_points(fig: Figure, ax: Any, x: Floats, y: Floats, names: Sequence[str]) -> None:
    """Name the clients farthest from the diagonal wherever their label has room."""
    renderer = fig.canvas.get_renderer()
    spots = ax.transData.transform(np.stack([x, y], axis=1))
    taken: list[Any] = []
    far = np.argsort(-np.nan_to_num(np.abs(x - y)), kind="stable")[:10]
    for k in far:
        for dx, dy, ha in ((6, 0, "left"), (-6, 0, "right"), (0, 9, "center"), (0, -9, "center")):
            label = ax.annotate(
                _short(names[k], 14),
                (x[k], y[k]),
                (dx, dy),
                textcoords="offset points",
                ha=ha,
                va="center",
            )
            label.set_in_layout(False)
            box = label.get_window_extent(renderer)
            inside = ax.bbox.contains(box.x0, box.y0) and ax.bbox.contains(box.x1, box.y1)
            free = not any(box.overlaps(other) for other in taken)
            clear = not any(box.contains(*spot) for spot in spots)
            if inside and free and clear:
                taken.append(box)
                break
            label.remove()
