from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.collections import LineCollection, QuadMesh
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from feda4fair import plots
from feda4fair.cube import Cube
from feda4fair.drawing import COLORS, marker, wrap
from feda4fair.errors import MeasureError, MissingExtraError, OutputError
from feda4fair.points import change, describe, leaders, pair_gaps, points
from feda4fair.rates import rates
from feda4fair.report import FairnessReport, measure_cube
from feda4fair.uncertainty import assess

REPOSITORY = Path(__file__).resolve().parent.parent
PAGE = REPOSITORY / "docs" / "figures.md"
ASSETS = PAGE.parent / "assets"

SEX = ("Male", "Female")
RACE = ("White", "Black", "Asian", "Alaska Native/American Indian", "Others")
NINE = tuple(f"a value whose name is rather long, number {k}" for k in range(9))
SHARES = (0.7, 0.15, 0.08, 0.04, 0.03)


def simulated(clients: int, *, seed: int = 0, values=RACE, rows=400, names=None) -> FairnessReport:
    """Return predictions of clients biased by sex, by race or not at all.

    The last two clients but one have labels of one class and no row.
    """
    rng = np.random.RandomState(seed)
    shares = np.array(SHARES) if len(values) == len(SHARES) else np.full(len(values), 1.0)
    client = rng.randint(0, clients - 1, rows * clients)
    sex = rng.randint(0, 2, len(client))
    race = rng.choice(len(values), len(client), p=shares / shares.sum())
    chance = np.full(len(client), 0.5)
    chance[(client % 3 == 0) & (sex == 1)] = 0.2
    chance[(client % 3 == 1) & (race == 1)] = 0.1
    chance[client % 3 == 2] += 0.2 * (race[client % 3 == 2] > 1)
    truth = rng.rand(len(client)) < chance
    truth[client == clients - 2] = True
    guess = truth ^ (rng.rand(len(client)) < 0.15)
    cube = Cube.count(
        clients=client,
        client_names=names or [f"c{k:03}" for k in range(clients)],
        attributes={
            "SEX": (sex, dict(enumerate(SEX))),
            "RAC1P": (race, dict(enumerate(values))),
        },
        y_true=truth,
        y_pred=guess,
    )
    return measure_cube(cube)


def of_labels(report: FairnessReport) -> FairnessReport:
    return replace(report, cube=report.cube.labels())


LOCAL = {clients: simulated(clients) for clients in (10, 51, 111, 150)}
GLOBAL = {clients: simulated(clients, seed=1) for clients in LOCAL}


def every_figure(local: FairnessReport, other: FairnessReport) -> dict[str, Figure]:
    pairs = replace(local, against="pairs")
    return {
        "dots": plots.dots(of_labels(local)),
        "dots by size": plots.dots(local, figure="EOD", order="size"),
        "value dots": plots.dots(of_labels(local), "RAC1P"),
        "value dots of pairs": plots.dots(pairs, "RAC1P", figure="EOD", order="size"),
        "heat map": plots.heat_map(local, ["SEX", "RAC1P"]),
        "heat map of pairs": plots.heat_map(local, "RAC1P", pairs=True, metric="TPR"),
        "local against global": plots.local_against_global(local, other),
        "one panel": plots.local_against_global(local, other, "RAC1P", figure="EOD"),
        "differences": plots.differences(local, other),
        "movement": plots.movement(local, other, "RAC1P"),
        "sizes": plots.sizes(local, "RAC1P"),
    }


@cache
def figures_of(kind: str) -> dict[str, Figure]:
    match kind:
        case "nine values":
            return every_figure(*(simulated(51, seed=seed, values=NINE) for seed in (2, 3)))
        case "long names":
            report = simulated(60, names=[f"a client whose name is long {k}" for k in range(60)])
            return {
                "dots": plots.dots(report),
                "heat map": plots.heat_map(report, "RAC1P"),
                "local against global": plots.local_against_global(report, report),
            }
        case "10 clients":
            return {
                "heat map": plots.heat_map(LOCAL[10], ["SEX", "RAC1P"]),
                "heat map of pairs": plots.heat_map(LOCAL[10], "RAC1P", pairs=True),
                "differences": plots.differences(LOCAL[10], GLOBAL[10]),
            }
        case _:
            clients = int(kind.split()[0])
            return every_figure(LOCAL[clients], GLOBAL[clients])


KINDS = (*(f"{clients} clients" for clients in LOCAL), "nine values", "long names")


@cache
def label_boxes(figure: Figure) -> list[tuple[str, object]]:
    """Return every text that is drawn, with its box in pixels."""
    figure.draw_without_rendering()
    hidden = set()
    for ax in figure.axes:
        for axis, limits in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
            low, high = sorted(limits)
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                if not low <= tick.get_loc() <= high:
                    hidden |= {tick.label1, tick.label2}
    renderer = figure.canvas.get_renderer()
    texts = [
        text
        for text in figure.findobj(Text)
        if text.get_text() and text.get_visible() and text not in hidden
    ]
    return [(text.get_text(), text.get_window_extent(renderer)) for text in texts]


def overlap(one, other) -> float:
    wide = min(one.x1, other.x1) - max(one.x0, other.x0)
    high = min(one.y1, other.y1) - max(one.y0, other.y0)
    return max(0.0, wide) * max(0.0, high)


@pytest.mark.parametrize("kind", KINDS)
def test_no_label_boxes_overlap(kind):
    for name, figure in figures_of(kind).items():
        boxes = label_boxes(figure)
        assert len(boxes) >= 5
        wrong = [
            (a, b) for (a, one), (b, other) in combinations(boxes, 2) if overlap(one, other) > 0
        ]
        assert wrong == [], name


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_cut_or_covered_by_the_legend(kind):
    for name, figure in figures_of(kind).items():
        edge = figure.bbox
        outside = [
            text
            for text, box in label_boxes(figure)
            if box.x0 < 0 or box.y0 < 0 or box.x1 > edge.x1 or box.y1 > edge.y1
        ]
        assert outside == [], name
        renderer = figure.canvas.get_renderer()
        (legend_box,) = (one.get_window_extent(renderer) for one in figure.legends)
        panels = [ax.get_tightbbox(renderer) for ax in figure.axes]
        assert all(overlap(legend_box, panel) == 0 for panel in panels), name


def test_a_long_title_is_wrapped():
    figure = plots.dots(LOCAL[10], title="A title of the user's own that does not end. " * 5)
    assert figure.get_suptitle().count("\n") == 2
    assert all(box.x1 <= 1280 for _, box in label_boxes(figure))


@pytest.mark.parametrize("kind", KINDS)
def test_text_is_large_enough(kind):
    for figure in figures_of(kind).values():
        assert figure.get_figwidth() * figure.dpi == 1280
        label_boxes(figure)
        assert min(text.get_fontsize() for text in figure.findobj(Text) if text.get_text()) >= 8


def points_of(figure: Figure, panel: int = 0) -> dict[tuple[int, str], np.ndarray]:
    """Return the points of a panel by key and sign, shape (n, 2)."""
    found = {}
    for line in figure.axes[panel].lines:
        match = re.fullmatch(r"(-?\d+) (\w+)", line.get_gid() or "")
        if match:
            found[int(match[1]), match[2]] = line.get_xydata()
    return found


def marks_with(figure: Figure, gid: str) -> int:
    lines = [line for ax in figure.axes for line in ax.lines if line.get_gid() == gid]
    return sum(int((~np.isnan(line.get_ydata())).sum()) for line in lines)


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


@pytest.mark.parametrize("clients", LOCAL)
def test_attribute_dots_are_the_figures_of_the_report(clients):
    report = of_labels(LOCAL[clients])
    figure = plots.dots(report)
    drawn = points_of(figure)
    assert sum(map(len, drawn.values())) == clients
    sizes = {name: report.attribute(name)["size"] for name in report.contenders}
    for (key, sign), xy in drawn.items():
        for x, y in xy:
            found = report.worst(report.clients[int(x)])
            if sign == "undefined":
                assert (key, y, found.disparity.size) == (-1, 0, None)
                continue
            assert found.attribute == report.contenders[key]
            assert y == found.disparity.size == sizes[found.attribute].iloc[int(x)]
            assert (sign in ("told", "untold")) == (found.verdict in ("toward", "disparity"))
            assert (sign == "told") == (
                found.dominant == found.attribute and found.verdict in ("toward", "disparity")
            )
    leader = [report.worst(client).attribute for client in report.clients[:-2]]
    assert f"SEX ({leader.count('SEX')})" in legend(figure)
    assert "no figure (2)" in legend(figure)
    assert marks_with(figure, "rest") == clients - 2


@pytest.mark.parametrize("clients", LOCAL)
def test_value_dots_are_the_lowest_gaps_of_the_report(clients):
    report = of_labels(LOCAL[clients])
    figure = plots.dots(report, "RAC1P")
    frame = report.to_frame()
    frame = frame[(frame["scope"] == "client") & (frame["attribute"] == "RAC1P")]
    lines = {
        tuple(segment[:, 1]): segment[0, 0]
        for one in figure.axes[0].collections
        if isinstance(one, LineCollection)
        for segment in one.get_segments()
        if len(segment)
    }
    drawn = points_of(figure)
    assert sum(map(len, drawn.values())) == clients
    larger = 0
    for (key, sign), xy in drawn.items():
        for x, y in xy:
            rows = frame[frame["client_id"] == report.clients[int(x)]]
            if sign == "undefined":
                assert rows["gap"].isna().all()
                continue
            worst = rows.loc[rows["gap"].idxmin()]
            assert (RACE[key], y) == (worst["value"], -worst["gap"])
            assert (sign == "told") == (worst["toward"] == worst["value"])
            interval = max(0, -worst["gap_high"]), min(1, -worst["gap_low"])
            assert lines[interval] == x
            larger += worst["disparity"] > y + 1e-12
    assert marks_with(figure, "favored") == larger > 0
    counts = {
        v: sum(len(xy) for (k, _), xy in drawn.items() if k == z) for z, v in enumerate(RACE)
    }
    assert {f"{v} ({n})" for v, n in counts.items() if n} <= set(legend(figure))


def test_dots_of_pairs_have_the_figure_of_the_report():
    report = replace(LOCAL[51], against="pairs")
    drawn = points_of(plots.dots(report, "RAC1P"))
    frame = report.attribute("RAC1P")
    for (key, sign), xy in drawn.items():
        for x, y in xy if sign != "undefined" else ():
            row = frame.iloc[int(x)]
            assert y == row["size"]
            assert row["attained"][0].startswith(f"{RACE[key]} vs ")


def test_order_by_size_moves_clients_and_nothing_else():
    report = of_labels(LOCAL[51])
    plain, ordered = (points_of(plots.dots(report, order=order)) for order in ("client", "size"))
    assert plain.keys() == ordered.keys()
    for kind in plain:
        assert sorted(plain[kind][:, 1]) == sorted(ordered[kind][:, 1])
    for key in (0, 1):
        xy = np.concatenate([xy for (k, _), xy in ordered.items() if k == key])
        by_place = xy[np.argsort(xy[:, 0])]
        assert (np.diff(by_place[:, 0]) == 1).all()
        assert (np.diff(by_place[:, 1]) <= 0).all()


def test_one_contender_is_drawn_by_value():
    report = replace(of_labels(LOCAL[10]), compare=("RAC1P",))
    assert points_of(plots.dots(report)).keys() == points_of(plots.dots(report, "RAC1P")).keys()


def test_what_is_not_earned_is_hollow():
    looks = {sign: marker(0, sign, 6) for sign in ("told", "untold", "small", "undetermined")}
    assert looks["undetermined"]["markerfacecolor"] == "white"
    assert looks["told"]["markerfacecolor"] == COLORS[0]
    assert looks["untold"]["fillstyle"] == "left"
    assert looks["small"]["ms"] < looks["told"]["ms"]
    figure = plots.dots(of_labels(LOCAL[111]), "RAC1P")
    faces = {line.get_gid(): line.get_markerfacecolor() for line in figure.axes[0].lines}
    hollow = {gid for gid, face in faces.items() if face == "white"}
    assert hollow
    assert hollow == {gid for gid in faces if gid and gid.endswith(" undetermined")}


def test_color_is_never_the_only_cue():
    looks = [marker(key, "told", 6) for key in range(9)]
    assert len({look["marker"] for look in looks}) == 9
    assert len({(look["marker"], look["color"]) for look in looks}) == 9
    assert len({look["color"] for look in looks}) == len(COLORS)


@pytest.mark.parametrize("clients", LOCAL)
def test_heat_map_holds_every_gap(clients):
    report = of_labels(LOCAL[clients])
    figure = plots.heat_map(report, "RAC1P")
    (mesh,) = (one for one in figure.axes[0].collections if isinstance(one, QuadMesh))
    shown = mesh.get_array().filled(np.nan).reshape(len(RACE), clients)
    tables = [report.value("RAC1P", value) for value in RACE]
    np.testing.assert_array_equal(shown, [table["gap"].to_numpy(float) for table in tables])
    significant = sum(int(table["significant"].sum()) for table in tables)
    assert marks_with(figure, "significant") == significant
    assert f"significant ({significant})" in legend(figure)
    written = [text.get_text() for text in figure.axes[0].texts]
    assert len(written) == (int((~np.isnan(shown)).sum()) if clients <= 12 else 0)
    if written:
        support = tables[0].loc["c000", "support"]
        assert f"n {support:,}" in written[0]
        assert f"{shown[0, 0]:+.2f}".replace("-", "\N{MINUS SIGN}") in written[0]


def test_heat_map_of_pairs_holds_every_difference_of_rates():
    report = LOCAL[51]
    figure = plots.heat_map(report, "RAC1P", pairs=True, metric="FPR")
    (mesh,) = (one for one in figure.axes[0].collections if isinstance(one, QuadMesh))
    rate = {value: report.value("RAC1P", value, "FPR")["rate"] for value in RACE}
    expected = [rate[a] - rate[b] for a, b in combinations(RACE, 2)]
    shown = mesh.get_array().filled(np.nan).reshape(10, 51)
    np.testing.assert_allclose(shown, np.array(expected, dtype=float), atol=1e-15)
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels[0] == "White \N{MINUS SIGN} Black"
    assert len(labels) == 10


def test_panels_of_a_heat_map_share_one_scale():
    figure = plots.heat_map(LOCAL[51], ["SEX", "RAC1P"])
    limits = {
        one.get_clim() for ax in figure.axes[:2] for one in ax.collections if type(one) is QuadMesh
    }
    assert len(limits) == 1


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=2, max_size=4))
def test_pair_gaps_are_antisymmetric_and_inside_their_interval(cells):
    counts = np.array(cells, dtype=np.int64)[None, :, :, None]
    codes = dict(enumerate("abcd"[: len(cells)]))
    axis = Cube.count(
        clients=np.zeros(0, dtype=int),
        client_names=["only"],
        attributes={"Z": (np.zeros(0, dtype=int), codes)},
        y_true=np.zeros(0, dtype=int),
    ).attributes
    found = assess(rates(Cube(clients=("only",), attributes=axis, counts=counts)))
    one, other = np.array(0), np.array(1)
    gap, low, high = pair_gaps(found, one, other)
    back = pair_gaps(found, other, one)
    np.testing.assert_allclose([gap, low, high], [-back[0], -back[2], -back[1]])
    defined = found.part.defined[0, :2].all()
    assert bool((low <= gap) & (gap <= high)) == defined
    if len(cells) == 2 and defined:
        # Two values are one pair, and its interval is the report's own.
        np.testing.assert_allclose([gap[0], low[0], high[0]], [
            found.part.gap()[0, 0], found.low[0, 0], found.high[0, 0],
        ], atol=1e-12)  # fmt: skip


@pytest.mark.parametrize("clients", [51, 150])
def test_local_against_global_draws_both_figures(clients):
    local, other = LOCAL[clients], GLOBAL[clients]
    figure = plots.local_against_global(local, other)
    leader, _ = leaders(local, "DD")
    for panel, name in enumerate(local.contenders):
        x = other.attribute(name)["size"].to_numpy(float, na_value=np.nan)
        y = local.attribute(name)["size"].to_numpy(float, na_value=np.nan)
        difference, low, high = change(local, other, name, "DD")
        told = (low > 0) | (high < 0)
        drawn = points_of(figure, panel)
        for key, sign in drawn:
            here = (leader == key) & ~np.isnan(difference) & (told == (sign == "told"))
            if sign != "undefined":
                np.testing.assert_array_equal(drawn[key, sign], np.stack([x, y], axis=1)[here])
        above, below = int((y > x).sum()), int((y < x).sum())
        title = figure.axes[panel].get_title(loc="left")
        assert title == f"{name}: global fairer in {above}, less fair in {below}"
        named = [text.get_text() for text in figure.axes[panel].texts]
        far = np.argsort(-np.nan_to_num(np.abs(y - x)))[:10]
        assert 3 <= len(named) <= 10
        assert set(named) <= {local.clients[k] for k in far}


@pytest.mark.parametrize("clients", [51, 111])
def test_differences_are_local_minus_global(clients):
    local, other = LOCAL[clients], GLOBAL[clients]
    figure = plots.differences(local, other, names=("before", "after"))
    for panel, name in enumerate(local.contenders):
        expected = local.attribute(name)["size"] - other.attribute(name)["size"]
        drawn = points_of(figure, panel)
        assert sum(map(len, drawn.values())) == clients
        for (_, sign), xy in drawn.items():
            for x, y in xy if sign != "undefined" else ():
                assert y == expected.iloc[int(x)]
    assert "before minus after" in figure.get_suptitle()


def test_no_change_is_told_from_none():
    report = LOCAL[51]
    for figure in ("DD", "EOD"):
        difference, low, high = change(report, report, "RAC1P", figure)
        known = ~np.isnan(difference)
        assert (difference[known] == 0).all()
        assert ((low[known] <= 0) & (high[known] >= 0)).all()
    drawn = points_of(plots.differences(report, report), 1)
    assert {sign for _, sign in drawn} == {"undetermined", "undefined"}


def test_change_turns_with_its_arguments():
    there, back = (
        change(*pair, "RAC1P", "EOD")
        for pair in ((LOCAL[51], GLOBAL[51]), (GLOBAL[51], LOCAL[51]))
    )
    np.testing.assert_allclose(there, [-back[0], -back[2], -back[1]])


@pytest.mark.parametrize("clients", [51, 111])
def test_movement_joins_the_values_of_both_reports(clients):
    pair = LOCAL[clients], GLOBAL[clients]

    def worst(report):
        table = np.array([report.value("RAC1P", v)["gap"].to_numpy(float) for v in RACE])
        known = ~np.isnan(table).all(axis=0)
        return np.where(known, np.where(np.isnan(table), np.inf, table).argmin(axis=0), -1)

    old, new = map(worst, pair)
    figure = plots.movement(*pair, "RAC1P")
    known = (old >= 0) & (new >= 0)
    moved = int((known & (old != new)).sum())
    assert sum(line.get_gid() == "moves" for line in figure.axes[0].lines) == moved > 0
    assert sum(line.get_gid() == "stays" for line in figure.axes[0].lines) == known.sum() - moved
    assert f"moves in {moved} of {clients}" in figure.get_suptitle()
    used = [v for v in range(5) if v in old or v in new]
    lanes = [label.get_text().split("\n")[-1] for label in figure.axes[0].get_xticklabels()]
    assert lanes == [str((side == v).sum()) for side in (old, new) for v in used]


def test_sizes_are_the_support_of_the_report():
    report = LOCAL[51]
    figure = plots.sizes(report, "RAC1P")
    lines = figure.axes[0].lines
    np.testing.assert_array_equal(lines[0].get_ydata(), report.cube.rows())
    for line, value in zip(lines[1:], RACE, strict=True):
        np.testing.assert_array_equal(line.get_ydata(), report.value("RAC1P", value)["n"])
    assert f"all ({report.cube.rows().sum():,})" in legend(figure)


def test_equalized_odds_takes_the_larger_stratum():
    report = LOCAL[51]
    shown = points(report, "RAC1P", "EOD", level="attribute")
    expected = report.attribute("RAC1P", "EOD")["size"].to_numpy(float, na_value=np.nan)
    np.testing.assert_array_equal(shown.disparity, expected)
    np.testing.assert_array_equal(shown.size, expected)
    known = ~np.isnan(expected)
    assert (shown.low[known] <= shown.size[known]).all()
    assert (shown.size[known] <= shown.high[known]).all()


def test_two_values_are_named_by_the_disadvantaged_one():
    shown = points(of_labels(LOCAL[51]), "SEX", "DD", level="attribute")
    female = LOCAL[51].cube.labels().on("SEX")
    gap = rates(female).gap()[:, 1]
    expected = np.where(np.isnan(gap), -1, gap < 0)
    np.testing.assert_array_equal(shown.value, expected)
    np.testing.assert_array_equal(shown.size, np.abs(gap))


def test_description_says_what_the_report_says():
    report = of_labels(LOCAL[51])
    text = describe(report)
    sizes = [report.worst(client).disparity.size for client in report.clients[:-2]]
    assert f"median {np.median(sizes):.3f}, from {min(sizes):.3f} (" in text
    assert "in 51 clients" in text
    assert "2 without a figure" in text
    assert text.count(". ") <= 2
    assert plots.describe is describe
    empty = replace(report, cube=report.cube.select(report.clients[-1:]))
    assert describe(empty).endswith("in 1 client: without a figure in all of them.")


# Files


DRAW = """
import sys, numpy as np
from pathlib import Path
if sys.argv[1] == "changed":
    import matplotlib
    KEYS = matplotlib.rcParams.keys() - {"backend"}  # asking for the backend imports pyplot
    matplotlib.rcParams.update({"font.size": 20, "axes.facecolor": "black", "lines.linewidth": 9})
    before = str([(key, matplotlib.rcParams[key]) for key in sorted(KEYS)])
from feda4fair import plots
from feda4fair.report import FairnessReport
report = FairnessReport.from_json(Path("report.json").read_text())
for suffix in ("png", "pdf", "svg"):
    plots.save(plots.dots(report, "RAC1P"), f"{sys.argv[2]}.{suffix}")
plots.save(plots.heat_map(report, "RAC1P"), f"{sys.argv[2]}-heat.png")
if sys.argv[1] == "changed":
    after = str([(key, matplotlib.rcParams[key]) for key in sorted(KEYS)])
    assert before == after, "the user's settings were moved"
assert "matplotlib.pyplot" not in sys.modules, "pyplot was imported"
"""


def test_files_are_the_same_in_every_run_and_under_any_settings(tmp_path):
    (tmp_path / "report.json").write_text(LOCAL[10].to_json(), encoding="utf-8")
    for seed, settings in enumerate(("default", "changed")):
        subprocess.run(
            [sys.executable, "-c", DRAW, settings, str(seed)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONHASHSEED": str(seed), "MPLCONFIGDIR": str(tmp_path)},
            check=True,
        )
    for name in (".png", ".pdf", ".svg", "-heat.png"):
        one, other = ((tmp_path / f"{run}{name}").read_bytes() for run in (0, 1))
        assert one == other
        for word in (b"CreationDate", b"dc:date", b"Software", b"Matplotlib v"):
            assert word not in one


@pytest.mark.parametrize("name", ["figure.jpg", "figure", "missing/figure.png"])
def test_a_file_that_cannot_be_written_is_named(name, tmp_path):
    with pytest.raises(OutputError, match="figure") as caught:
        plots.save(Figure(), tmp_path / name)
    assert str(caught.value).count(". ") == 0
    assert list(tmp_path.iterdir()) == []


def test_a_missing_extra_is_named():
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from feda4fair import points\n"
        "import feda4fair.plots"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 1
    assert "MissingExtraError" in run.stderr
    assert "pip install 'feda4fair[plots]'" in run.stderr
    assert issubclass(MissingExtraError, ImportError)


# Bad and small input


def test_reports_of_different_clients_are_refused():
    fewer = replace(LOCAL[10], cube=LOCAL[10].cube.select(LOCAL[10].clients[1:]))
    for draw in (plots.local_against_global, plots.differences):
        with pytest.raises(MeasureError, match="c000 meets c001"):
            draw(LOCAL[10], fewer)
    with pytest.raises(MeasureError, match="10 clients meet 51"):
        plots.movement(LOCAL[10], LOCAL[51], "RAC1P")
    with pytest.raises(MeasureError, match="same coding"):
        plots.movement(LOCAL[51], simulated(51, values=NINE), "RAC1P")


@pytest.mark.parametrize(
    "draw",
    [
        lambda report: plots.dots(report, "AGE"),
        lambda report: plots.heat_map(report, "AGE"),
        lambda report: plots.local_against_global(report, report, "AGE"),
        lambda report: plots.differences(report, report, ["SEX", "AGE"]),
        lambda report: plots.movement(report, report, "AGE"),
        lambda report: plots.sizes(report, "AGE"),
    ],
)
def test_an_unknown_attribute_is_named(draw):
    with pytest.raises(MeasureError, match="AGE"):
        draw(LOCAL[10])


def test_figures_of_labels_need_no_predictions_and_have_no_rates_of_them():
    labels = of_labels(LOCAL[10])
    with pytest.raises(MeasureError, match="predictions"):
        plots.dots(labels, figure="EOD")
    with pytest.raises(MeasureError, match="predictions"):
        plots.heat_map(labels, "SEX", metric="TPR")


@pytest.mark.parametrize("clients", [slice(0, 1), slice(-2, None)])
def test_a_client_alone_or_without_a_figure_is_drawn(clients):
    local, other = (
        replace(report, cube=report.cube.select(report.clients[clients]))
        for report in (LOCAL[10], GLOBAL[10])
    )
    for figure in every_figure(local, other).values():
        assert np.isfinite([box.bounds for _, box in label_boxes(figure)]).all()


@pytest.mark.usefixtures("untouched_random")
def test_drawing_moves_no_random_state(tmp_path):
    plots.save(plots.local_against_global(LOCAL[10], GLOBAL[10]), tmp_path / "figure.svg")


def test_words_are_kept_whole():
    assert wrap("Alaska Native/American Indian", 20) == "Alaska Native/\nAmerican Indian"
    assert wrap("a/b", 20) == "a/b"


# The page


def blocks(tag: str = "") -> list[str]:
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(rf"^```python{tag}\n(.*?)^```$", text, re.S | re.M)


def test_every_picture_of_the_page_is_kept_and_small():
    text = PAGE.read_text(encoding="utf-8")
    shown = re.findall(r"^!\[(.+)\]\(assets/(.+\.png)\)$", text, re.M)
    made = re.findall(r'"([a-z-]+\.png)"\)', "\n".join(blocks()))
    assert [name for _, name in shown] == made
    assert all(len(alt) > 40 for alt, _ in shown)
    for name in made:
        path = ASSETS / name
        assert path.stat().st_size < 150_000
        with Image.open(path) as picture:
            assert picture.width == 1280
            assert "Software" not in picture.info


@pytest.mark.slow
def test_the_page_makes_its_pictures(tmp_path, monkeypatch):
    names: dict[str, object] = {}
    monkeypatch.chdir(tmp_path)
    for block in (*blocks(" reports"), *blocks()):
        exec(block, names)
    made = sorted(path.name for path in tmp_path.iterdir())
    if os.environ.get("FEDA4FAIR_GOLDEN") == "write":
        for name in made:
            (ASSETS / name).write_bytes((tmp_path / name).read_bytes())
    # Fonts are drawn a pixel apart by other versions and processors.
    pinned = f"matplotlib=={matplotlib.__version__}\n" in (
        REPOSITORY / "constraints.txt"
    ).read_text(encoding="utf-8")
    exact = pinned and platform.machine() == "x86_64" and sys.platform == "linux"
    for name in made:
        with Image.open(tmp_path / name) as new, Image.open(ASSETS / name) as kept:
            assert new.size == kept.size
            if exact:
                assert new.convert("RGB").tobytes() == kept.convert("RGB").tobytes(), name
