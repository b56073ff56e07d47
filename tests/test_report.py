from __future__ import annotations

import json
import re
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from feda4fair.cube import Cube
from feda4fair.errors import MeasureError
from feda4fair.fairness import demographic_disparity, equalized_odds_difference
from feda4fair.longform import STATISTICS
from feda4fair.report import FairnessReport, measure_cube

SEX = {1: "male", 2: "female"}
RACE = {1: "White", 2: "Black", 3: "Asian", 4: "Native"}


def table(rows=6000, seed=0):
    """Return rows of five clients; c1 is biased by sex, c2 by race, c4 has labels of one class."""
    rng = np.random.RandomState(seed)
    client = rng.randint(0, 5, rows)
    sex = rng.choice([1, 2], rows)
    race = rng.choice([1, 2, 3], rows, p=[0.6, 0.3, 0.1])
    chance = np.full(rows, 0.5)
    chance[(client == 1) & (sex == 2)] = 0.2
    chance[(client == 2) & (race == 2)] = 0.1
    truth = rng.rand(rows) < chance
    truth[client == 4] = True
    guess = truth ^ (rng.rand(rows) < 0.2)
    return {"client": client, "SEX": sex, "RAC1P": race, "y": truth, "p": guess}


def cube(data, *, predictions=False):
    return Cube.count(
        clients=data["client"],
        client_names=["c0", "c1", "c2", "c3", "c4", "empty"],
        attributes={"SEX": (data["SEX"], SEX), "RAC1P": (data["RAC1P"], RACE)},
        y_true=data["y"],
        y_pred=data["p"] if predictions else None,
    )


@pytest.fixture(scope="module")
def report():
    return measure_cube(cube(table()), intersections=[("SEX", "RAC1P")])


@pytest.fixture(scope="module")
def predicted():
    return measure_cube(cube(table(), predictions=True), against="pairs")


def test_worst_names_attribute_value_counts_and_verdict(report):
    found = report.worst("c1")
    assert (found.attribute, found.verdict, found.toward) == ("SEX", "toward", "female")
    assert found.worst_set == ("female",)
    assert found.dominant == "SEX"
    data = table()
    mine = data["client"] == 1
    alone = demographic_disparity(data["y"][mine], sensitive_features=data["SEX"][mine])
    assert found.disparity.size == alone.size
    assert [g.support for g in found.disparity.groups] == [g.support for g in alone.groups]
    assert "biased toward female" in str(found)
    other = report.worst("c2")
    assert (other.attribute, other.toward, other.dominant) == ("RAC1P", "Black", "RAC1P")


def test_a_client_without_bias_is_not_blamed(report):
    assert report.worst("c0").verdict in ("small", "undetermined")
    assert report.worst("c0").toward is None


def test_undefined_clients_have_a_reason_and_no_number(report):
    for client, reason in (("empty", "the client has no rows"), ("c4", "every label is 1")):
        found = report.worst(client)
        assert found.disparity.size is None
        assert found.verdict == "undefined"
        assert reason in found.disparity.reason
        assert str(found).endswith("no figure")
    frame = report.attribute("SEX")
    assert frame["size"].isna().tolist() == [False] * 4 + [True] * 2
    assert not (frame["size"] == 0).any()


def test_attributes_of_one_size_are_named_together():
    data = table()
    same = Cube.count(
        clients=data["client"],
        client_names=list("abcde"),
        attributes={"SEX": (data["SEX"], SEX), "GENDER": (data["SEX"], SEX)},
        y_true=data["y"],
    )
    found = measure_cube(same).worst("b")
    assert (found.attribute, found.tied_with) == ("SEX", ("GENDER",))


def test_only_contenders_win(report):
    chosen = measure_cube(report.cube, compare=["RAC1P"])
    assert report.worst("c1").attribute == "SEX"
    assert chosen.worst("c1").attribute == "RAC1P"
    assert chosen.worst("c1").dominant is None
    assert list(chosen.attribute("SEX").index) == list(report.clients)
    assert chosen.contrasts == {}


def test_three_levels_agree(report):
    frame = report.attribute("RAC1P")
    for client in report.clients[:4]:
        matrix = report.matrix(client, "RAC1P")
        assert list(matrix.index) == list(RACE.values())
        assert frame.loc[client, "size"] == matrix["gap"].abs().max()
        black = report.value("RAC1P", "Black").loc[client]
        assert black["gap"] == matrix.loc["Black", "gap"]
        assert black["gap_low"] <= black["gap"] <= black["gap_high"]
        native = matrix.loc["Native"]
        assert (native["n"], native["reason"]) == (0, "no rows of this value")
        assert pd.isna(native["gap"])


def test_intersections_are_measured_as_one_attribute(report):
    matrix = report.matrix("c1", "SEX & RAC1P")
    assert matrix.index[0] == "male & White"
    data = table()
    mine = data["client"] == 1
    alone = demographic_disparity(
        data["y"][mine],
        sensitive_features={n: data[n][mine] for n in ("SEX", "RAC1P")},
    )
    assert report.finding("c1", "SEX & RAC1P").disparity.size == alone.size
    assert report.worst("c1").attribute in ("SEX", "RAC1P")


def test_predictions_give_odds_and_accuracy(predicted):
    data = table()
    for k in (1, 2):
        mine = data["client"] == k
        alone = equalized_odds_difference(
            data["y"][mine],
            data["p"][mine],
            sensitive_features=[RACE[code] for code in data["RAC1P"][mine]],
            against="pairs",
        )
        found = predicted.finding(f"c{k}", "RAC1P", "EOD")
        assert found.disparity.size == alone.size
        assert found.metric == alone.attained[0].metric
        frame = predicted.attribute("RAC1P", "EOD")
        assert frame.loc[f"c{k}", "accuracy"] == (data["y"] == data["p"])[mine].mean()
        assert frame.loc[f"c{k}", "attained"] == alone.names
    assert predicted.worst("c4", "EOD").metric == "TPR"
    assert set(predicted.statistics()["metric"].to_pylist()) == {"DD", "TPR", "FPR"}


def test_predictions_can_be_summed_out(report, predicted):
    labels = measure_cube(predicted.cube.labels(), intersections=[("SEX", "RAC1P")])
    assert labels == report


def test_statistics_have_fixed_columns_and_say_what_is_null(report):
    found = report.statistics()
    assert found.schema.equals(STATISTICS)
    assert found.num_rows == (6 + 1) * (2 + 4 + 8)
    found.validate(full=True)
    frame = report.to_frame()
    undefined = frame["gap"].isna()
    assert (frame["reason"].notna() == undefined).all()
    assert frame.loc[undefined, ["gap_low", "gap_high", "p", "p_adjusted"]].isna().all(axis=None)
    pooled = frame[frame["scope"] == "pooled"]
    assert pooled["client_id"].isna().all()
    assert pooled["n"].sum() == 3 * 6000
    sizes = frame[(frame["scope"] == "client") & (frame["attribute"] == "SEX")]
    assert sizes["n"].sum() == 6000


def test_statistics_show_the_plain_argmax_beside_the_worst_set(predicted):
    rows = predicted.matrix("c2", "RAC1P").iloc[0]
    assert rows["against"] == "pairs"
    assert list(rows["argmax"]) == ["Black"]
    assert list(rows["worst_set"]) == ["Black"]
    assert rows["verdict"] == "toward"
    assert rows["toward"] == "Black"
    assert rows["dominant_attribute"] == "RAC1P"


def test_reports_of_the_same_counts_are_the_same_bytes(report, tmp_path):
    again = measure_cube(cube(table()), intersections=[("SEX", "RAC1P")])
    for name, one in (("a", report), ("b", again)):
        one.write_parquet(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert again == report
    assert again != measure_cube(report.cube)
    assert again != "a report"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


@pytest.mark.parametrize("name", ["report", "predicted"])
def test_json_and_parquet_bring_the_report_back(name, request, tmp_path):
    one = request.getfixturevalue(name)
    path = tmp_path / "value-silo.parquet"
    one.write_parquet(path)
    for back in (FairnessReport.from_json(one.to_json()), FairnessReport.read_parquet(path)):
        assert back == one
        assert back.statistics().equals(one.statistics())
        assert back.worst("c1") == one.worst("c1")
    assert pq.read_table(path).equals(one.statistics())


def test_a_report_of_two_workers_is_the_report_of_all_rows(report):
    data = table()
    halves = [
        {n: column[part] for n, column in data.items()}
        for part in (slice(None, 2500), slice(2500, None))
    ]
    added = cube(halves[0]) + cube(halves[1])
    assert measure_cube(added, intersections=[("SEX", "RAC1P")]) == report


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not json", "no fairness report"),
        ("[]", "no fairness report"),
        ('{"format":1}', "no fairness report"),
        ('{"format":99}', "format 99, expected 1"),
    ],
)
def test_other_text_is_refused(text, message):
    with pytest.raises(MeasureError, match=message):
        FairnessReport.from_json(text)


def test_counts_that_do_not_fit_are_refused(report):
    read = json.loads(report.to_json())
    for change in ({"counts": [[1], [1, 2]]}, {"counts": [[[[1]]]]}, {"against": "all"}):
        with pytest.raises(MeasureError):
            FairnessReport.from_json(json.dumps({**read, **change}))
    read["counts"][0][0][0] = [-1]
    with pytest.raises(MeasureError, match="without negative numbers"):
        FairnessReport.from_json(json.dumps(read))


def test_other_files_are_refused(tmp_path):
    with pytest.raises(MeasureError, match="no readable Parquet file"):
        FairnessReport.read_parquet(tmp_path / "absent.parquet")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(MeasureError, match="no readable Parquet file"):
        FairnessReport.read_parquet(tmp_path / "text")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other")
    with pytest.raises(MeasureError, match="holds no fairness report"):
        FairnessReport.read_parquet(tmp_path / "other")


def test_a_failed_write_leaves_nothing(report, tmp_path):
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="taken"):
        report.write_parquet(tmp_path / "taken")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda r: r.worst("c9"), "no client 'c9' among 6, the first being c0, c1, c2"),
        (lambda r: r.attribute("AGE"), "attribute 'AGE' was not measured; the report has SEX"),
        (lambda r: r.value("SEX", "Female"), "no value 'Female'; it has male, female"),
        (lambda r: r.matrix("c9", "SEX"), "no client 'c9'"),
        (lambda r: r.worst("c1", "EOD"), "TPR and FPR need predictions"),
        (lambda r: r.heterogeneity("TPR"), "TPR and FPR need predictions"),
        (lambda r: measure_cube(r.cube, against="all"), "no such definition"),
        (lambda r: measure_cube(r.cube, compare=["AGE"]), "no sensitive attribute 'AGE'"),
        (lambda r: measure_cube(r.cube.select([])), "needs clients"),
        (lambda r: measure_cube(r.cube, intersections=[("SEX", "AGE")]), "'AGE'"),
        (lambda r: measure_cube(r.cube, intersections=[("SEX",)]), "crosses a single attribute"),
        (
            lambda r: measure_cube(r.cube, intersections=[("SEX", "RAC1P")] * 2),
            "an intersection is named twice",
        ),
    ],
)
def test_bad_questions_get_one_sentence(report, ask, message):
    with pytest.raises(MeasureError, match=message):
        ask(report)


def test_the_terminal_page_reads_at_a_glance(report):
    text = str(report)
    assert text.startswith(
        "Fairness of 6 clients, 6,000 rows (labels; each value against the rest)"
    )
    line = next(line for line in text.splitlines() if re.match(r" +c1 ", line))
    assert "toward female" in line
    assert "SEX & RAC1P" in text
    assert "nan" not in text
    assert max(map(len, text.splitlines())) < 130
    assert repr(report) == (
        "FairnessReport(6 clients, 6,000 rows, SEX, RAC1P, SEX & RAC1P, against='rest')"
    )


def test_the_notebook_page_escapes_what_the_data_say():
    data = table()
    sharp = Cube.count(
        clients=data["client"],
        client_names=["<b>", "b", "c", "d", "e"],
        attributes={"S<E>X": (data["SEX"], {1: "<script>", 2: "f&f"})},
        y_true=data["y"],
    )
    html = measure_cube(sharp)._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert html.count("<table") == html.count("</table>") == 2


def test_summary_counts_every_client_once(report):
    frame = report.summary()
    verdicts = ["toward", "disparity", "small", "undetermined", "undefined"]
    assert (frame[verdicts].sum(axis=1) == 6).all()
    assert (frame["clients"] == 4).all()
    row = frame.set_index("attribute").loc["SEX"]
    data = table()
    assert row["pooled"] == demographic_disparity(data["y"], sensitive_features=data["SEX"]).size


def test_ranking_puts_the_largest_first_and_undefined_last(report):
    frame = report.ranking(6)
    assert frame["client"].tolist()[:2] in (["c2", "c1"], ["c1", "c2"])
    assert set(frame["client"].tolist()[4:]) == {"c4", "empty"}
    assert frame["DD"].tolist()[4:] == ["-", "-"]
    assert len(report.ranking(2)) == 2


def test_heterogeneity_is_a_table_of_figures_beside_their_nulls(report):
    frame = report.heterogeneity()
    assert {
        "H1 tau",
        "H2 value conflict",
        "H3 attribute conflict",
        "H4 cancellation",
        "H5 agreement",
        "skew",
    } <= set(frame["figure"])
    assert list(frame.columns) == [
        "figure",
        "attribute",
        "value",
        "estimate",
        "null",
        "null_low",
        "null_high",
        "clients",
    ]
    assert frame.equals(report.heterogeneity())


def test_ten_thousand_clients_are_measured_in_seconds():
    rng = np.random.RandomState(0)
    n = 400_000
    many = Cube.count(
        clients=rng.randint(0, 10_000, n),
        client_names=[f"{k:05}" for k in range(10_000)],
        attributes={"SEX": (rng.randint(1, 3, n), SEX), "RAC1P": (rng.randint(1, 5, n), RACE)},
        y_true=rng.rand(n) < 0.4,
    )
    start = time.process_time()
    one = measure_cube(many)
    assert one.statistics().num_rows == 10_001 * 6
    assert str(one).startswith("Fairness of 10000 clients")
    assert time.process_time() - start < 20
