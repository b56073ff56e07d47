"""The one scorer, and the parts it is made of: held-out rows, harm, a folder read back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fairlearn.metrics import demographic_parity_difference, equalized_odds_difference
from hypothesis import given
from hypothesis import strategies as st

from feda4fair.build import build, federations
from feda4fair.cube import Attribute
from feda4fair.errors import MeasureError, OutputError, RecipeError
from feda4fair.federation import Federation, concat
from feda4fair.harm import Harm, compare, figures
from feda4fair.heldout import HeldOut, held_out, read_predictions, write_predictions
from feda4fair.readback import read_federation, recipe_sha256
from feda4fair.score import open_config, score, score_rows, scored_rows
from feda4fair.scorecard import Score
from feda4fair_acs import DATASET
from feda4fair_acs.source import SampleSource

# Of each config clients with drops, with flips and without a rule, in train and in test.
SOURCE = SampleSource(parts=("AK", "AL", "KY", "OR", "SD", "TN"))
NOTES = ("a part of the sample.",)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("built") / "acs"
    build(DATASET, DATASET.recipes, SOURCE, out, notes=NOTES)
    return out


def federation_of(config: str) -> Federation:
    return concat(federations(DATASET.recipe(config), SOURCE))


@pytest.fixture(scope="module")
def silo() -> Federation:
    return federation_of("attribute-silo")


@pytest.fixture(scope="module")
def rows(silo: Federation) -> HeldOut:
    return scored_rows(silo)


def table(rows: HeldOut, guess: Any, *, dropped: bool = True) -> pd.DataFrame:
    """Return predictions of all held-out rows, or only of those that injection kept."""
    names = np.array(rows.names)[rows.client]
    frame = pd.DataFrame({"client_id": names, "row_id": rows.row_id, "prediction": guess})
    return frame if dropped else frame[~rows.dropped].reset_index(drop=True)


def noisy(rows: HeldOut, share: float = 0.25, seed: int = 0) -> np.ndarray:
    """Return the labels, a share of them wrong."""
    wrong = np.random.RandomState(seed).rand(len(rows.label)) < share
    return rows.label ^ wrong


# A folder read back


@pytest.mark.parametrize("config", [recipe.name for recipe in DATASET.recipes])
def test_a_folder_gives_the_federation_back(folder: Path, config: str) -> None:
    made, read = federation_of(config), read_federation(folder, config)
    assert read.recipe == made.recipe
    assert read.clients == made.clients
    assert read.ledger == made.ledger
    assert (read.source_rows, read.left_out) == (made.source_rows, made.left_out)
    assert np.array_equal(read.split, made.split)
    assert read.table.equals(made.table)
    columns = read.dropped.column_names
    assert read.dropped.sort_by("client_id").select(columns).equals(made.dropped.select(columns))


def test_features_are_left_out_where_they_are_not_needed(folder: Path) -> None:
    read = read_federation(folder, "value-silo", features=False)
    names = ["client_id", "row_id", "MAR", "SEX", "RAC1P", "label", "flipped"]
    assert read.table.column_names == names


def damage_nothing(folder: Path) -> None:
    shutil.rmtree(folder)


def damage_dropped(folder: Path) -> None:
    (folder / "dropped" / "value-silo.parquet").unlink()


def damage_data(folder: Path) -> None:
    (path,) = (folder / "data" / "value-silo").glob("test-*")
    path.write_bytes(path.read_bytes()[:-20])


def damage_rows(folder: Path) -> None:
    (path,) = (folder / "data" / "value-silo").glob("test-*")
    pq.write_table(pq.read_table(path).slice(1), path)


def damage_recipe(folder: Path) -> None:
    path = folder / "recipes" / "value-silo.json"
    path.write_text(path.read_text("utf-8").replace('"seed": 42', '"seed": 43'), "utf-8")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (damage_nothing, "manifest.json: No such file or directory"),
        (damage_dropped, r"dropped/value-silo.parquet: is missing"),
        (damage_data, r"test-00000-of-00001.parquet: cannot be read"),
        (damage_rows, "the rows of value-silo do not fit clients/value-silo.parquet"),
        (damage_recipe, "is not the recipe that the manifest names"),
    ],
)
def test_a_damaged_folder_is_named(folder: Path, tmp_path: Path, damage: Any, said: str) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    damage(copy)
    with pytest.raises(OutputError, match=said):
        read_federation(copy, "value-silo")


def test_an_unknown_config_is_named(folder: Path) -> None:
    with pytest.raises(OutputError, match="no config 'silo'; it has attribute-silo, value-silo"):
        score([], folder, "silo")
    with pytest.raises(RecipeError, match="name one of its configs"):
        open_config(folder, None)


# Which rows are scored


def test_the_rows_are_the_test_split_and_what_was_dropped_from_it(silo: Federation) -> None:
    rows = scored_rows(silo)
    dropped = silo.dropped.to_pandas()
    wanted = dropped[dropped.split == "test"]
    assert len(wanted) > 10
    assert (~rows.dropped).sum() == (silo.split == 2).sum()
    names = np.array(rows.names)[rows.client]
    found = set(zip(names[rows.dropped], rows.row_id[rows.dropped], strict=True))
    assert found == set(zip(wanted.client_id, wanted.row_id, strict=True))
    assert rows.label[rows.dropped].all()
    order = list(zip(rows.client, rows.row_id, strict=True))
    assert order == sorted(order)


def test_device_configs_are_scored_on_their_test_clients(folder: Path) -> None:
    rows = scored_rows(open_config(folder, "value-device"))
    split = DATASET.recipe("value-device").split
    assert set(rows.names) == {n for n in split.test if n[:2] in SOURCE.parts}  # type: ignore[union-attr]


def test_no_row_at_all_is_an_error(silo: Federation) -> None:
    nothing = np.zeros(silo.table.num_rows, np.bool_)
    with pytest.raises(MeasureError, match="its test split holds no row"):
        held_out(silo, nothing, np.zeros(silo.dropped.num_rows, np.bool_), what="test split")


# The figures


@pytest.mark.parametrize("against", ["rest", "pairs"])
@pytest.mark.parametrize("protocol", ["injected", "restored"])
def test_figures_are_those_of_the_rows(silo: Federation, protocol: Any, against: Any) -> None:
    rows = scored_rows(silo)
    guess = noisy(rows)
    result = score(table(rows, guess), silo, against=against)
    found = result.clients(protocol)
    truth = rows.label if protocol == "injected" else rows.label ^ rows.flipped
    kept = ~rows.dropped if protocol == "injected" else np.ones(len(guess), np.bool_)
    assert rows.flipped.any()
    assert rows.dropped.any()
    parts = {name: kept & (rows.client == k) for k, name in enumerate(rows.names)}
    parts["pooled"] = kept
    assert list(found.index) == list(parts)
    for name, mask in parts.items():
        line = found.loc[name]
        assert line["rows"] == mask.sum()
        assert line["accuracy"] == pytest.approx((guess == truth)[mask].mean(), abs=1e-12)
        assert line["accuracy low"] < line["accuracy"] < line["accuracy high"]
        for attribute in ("SEX", "RAC1P", "MAR"):  # two values each: both definitions agree
            groups = {"sensitive_features": rows.codes[attribute][mask]}
            arrays = truth[mask], guess[mask]
            dd = demographic_parity_difference(*arrays, **groups)
            eod = equalized_odds_difference(*arrays, **groups)
            assert line[f"DD {attribute}"] == pytest.approx(dd, abs=1e-12)
            assert line[f"EOD {attribute}"] == pytest.approx(eod, abs=1e-12)


def test_five_values_follow_the_definition_asked_for() -> None:
    federation = federation_of("value-silo")
    rows = scored_rows(federation)
    guess = noisy(rows)
    pairs = score(table(rows, guess), federation, against="pairs").clients()
    rest = score(table(rows, guess), federation).clients()
    mask = ~rows.dropped & (rows.client == rows.names.index("AL"))
    race = rows.codes["RAC1P"][mask]
    rates = {code: guess[mask][race == code].mean() for code in np.unique(race)}
    gaps = [abs(rates[code] - guess[mask][race != code].mean()) for code in rates]
    wide = max(rates.values()) - min(rates.values())
    assert pairs.loc["AL", "DD RAC1P"] == pytest.approx(wide, abs=1e-12)
    assert rest.loc["AL", "DD RAC1P"] == pytest.approx(max(gaps), abs=1e-12)
    assert (pairs["DD RAC1P"] >= rest["DD RAC1P"]).all()


def test_restored_labels_undo_injection(silo: Federation, rows: HeldOut) -> None:
    clean = score(table(rows, rows.label ^ rows.flipped), silo)
    assert (clean.clients("restored")["accuracy"] == 1).all()
    injected = clean.clients("injected")["accuracy"]
    assert (injected[["AL", "OR"]] < 1).all()  # the clients with flips
    assert (injected[["AK", "KY", "SD", "TN"]] == 1).all()


def test_a_constant_prediction_has_no_disparity_and_its_accuracy_beside_it(
    silo: Federation, rows: HeldOut
) -> None:
    summary = score(table(rows, np.zeros(len(rows.label), int)), silo).summary()
    assert (summary[["pooled", "mean", "worst tenth", "largest"]] == 0).all(axis=None)
    injected = summary[summary.protocol == "injected"]
    assert injected["accuracy"].unique() == pytest.approx([1 - rows.label[~rows.dropped].mean()])


def test_summary_has_mean_and_worst_tenth_of_the_clients(silo: Federation, rows: HeldOut) -> None:
    result = score(table(rows, noisy(rows)), silo)
    clients = result.clients().drop(index="pooled")
    found = result.summary().set_index(["protocol", "attribute", "figure"])
    line = found.loc[("injected", "SEX", "DD")]
    assert line["mean"] == pytest.approx(clients["DD SEX"].mean())
    assert line["worst tenth"] == line["largest"] == clients["DD SEX"].max()  # one of six clients
    assert line["worst tenth accuracy"] == clients["accuracy"].min()
    assert line["mean accuracy"] == pytest.approx(clients["accuracy"].mean())
    assert line["clients"] == 6


def test_worst_tenth_is_a_mean_and_leaves_undefined_clients_out() -> None:
    from feda4fair.scorecard import _tenth

    values = np.array([*np.arange(20.0), np.nan])
    assert _tenth(values, largest=True) == 18.5
    assert _tenth(values, largest=False) == 0.5
    assert np.isnan(_tenth(values[-1:], largest=True))


def test_marital_status_is_measured_but_never_a_winner(silo: Federation, rows: HeldOut) -> None:
    guess = rows.codes["MAR"] == 1
    result = score(table(rows, guess), silo)
    assert (result.clients()["DD MAR"] == 1).all()
    assert set(result.clients()["worst"]) <= {"SEX", "RAC1P"}
    assert result.worst_other() == "MAR"


def test_the_worst_other_attribute_is_not_the_mitigated_one(
    silo: Federation, rows: HeldOut
) -> None:
    guess = rows.codes["SEX"] == 1
    assert score(table(rows, guess), silo).worst_other() == "SEX"
    result = score(table(rows, guess), silo, mitigated="SEX")
    means = result.summary().query("protocol == 'injected' and figure == 'DD'")
    others = means[means.attribute != "SEX"].set_index("attribute")["mean"]
    assert result.worst_other() == others.idxmax()
    assert "other than SEX" in str(result)
    with pytest.raises(MeasureError, match="'AGEP': acs/attribute-silo has MAR, SEX, RAC1P"):
        score(table(rows, guess), silo, mitigated="AGEP")


def test_folder_and_federation_give_the_same(folder: Path, silo: Federation) -> None:
    guess = table(scored_rows(silo), noisy(scored_rows(silo)))
    assert score(guess, folder, "attribute-silo") == score(guess, silo)


# The form of predictions


def forms(frame: pd.DataFrame, tmp_path: Path) -> dict[str, Any]:
    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    parquet, csv = tmp_path / "p.parquet", tmp_path / "p.csv"
    pq.write_table(arrow, parquet)
    frame.to_csv(csv, index=False)
    return {
        "arrow": arrow,
        "polars": pl.from_arrow(arrow),
        "mapping": {name: arrow[name] for name in arrow.column_names},
        "bool": frame.assign(prediction=frame.prediction == 1),
        "float": frame.assign(prediction=frame.prediction.astype(float)),
        "shuffled": frame.sample(frac=1, random_state=1),
        "more columns": frame.assign(score=0.5),
        "parquet": parquet,
        "path as text": str(csv),
        "csv": csv,
    }


def test_any_form_of_the_same_predictions_scores_the_same(
    silo: Federation, rows: HeldOut, tmp_path: Path
) -> None:
    frame = table(rows, noisy(rows))
    expected = score(frame, silo)
    for name, form in forms(frame, tmp_path).items():
        assert score(form, silo) == expected, name


@given(st.permutations(range(12)), st.integers(0, 2**12 - 1))
def test_order_of_predictions_means_nothing(order: list[int], bits: int) -> None:
    federation = SMALL
    rows = scored_rows(federation)
    guess = [(bits >> k) & 1 for k in range(len(rows.label))]
    frame = table(rows, guess)
    shuffled = frame.iloc[[k for k in order if k < len(frame)]]
    assert score(shuffled, federation) == score(frame, federation)


SMALL = federation_of("attribute-silo").only(["SD"])
SMALL = Federation(
    recipe=SMALL.recipe,
    clients=SMALL.clients,
    table=SMALL.table,
    split=np.where(np.cumsum(SMALL.split == 2) <= 10, SMALL.split, 0).astype(np.int8),
    dropped=SMALL.dropped.slice(0, 0),
    ledger=SMALL.ledger,
    source_rows=SMALL.source_rows,
    left_out=SMALL.left_out,
)
"""South Dakota with ten test rows."""


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda f: f.iloc[1:], r"got no prediction for 1 row \(AK/"),
        (lambda f: f.iloc[3:], r"got no prediction for 3 rows \(the first is AK/"),
        (lambda f: pd.concat([f, f.iloc[:2]]), r"2 rows \(the first is AK/\d+\) predicted twice"),
        (lambda f: f.assign(client_id="XX"), r"\(the first is XX/\d+\) not among them"),
        (lambda f: f.assign(row_id=f.row_id + 10**12), r"not among them"),
        (lambda f: f.assign(row_id=-f.row_id - 1), r"not among them"),
        (lambda f: f.drop(columns="row_id"), "no column row_id among client_id, prediction"),
        (lambda f: f.assign(prediction=2), "prediction: got the labels 2, expected 0 and 1"),
        (lambda f: f.assign(prediction=0.5), "got the labels 0.5"),
        (lambda f: f.assign(prediction=np.nan), "got the labels"),
        (lambda f: f.assign(row_id="one"), "row_id do not read as text and whole numbers"),
        (lambda f: f.assign(client_id=None), "values of client_id and row_id are missing"),
        (lambda f: 7, "no table"),
        (lambda f: "nowhere.parquet", r"cannot be read \(no such file"),
    ],
)
def test_bad_predictions_are_named_in_one_sentence(
    silo: Federation, rows: HeldOut, spoil: Any, said: str
) -> None:
    with pytest.raises(MeasureError, match=said) as caught:
        score(spoil(table(rows, noisy(rows))), silo, method="mine")
    message = str(caught.value)
    assert message.startswith("mine: ")
    assert "\n" not in message


def test_a_damaged_file_is_named(silo: Federation, tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    path.write_bytes(b"PAR1 nothing")
    with pytest.raises(MeasureError, match="p"):
        score(path, silo)


def scored_rows_of_another_split_are_foreign(silo: Federation, rows: HeldOut) -> None:
    train = silo.client("SD", "train").slice(0, 1).to_pandas()[["client_id", "row_id"]]
    extra = pd.concat([table(rows, noisy(rows)), train.assign(prediction=1)])
    with pytest.raises(MeasureError, match=rf"1 row \(SD/{train.row_id[0]}\) not among them"):
        score(extra, silo)


def test_dropped_rows_are_predicted_all_or_not_at_all(silo: Federation, rows: HeldOut) -> None:
    guess = noisy(rows)
    whole = score(table(rows, guess), silo)
    without = score(table(rows, guess, dropped=False), silo)
    assert without.protocols == ("injected",)
    assert without.injected == whole.injected
    assert without.restored is None
    with pytest.raises(MeasureError, match="restored protocol was not scored"):
        without.clients("restored")
    with pytest.raises(MeasureError, match="it is 'injected' or 'restored'"):
        whole.marks("clean")  # type: ignore[arg-type]
    some = table(rows, guess)[~rows.dropped | (np.cumsum(rows.dropped) > 2)]
    with pytest.raises(MeasureError, match=r"no prediction for 2 rows .* among those dropped"):
        score(some, silo)


def test_predictions_of_another_recipe_are_refused(
    silo: Federation, rows: HeldOut, tmp_path: Path
) -> None:
    arrow = pa.Table.from_pandas(table(rows, noisy(rows)), preserve_index=False)
    own, other = tmp_path / "own.parquet", tmp_path / "other.parquet"
    write_predictions(arrow, own, recipe_sha256=recipe_sha256(silo.recipe))
    write_predictions(arrow, other, recipe_sha256="0" * 64)
    assert score(own, silo) == score(arrow, silo)
    with pytest.raises(MeasureError, match="made for the recipe 000000000000, but this config"):
        score(other, silo)
    with pytest.raises(OutputError, match="cannot be written"):
        write_predictions(arrow, tmp_path / "none" / "p.parquet", recipe_sha256="")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.parquet", "own.parquet"]


# The result


def test_json_gives_an_equal_result_back(silo: Federation, rows: HeldOut, tmp_path: Path) -> None:
    guess = table(rows, noisy(rows))
    result = score(guess, silo, local=guess, method="PUFFLE", mitigated="SEX", training_seed=3)
    text = result.to_json()
    assert Score.from_json(text) == result
    assert Score.from_json(text).to_json() == text
    path = tmp_path / "score.json"
    path.write_text(text, "utf-8")
    assert Score.from_json(path) == result
    read = json.loads(text)
    assert read["recipe_sha256"] == recipe_sha256(silo.recipe)
    assert (read["injection_seed"], read["training_seed"]) == (42, 3)
    alone = score(table(rows, noisy(rows), dropped=False), silo)
    assert Score.from_json(alone.to_json()) == alone
    assert alone != result


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": 1}', '{"format": 1, "dataset": 1}'])
def test_other_text_is_no_result(text: str) -> None:
    with pytest.raises(MeasureError, match="no score"):
        Score.from_json(text)


def test_a_result_of_another_format_is_refused() -> None:
    with pytest.raises(MeasureError, match="format 9 where 1 is expected"):
        Score.from_json('{"format": 9}')
    with pytest.raises(MeasureError, match=r"nowhere\.json: no score"):
        Score.from_json(Path("nowhere.json"))


def test_the_recipe_hash_is_the_manifests(folder: Path, silo: Federation) -> None:
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    noted = manifest["configs"]["attribute-silo"]["recipe_sha256"]
    assert recipe_sha256(silo.recipe) == noted


def test_text_shows_protocols_accuracy_and_disparity(silo: Federation, rows: HeldOut) -> None:
    guess = table(rows, noisy(rows))
    result = score(guess, silo, local=guess, method="<method>", training_seed=5)
    text = str(result)
    assert "<method> on acs/attribute-silo, test split" in text
    assert "injection seed 42, training seed 5" in text
    for part in ("Clients, injected", "Clients, restored", "Summary", "Harm", "pooled", "EOD SEX"):
        assert part in text
    assert "&lt;method&gt;" in result._repr_html_()


def test_long_form_has_every_figure_in_full_precision(silo: Federation, rows: HeldOut) -> None:
    result = score(table(rows, noisy(rows)), silo)
    long = result.figures()
    assert len(long) == 2 * 7 * 7  # protocols, clients and pooled, figures
    wide = result.clients("restored")
    line = long.query("protocol == 'restored' and client_id == 'SD' and attribute == 'RAC1P'")
    values = line.set_index("metric")["value"]
    assert values["EOD"] == wide.loc["SD", "EOD RAC1P"]
    assert set(long.loc[long.metric == "DD", "against"]) == {"rest"}


# Who is harmed


def counts_of(pairs: dict[tuple[int, int, int, int], int]) -> np.ndarray:
    """Return one client's cells: group, label, method, reference -> rows."""
    cells = np.zeros((1, 2, 2, 2, 2), dtype=np.int64)
    for cell, number in pairs.items():
        cells[(0, *cell)] = number
    return cells


GROUPS = (Attribute(name="SEX", values=("Male", "Female"), codes=(1, 2)),)


def harm_of(cells: np.ndarray, **changes: Any) -> dict[str, Harm]:
    settings: dict[str, Any] = {
        "clients": [f"c{k}" for k in range(len(cells))],
        "attributes": GROUPS,
        "reference": "local",
        "against": "rest",
        "seed": 7,
        "scope": "demo",
    } | changes
    return {harm.figure: harm for harm in compare(cells, **settings)}


def test_the_same_predictions_harm_nobody(silo: Federation, rows: HeldOut) -> None:
    guess = table(rows, noisy(rows))
    harm = score(guess, silo, local=guess, baseline=guess).harm()
    assert set(harm["against"]) == {"local", "baseline"}
    assert (harm["mean difference"] == 0).all()
    assert (harm[["harmed", "helped"]] == 0).all(axis=None)
    assert (harm["undecided"] == 1).all()


def test_a_method_that_favors_men_harms_and_its_opposite_helps(
    silo: Federation, rows: HeldOut
) -> None:
    fair = table(rows, rows.label)
    unfair = table(rows, rows.label | (rows.codes["SEX"] == 1))
    harm = score(unfair, silo, baseline=fair).harm().set_index(["protocol", "figure"])
    assert harm.loc[("injected", "DD SEX"), "harmed"] == 1
    assert harm.loc[("injected", "accuracy"), "harmed"] == 1
    assert harm.loc[("injected", "DD SEX"), "mean difference"] > 0.3
    assert harm.loc[("injected", "accuracy"), "mean difference"] < 0
    turned = score(fair, silo, baseline=unfair).harm().set_index(["protocol", "figure"])
    assert turned.loc[("restored", "DD SEX"), "helped"] == 1
    assert turned.loc[("injected", "accuracy"), "helped"] == 1


def test_clients_are_compared_on_rows_in_common(silo: Federation, rows: HeldOut) -> None:
    frame = table(rows, noisy(rows))
    few = frame[frame.client_id.isin(["AK", "SD"])].groupby("client_id").head(60)
    result = score(frame, silo, local=few)
    (accuracy, *_) = result.marks("restored").harms
    assert dict(zip(accuracy.clients, accuracy.rows, strict=True)) == {
        **dict.fromkeys(rows.names, 0),
        "AK": 60,
        "SD": 60,
    }
    assert accuracy.verdicts.count("undefined") == 4
    assert set(result.harm()["clients"]) <= {1, 2}
    other = few.assign(client_id="XX")
    with pytest.raises(MeasureError, match="local: none of its 120 rows is in the test split"):
        score(frame, silo, local=other)
    with pytest.raises(MeasureError, match=r"local: .* predicted twice"):
        score(frame, silo, local=pd.concat([few, few]))


def test_intervals_are_those_of_a_row_bootstrap() -> None:
    rng = np.random.RandomState(3)
    n = 1500
    group, label = rng.rand(n) < 0.3, rng.rand(n) < 0.5
    reference = np.where(rng.rand(n) < 0.8, label, ~label)
    method = np.where(group & (rng.rand(n) < 0.3), False, reference)
    cells = np.zeros((1, 2, 2, 2, 2), dtype=np.int64)
    np.add.at(cells[0], tuple(x.astype(int) for x in (group, label, method, reference)), 1)
    found = harm_of(cells)

    def difference(take: np.ndarray) -> tuple[float, float]:
        g, y, m, r = group[take], label[take], method[take], reference[take]
        gaps = [abs(p[g].mean() - p[~g].mean()) for p in (m, r)]
        return float((m == y).mean() - (r == y).mean()), float(gaps[0] - gaps[1])

    observed = difference(np.arange(n))
    drawn = np.array([difference(rng.randint(0, n, n)) for _ in range(1000)])
    for position, figure in enumerate(("accuracy", "DD")):
        harm = found[figure]
        assert harm.difference[0] == pytest.approx(observed[position], abs=1e-12)
        bounds = np.quantile(drawn[:, position], (0.025, 0.975))
        spread = bounds[1] - bounds[0]
        assert [harm.low[0], harm.high[0]] == pytest.approx(bounds, abs=0.15 * spread)


def test_a_resample_belongs_to_its_client_alone(untouched_random: None) -> None:
    rng = np.random.RandomState(0)
    cells = rng.poisson(8, (4, 2, 2, 2, 2))
    everyone = harm_of(cells)
    alone = harm_of(cells[2:3], clients=["c2"])
    for figure, harm in alone.items():
        assert harm.low[0] == everyone[figure].low[2]
        assert harm.high[0] == everyone[figure].high[2]
    assert harm_of(cells) == everyone
    assert harm_of(cells, seed=8) != everyone


def test_clients_without_a_figure_are_undefined_and_counted_out() -> None:
    one_group = counts_of({(0, 0, 0, 0): 30, (0, 1, 1, 0): 30})
    nobody = counts_of({})
    found = harm_of(np.concatenate([one_group, nobody]))
    assert found["DD"].difference == (None, None)
    assert found["DD"].verdicts == ("undefined", "undefined")
    assert np.isnan(found["DD"].share("harmed"))
    assert found["accuracy"].verdicts == ("helped", "undefined")
    assert found["accuracy"].share("helped") == 1


def test_exchangeable_predictions_are_seldom_called_harmful() -> None:
    rng = np.random.RandomState(1)
    clients, n = 150, 600
    cells = np.zeros((clients, 2, 2, 2, 2), dtype=np.int64)
    for k in range(clients):
        group, label = rng.rand(n) < 0.3, rng.rand(n) < 0.4
        guesses = (rng.rand(n) < np.where(label, 0.7, 0.3) - 0.1 * group for _ in range(2))
        np.add.at(cells[k], tuple(x.astype(int) for x in (group, label, *guesses)), 1)
    for figure, harm in harm_of(cells).items():
        # 2.5 % and three standard errors of 150 clients
        assert harm.share("harmed") <= 0.064, figure
        assert harm.share("helped") <= 0.064, figure


def test_figures_need_predictions(silo: Federation) -> None:
    from feda4fair.cube import Cube

    labels = Cube(clients=("a",), attributes=GROUPS, counts=np.ones((1, 2, 2, 1), np.int64))
    with pytest.raises(MeasureError, match="accuracy needs predictions"):
        figures(labels, "rest")


def test_any_rows_can_be_scored(silo: Federation) -> None:
    kept = silo.split == 1
    gone = np.zeros(silo.dropped.num_rows, np.bool_)
    rows = held_out(silo, kept, gone, what="validation split")
    result = score_rows(table(rows, rows.label), rows)
    assert result.rows == "validation split"
    assert (result.clients()["accuracy"] == 1).all()
    assert read_predictions(table(rows, rows.label), "x").num_rows == kept.sum()
