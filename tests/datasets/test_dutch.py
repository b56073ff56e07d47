from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import feda4fair_dutch
from feda4fair.content import content_sha256
from feda4fair.errors import RecipeError
from feda4fair.federation import Federation
from feda4fair.recipe import ClientSplit, Gaussian, Recipe
from feda4fair.split import SPLITS, draw_test_clients
from feda4fair.steps import federate_table, known_clients
from feda4fair_dutch import DATASET
from feda4fair_dutch.configs import RECIPES
from feda4fair_dutch.sample import NOTICE, population, write_arff
from feda4fair_dutch.schema import MARITAL_BINARY, MARITAL_FOUR
from feda4fair_dutch.source import open_source, read_arff

NAMES = ["attribute-silo", "value-silo", "attribute-device", "value-device"]


def groups_of(recipe: Recipe) -> dict[str, tuple[str, ...]]:
    """Return the clients of every group; shares are taken in client order."""
    clients = known_clients(recipe)
    shares = np.cumsum([0.0, *(group.clients for group in recipe.groups)])
    bounds = [round(share * len(clients)) for share in shares]
    return {
        group.name: clients[start:stop]
        for group, start, stop in zip(recipe.groups, bounds[:-1], bounds[1:], strict=True)
    }


def label_rates(federation: Federation, column: str) -> tuple[np.ndarray, list[int]]:
    """Return the share of favorable labels by value and client, and the values."""
    values = federation.table[column].to_numpy()
    label = federation.table["label"].to_numpy()
    client = np.repeat(np.arange(len(federation.clients)), np.diff(federation.offsets))
    size = len(federation.clients)
    codes = np.unique(values).tolist()
    rates = []
    for code in codes:
        mask = values == code
        rows = np.bincount(client[mask], minlength=size)
        positives = np.bincount(client[mask], label[mask], minlength=size)
        rates.append(np.where(rows > 0, positives / np.maximum(rows, 1), np.nan))
    return np.array(rates), codes


def most_biased(federation: Federation) -> list[str]:
    """Name every client's attribute of the largest disparity, or its value of the lowest rate."""
    recipe = federation.recipe
    attributes = sorted({rule.where[0][0] for rule in recipe.rules})
    if len(attributes) > 1:
        gaps = [
            np.abs(np.diff(label_rates(federation, name)[0], axis=0))[0] for name in attributes
        ]
        return [attributes[i] for i in np.argmax(gaps, axis=0)]
    by_value, codes = label_rates(federation, attributes[0])
    names = dict(recipe.schema[attributes[0]].coding.names)  # type: ignore[union-attr]
    return [names[codes[i]] for i in np.nanargmin(by_value, axis=0)]


def winners(federation: Federation) -> dict[str, tuple[int, int]]:
    """Count, for every group, the clients that come out biased as their rule wants."""
    recipe = federation.recipe
    by_attribute = len({rule.where[0][0] for rule in recipe.rules}) > 1
    found = dict(zip((c.name for c in federation.clients), most_biased(federation), strict=True))
    counts = {}
    for group in recipe.groups:
        wanted = group.rules[0].where[0][0 if by_attribute else 1]
        clients = groups_of(recipe)[group.name]
        counts[str(wanted)] = (sum(found[name] == wanted for name in clients), len(clients))
    return counts


@pytest.fixture(scope="module")
def rows(shared_data: Path) -> pa.Table:
    return open_source(shared_data / "dutch").read()


@pytest.fixture(scope="module")
def federations(rows: pa.Table) -> dict[str, Federation]:
    return {recipe.name: federate_table(rows, recipe) for recipe in RECIPES}


@pytest.mark.parametrize(
    ("config", "least"),
    [
        ("attribute-silo", {"sex": 24, "Marital_status": 24}),
        ("attribute-device", {"sex": 70, "Marital_status": 65}),
        ("value-silo", {"Never married": 15, "Widowed": 14, "Divorced": 15}),
        ("value-device", {"Never married": 55, "Divorced": 40}),
    ],
)
def test_clients_are_biased_as_the_paper_shows(
    federations: dict[str, Federation], config: str, least: dict[str, int]
) -> None:
    counts = winners(federations[config])
    sys.stdout.write(f"dutch/{config}: {counts}\n")
    assert counts.keys() == least.keys()
    for name, (won, clients) in counts.items():
        assert won >= least[name], f"{name}: {won} of {clients}"
    if config.endswith("silo"):
        assert all(won >= 0.85 * clients for won, clients in counts.values())


def test_no_client_is_biased_toward_married(federations: dict[str, Federation]) -> None:
    for config in ("value-silo", "value-device"):
        assert "Married" not in most_biased(federations[config])


def test_mean_disparities_are_those_of_the_paper(federations: dict[str, Federation]) -> None:
    silo = federations["attribute-silo"]
    gap = {
        name: np.abs(np.diff(label_rates(silo, name)[0], axis=0))[0].reshape(2, 25).mean(axis=1)
        for name in ("sex", "Marital_status")
    }
    assert gap["sex"] == pytest.approx([0.51, 0.30], abs=0.015)
    assert gap["Marital_status"] == pytest.approx([0.18, 0.40], abs=0.015)


@pytest.mark.parametrize("config", NAMES)
def test_every_row_is_accounted_for(
    federations: dict[str, Federation], rows: pa.Table, config: str
) -> None:
    federation = federations[config]
    kept, dropped = federation.table, federation.dropped
    assert kept.num_rows + dropped.num_rows + federation.left_out == 60_420
    assert federation.left_out == 0
    ids = np.concatenate([kept["row_id"].to_numpy(), dropped["row_id"].to_numpy()])
    assert np.array_equal(np.sort(ids), np.arange(60_420))
    clean = kept["label"].to_numpy() ^ kept["flipped"].to_numpy()
    high = np.array([value == "2_1" for value in rows["occupation"].to_pylist()])
    assert (clean == high[kept["row_id"].to_numpy()]).all()
    assert (dropped["label"].to_numpy() == 1).all()
    sizes = np.bincount(np.diff(federation.offsets))
    assert sizes.sum() == len(known_clients(federation.recipe))


@pytest.mark.parametrize("config", NAMES)
def test_rules_touch_only_the_favorable_rows_of_their_group(
    federations: dict[str, Federation], config: str
) -> None:
    federation = federations[config]
    for group, clients in groups_of(federation.recipe).items():
        column, _, value = group.partition("=")
        code = federation.recipe.schema.code(column, value)
        for name in clients:
            client = federation.client(name)
            flipped = client.filter(client["flipped"])
            assert set(flipped[column].to_pylist()) <= {code}
            assert set(flipped["label"].to_pylist()) <= {0}


def test_recipes_say_what_the_paper_says() -> None:
    assert [recipe.name for recipe in RECIPES] == NAMES
    assert [len(known_clients(recipe)) for recipe in RECIPES] == [50, 50, 150, 150]
    for recipe in RECIPES:
        assert (recipe.seed, recipe.sampler, recipe.dataset) == (42, "keyed", "dutch")
        assert recipe.schema.sensitive == ("sex", "Marital_status")
        assert Recipe.from_json(recipe.to_json()) == recipe
        for rule in recipe.rules:
            assert rule.label == 1
            assert rule.drop == Gaussian(mean=0.5, std=0.05)
            assert rule.flip == Gaussian(mean=0.4, std=0.02)
        sizes = [len(clients) for clients in groups_of(recipe).values()]
        assert sum(sizes) == len(known_clients(recipe))
        assert max(sizes) - min(sizes) <= 1
    married = {code for code, name in MARITAL_BINARY.names if name == "Married"}
    assert married == {code for code, name in MARITAL_FOUR.names if name == "Married"} == {2}


@pytest.mark.parametrize("config", ["attribute-device", "value-device"])
def test_test_clients_are_the_frozen_draw_and_balanced(config: str) -> None:
    recipe = DATASET.recipe(config)
    assert isinstance(recipe.split, ClientSplit)
    group_of = {name: group for group, names in groups_of(recipe).items() for name in names}
    drawn = draw_test_clients(
        {name: (name, group) for name, group in group_of.items()}, 30, seed=42, scope=config
    )
    assert recipe.split.test == drawn
    for group in recipe.groups:
        assert sum(group_of[name] == group.name for name in drawn) == 15


@pytest.mark.parametrize("config", ["attribute-silo", "value-silo"])
def test_silo_splits_hold_their_shares_in_every_client(
    federations: dict[str, Federation], config: str
) -> None:
    federation = federations[config]
    for client in federation.clients:
        codes = federation.split[client.start : client.stop]
        counts = np.bincount(codes, minlength=3)
        gone = federation.dropped.filter(pc.equal(federation.dropped["client_id"], client.name))
        before = counts + [gone["split"].to_pylist().count(name) for name in SPLITS]
        share = before / before.sum()
        assert share == pytest.approx([0.7, 0.1, 0.2], abs=0.002)


def test_the_sample_is_made_up_repeatable_and_plausible(untouched_random: None) -> None:
    table = population()
    assert population().equals(table)
    assert not population(seed=1).equals(table)
    assert table.num_rows == 12_000
    high = np.array([value == "2_1" for value in table["occupation"].to_pylist()])
    sex, marital = table["sex"].to_numpy(), table["Marital_status"].to_numpy()
    assert high[sex == 1].mean() == pytest.approx(0.626, abs=0.03)
    assert high[sex == 2].mean() == pytest.approx(0.327, abs=0.03)
    shares = [high[marital == code].mean() for code in (1, 2, 3, 4)]
    assert shares == pytest.approx([0.362, 0.542, 0.407, 0.434], abs=0.05)
    assert "no row describes a person" in NOTICE


def test_the_sample_holds_only_codes_of_the_source(rows: pa.Table) -> None:
    table = population()
    assert table.schema.equals(rows.schema)
    for name in table.column_names[1:]:
        assert set(table[name].unique().to_pylist()) <= set(rows[name].unique().to_pylist())


@pytest.mark.parametrize("config", NAMES)
def test_the_sample_makes_all_configs(config: str) -> None:
    source = DATASET.open_source(None, sample=True)
    assert source.synthetic
    federation = federate_table(source.read("all"), DATASET.recipe(config))
    assert len(federation.clients) == len(known_clients(federation.recipe))
    counts = winners(federation)
    assert sum(won for won, _ in counts.values()) > 0.5 * len(federation.clients)
    (record,) = source.files()
    assert (record.name, record.rows_read) == ("sample", 12_000)


@pytest.mark.parametrize("packed", [False, True])
def test_the_sample_file_gives_the_sample(tmp_path: Path, packed: bool) -> None:
    path = write_arff(tmp_path, packed=packed)
    first = path.read_bytes()
    assert content_sha256(read_arff(path)) == content_sha256(population())
    assert write_arff(tmp_path, packed=packed).read_bytes() == first


def test_the_builder_yields_the_federation(tmp_path: Path) -> None:
    recipe = DATASET.recipe("value-device")
    builder = feda4fair_dutch.Feda4FairDutch(
        cache_dir=str(tmp_path), config_name=recipe.name, sample=True
    )
    builder.download_and_prepare()
    loaded = builder.as_dataset()
    federation = federate_table(population(), recipe)
    assert set(loaded) == {"train", "test"}
    assert set(loaded["test"]["client_id"]) == set(recipe.split.test)
    assert sum(split.num_rows for split in loaded.values()) == federation.table.num_rows
    name = recipe.split.test[0]
    mine = loaded["test"].filter(
        lambda ids: [i == name for i in ids], batched=True, input_columns="client_id"
    )
    expected = federation.client(name)
    for column in ("row_id", "sex", "Marital_status", "age", "label", "flipped"):
        assert mine[column][:] == expected[column].to_pylist()
    assert loaded["train"].features["label"].names == ["low level", "high level"]
    with pytest.raises(RecipeError, match="config_name='value-device'"):
        feda4fair_dutch.Feda4FairDutch("value-device")


def test_importing_the_dataset_is_cheap() -> None:
    code = (
        "import sys, feda4fair_dutch; feda4fair_dutch.DATASET.recipes; "
        "print(sorted({'datasets', 'sklearn', 'scipy', 'pandas', 'polars'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    with pytest.raises(AttributeError, match="no attribute 'Feda4FairDuch'"):
        feda4fair_dutch.Feda4FairDuch  # noqa: B018
