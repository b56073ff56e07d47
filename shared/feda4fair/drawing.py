"""How points, axes and legends look. Works on the axes it is given; imports no drawing library."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feda4fair.points import Sign

__all__ = [
    "COLORS",
    "DPI",
    "GRAY",
    "MINUS",
    "SHAPES",
    "STYLE",
    "WIDTH",
    "client_axis",
    "draw_points",
    "grid",
    "handle",
    "key_handles",
    "marker",
    "marker_size",
    "name_points",
    "shade",
    "shorten",
    "sign_handles",
    "wrap",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

WIDTH = 8.0
"""Width of a figure in inches: 1280 pixels."""
DPI = 160
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito (2008), without the yellow that white swallows."""
SHAPES = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
SCALES = {"s": 0.95, "D": 0.9, "^": 1.2, "v": 1.2, "<": 1.2, ">": 1.2, "P": 1.15, "X": 1.15}
"""What makes the shapes look equally large."""
GRAY = "#6e6e6e"
MINUS = "\N{MINUS SIGN}"
PALE = "#e6e6e6"
STYLE = {
    "font.size": 8.0,
    "axes.labelsize": 8.5,
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.xmargin": 0.012,
    "figure.dpi": DPI,
    "savefig.dpi": DPI,
    "legend.frameon": False,
    "legend.handletextpad": 0.4,
    "legend.columnspacing": 1.4,
    "svg.hashsalt": "feda4fair",
    "pdf.fonttype": 42,
}
"""What differs from matplotlib's defaults."""

_BESIDE = ((6, 0, "left"), (-6, 0, "right"), (0, 9, "center"), (0, -9, "center"))
_ORDINALS = {2: "second", 3: "third", 4: "fourth", 5: "fifth"}


# Words


def shorten(text: str, width: int) -> str:
    """Return a text of at most ``width`` characters."""
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"


def wrap(text: str, width: int) -> str:
    """Return a text on lines of at most ``width`` characters; a slash may end a line."""
    lines = textwrap.wrap(text.replace("/", "/\u200b "), width)
    return "\n".join(lines).replace("/\u200b ", "/").replace("/\u200b", "/")


# Points


def marker_size(count: int) -> float:
    """Return the size of a client's marker in points, given the number of clients."""
    return float(np.clip(420 / max(count, 1), 3.8, 6.0))


def shade(key: int) -> str:
    """Return the color of an attribute or value by its position; gray for -1."""
    return COLORS[key % len(COLORS)] if key >= 0 else GRAY


def marker(key: int, sign: Sign, size: float) -> dict[str, Any]:
    """Return the arguments of ``Axes.plot`` for one kind of point."""
    if sign == "undefined":
        return {"marker": "x", "color": GRAY, "ms": size, "ls": ""}
    color = shade(key)
    shape = SHAPES[key % len(SHAPES)] if key >= 0 else "o"
    return {
        "marker": shape,
        "color": color,
        "ms": size * SCALES.get(shape, 1) * (0.55 if sign == "small" else 1),
        "ls": "",
        "mew": 0.9,
        "fillstyle": "left" if sign == "untold" else "full",
        "markerfacecolor": "white" if sign == "undetermined" else color,
        "markerfacecoloralt": "white",
    }


def draw_points(
    ax: Any,
    x: NDArray[Any],
    y: Floats,
    key: Ints,
    signs: Sequence[Sign],
    *,
    interval: tuple[Floats, Floats] | None = None,
) -> None:
    """Draw points, one artist for each key and sign, and their intervals; no figure lies at 0."""
    if interval is not None:
        ax.vlines(x, *interval, colors=[shade(k) for k in key], lw=0.6, alpha=0.55)
    for k, sign in sorted({*zip(key.tolist(), signs, strict=True)}):
        here = (key == k) & (np.array(signs) == sign)
        height = np.zeros(here.sum()) if sign == "undefined" else y[here]
        look = marker(k, sign, marker_size(len(x)))
        ax.plot(x[here], height, **look, gid=f"{k} {sign}", zorder=3, clip_on=False)


def name_points(ax: Any, renderer: Any, x: Floats, y: Floats, names: Sequence[str]) -> None:
    """Name the ten points farthest from the diagonal, wherever a name has room beside its own."""
    spots = ax.transData.transform(np.stack([x, y], axis=1))
    taken: list[Any] = []
    known = np.flatnonzero(~np.isnan(x - y))
    for k in known[np.argsort(-np.abs(x - y)[known], kind="stable")][:10]:
        for dx, dy, side in (
            (6, 0, "left"),
            (-6, 0, "right"),
            (0, 9, "center"),
            (0, -9, "center"),
        ):
            label = ax.annotate(
                shorten(names[k], 14),
                (x[k], y[k]),
                (dx, dy),
                textcoords="offset points",
                ha=side,
                va="center",
            )
            label.set_in_layout(False)
            box = label.get_window_extent(renderer).padded(2)
            inside = ax.bbox.contains(box.x0, box.y0) and ax.bbox.contains(box.x1, box.y1)
            clear = not any(box.contains(*spot) for spot in np.delete(spots, k, axis=0))
            if inside and clear and not any(box.overlaps(other) for other in taken):
                taken.append(box)
                break
            label.remove()


# Axes


def grid(ax: Any, axis: str = "y") -> None:
    """Draw pale lines behind the points."""
    ax.grid(axis=axis, color=PALE, lw=0.6)


def client_axis(ax: Any, names: Sequence[str], place: Ints, *, width: float = 520) -> None:
    """Name the clients below an axis of a width in points, only some where not all have room."""
    count = len(names)
    short = [shorten(names[k], 14) for k in np.argsort(place)]
    flat = max(map(len, short)) * 5.5 <= width / count
    step = 1 if flat else int(np.ceil(count * 10 / width))
    ax.set_xticks(range(0, count, step), short[::step], rotation=0 if flat else 90)
    if step > 1:
        ax.set_xticks(range(count), minor=True)
    ax.tick_params(axis="x", which="both", length=2)
    every = "" if step == 1 else f", every {_ORDINALS.get(step, f'{step}th')} named"
    ax.set_xlabel(f"client ({count}{every})")


# Legends


def handle(label: str, **look: Any) -> dict[str, Any]:
    """Return the arguments of ``Line2D`` for a legend entry."""
    return {"color": GRAY, "ls": "", "ms": 6, **look, "label": label}


def key_handles(names: Sequence[str], key: Ints, note: str = "") -> list[dict[str, Any]]:
    """Return legend entries of the keys that occur, each with its number of clients."""
    return [
        handle(f"{note}{shorten(name, 30)} ({(key == k).sum()})", **marker(k, "told", 6))
        for k, name in enumerate(names)
        if (key == k).any()
    ]


def sign_handles(signs: Sequence[Sign], names: Mapping[Sign, str]) -> list[dict[str, Any]]:
    """Return legend entries of the signs that occur, each with its number of points."""
    texts: dict[Sign, str] = {
        **names,
        "small": "small: within 0.05",
        "undetermined": names.get("undetermined", "undetermined"),
        "undefined": "no figure",
    }
    return [
        handle(f"{text} ({list(signs).count(sign)})", **marker(-1, sign, 6))
        for sign, text in texts.items()
        if sign in signs
    ]
