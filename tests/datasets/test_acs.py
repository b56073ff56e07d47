"""ACS Income against the authors' released rows, the paper's tables and the genuine zips."""

from __future__ import annotations

import csv
import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from sklearn.model_selection import train_test_split

from feda4fair.build import build
from feda4fair.errors import SourceError
from feda4fair.partition import Subdivide
from feda4fair.recipe import ClientSplit
from feda4fair.split import draw_test_clients
from feda4fair_acs import DATASET, Feda4FairACS
from feda4fair_acs.configs import (
    ATTRIBUTE_DEVICE,
    ATTRIBUTE_DEVICE_TEST,
    PRINTED_ATTRIBUTE,
    PRINTED_VALUE,
    RELEASED_ATTRIBUTE,
    VALUE_DEVICE,
    VALUE_DEVICE_TEST,
)
from feda4fair_acs.schema import STATES
from feda4fair_acs.source import open_recipes, open_source

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "build.py"
FEATURES = ("AGEP", "COW", "SCHL", "MAR", "OCCP", "POBP", "RELP", "WKHP", "SEX", "RAC1P")
COLUMNS = (*FEATURES, "label")
GENUINE = ("DE", "ND", "SD", "VT", "WY")
CONFIGS = [recipe.name for recipe in DATASET.recipes]


def expected(shared_data: Path, name: str) -> pd.DataFrame:
    """Return a table of what the authors released; DataFrame of strings where it says so."""
    return pd.read_csv(shared_data / "expected" / name, keep_default_na=False)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep the caches of this module to itself."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("home")
        patch.setenv("FEDA4FAIR_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="module")
def pums(shared_tools: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a source of the 49 states whose rows are at hand: all but CA and FL."""
    out = tmp_path_factory.mktemp("pums")
    tool = [sys.executable, str(shared_tools / "make_pums.py"), "--out", str(out)]
    subprocess.run(tool, check=True, capture_output=True)
    return out


@pytest.fixture(scope="module")
def built(pums: Path, home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the build of all four configs from the 49 states."""
    out = tmp_path_factory.mktemp("built") / "acs"
    source = open_recipes(pums, recipes=DATASET.recipes, allow_missing=True)
    build(DATASET, DATASET.recipes, source, out)
    return out


@pytest.fixture(scope="module")
def manifest(built: Path) -> dict[str, Any]:
    return json.loads((built / "manifest.json").read_text("utf-8"))


def rows_of(folder: Path, config: str, split: str = "*") -> dict[str, pa.Table]:
    """Return the rows of every client, by row_id, of one split or of all."""
    files = sorted(folder.glob(f"data/{config}/{split}-*.parquet"))
    tables = [pq.read_table(file).replace_schema_metadata(None) for file in files]
    table = pa.concat_tables(tables).sort_by([("client_id", "ascending"), ("row_id", "ascending")])
    owners = table["client_id"].to_numpy()
    cuts = np.flatnonzero(owners[1:] != owners[:-1]) + 1
    bounds = [0, *cuts.tolist(), len(owners)]
    return {owners[start]: table.slice(start, stop - start) for start, stop in pairwise(bounds)}


@pytest.fixture(scope="module")
def silo(built: Path) -> dict[str, pa.Table]:
    return rows_of(built, "attribute-silo")


def lines_of(table: pa.Table) -> np.ndarray:
    """Return a line of integers for every row."""
    columns = [table[name].cast(pa.int64()).cast(pa.string()) for name in COLUMNS]
    joined = pc.binary_join_element_wise(*columns, ",")
    return pc.binary_join_element_wise(joined, pa.scalar("\n"), "").to_numpy()


def fingerprint(lines: np.ndarray) -> str:
    return hashlib.sha256("".join(lines).encode("ascii")).hexdigest()


def released_order(table: pa.Table) -> np.ndarray:
    """Return the positions of a client's kept rows in the order of the released file."""
    return np.random.default_rng(42).permutation(table.num_rows)


# The released rows


def test_all_silos_hold_the_released_rows(shared_data: Path, silo: dict[str, pa.Table]) -> None:
    released = expected(shared_data, "acs_fingerprints_attribute_silo.csv")
    assert len(released) == 47
    for row in released.itertuples():
        table = silo[row.client_id]
        lines = lines_of(table)
        assert table.num_rows == row.rows, row.client_id
        assert pc.sum(table["label"]).as_py() == row.positives
        assert fingerprint(np.sort(lines)) == row.sha256_sorted, row.client_id
        assert fingerprint(lines[released_order(table)]) == row.sha256_ordered, row.client_id


def test_all_test_splits_hold_the_released_rows(shared_data: Path, built: Path) -> None:
    test = rows_of(built, "attribute-silo", "test")
    for row in expected(shared_data, "acs_fingerprints_attribute_silo.csv").itertuples():
        table = test[row.client_id]
        assert table.num_rows == row.rows_test
        assert pc.sum(table["label"]).as_py() == row.positives_test
        assert fingerprint(np.sort(lines_of(table))) == row.sha256_sorted_test, row.client_id


def test_counts_are_those_of_the_published_summary(
    shared_data: Path, silo: dict[str, pa.Table]
) -> None:
    summary = expected(shared_data, "acs_published_summary_attribute_silo.csv")
    seen = 0
    for row in summary.to_dict("records"):
        if row["client_id"] in ("CA", "FL"):
            continue
        table = silo[row["client_id"]]
        assert table.num_rows == int(row["rows"])
        for attribute in ("SEX", "RAC1P"):
            for value in (1, 2):
                group = table.filter(pc.equal(table[attribute], value))
                assert group.num_rows == int(row[f"n_{attribute}_{value}"])
                if row["source"] == "csv":
                    positives = pc.sum(group["label"]).as_py()
                    assert positives == int(row[f"pos_{attribute}_{value}"])
        seen += 1
    assert seen == 49


@pytest.mark.parametrize("config", ["attribute-silo", "value-silo"])
def test_splits_are_those_of_sklearn_on_the_released_order(built: Path, config: str) -> None:
    """Stratified by SEX and RAC1P in the attribute config, plain in the value config."""
    splits = {name: rows_of(built, config, name) for name in ("train", "validation", "test")}
    whole = rows_of(built, config)
    for state in ("AK", "OR", "WY"):
        table = whole[state].take(pa.array(released_order(whole[state])))
        ids = table["row_id"].to_numpy()
        groups = None
        if config == "attribute-silo":
            groups = table["SEX"].to_numpy() * 10 + table["RAC1P"].to_numpy()
        positions = np.arange(len(ids))
        rest, test = train_test_split(positions, test_size=0.2, random_state=42, stratify=groups)
        train, validation = train_test_split(
            rest,
            test_size=0.125,
            random_state=42,
            stratify=None if groups is None else groups[rest],
        )
        drawn = {"train": train, "validation": validation, "test": test}
        for name, members in drawn.items():
            assert splits[name][state]["row_id"].to_pylist() == sorted(ids[members].tolist())


@pytest.mark.parametrize(
    ("config", "parent", "parts"),
    [("attribute-device", "attribute-silo", 6), ("value-device", "value-silo", 3)],
)
def test_devices_are_slices_of_the_released_silos(
    built: Path, config: str, parent: str, parts: int
) -> None:
    silos, devices = rows_of(built, parent), rows_of(built, config)
    assert len(devices) == sum(not client.startswith(("CA", "FL")) for client in kept(config))
    for client, rows in devices.items():
        state, _, piece = client.partition("_")
        table = silos[state].take(pa.array(released_order(silos[state])))
        if parts == 6:  # equal slices, the last n % 6 rows lost
            size = table.num_rows // 6
            cut = table.slice(int(piece) * size, size)
        else:
            members = np.array_split(np.arange(table.num_rows), 3)[int(piece)]
            cut = table.slice(int(members[0]), len(members))
        cut = cut.sort_by("row_id")
        for column in (*COLUMNS, "row_id", "flipped"):
            assert rows[column].equals(cut[column])


def kept(config: str) -> tuple[str, ...]:
    clients = DATASET.recipe(config).keep
    assert clients is not None
    return clients


# Source rows


def test_row_counts_add_up_to_the_published_total(
    shared_data: Path, manifest: dict[str, Any]
) -> None:
    frame = expected(shared_data, "acs_frame_rows.csv").set_index("state")["rows"]
    assert sorted(frame.index) == sorted(STATES)
    assert frame.sum() == 1_664_500
    assert frame.sum() - frame["PR"] == 1_655_429
    with (DATASET.folder / "checksums.tsv").open(encoding="utf-8") as stream:
        listed = {
            re.search(r"csv_p(\w\w)\.zip", row["url"])[1].upper(): int(row["rows"])  # type: ignore[index]
            for row in csv.DictReader(stream, delimiter="\t")
        }
    assert listed == frame.to_dict()
    read = {source["part"]: source["rows_kept"] for source in manifest["sources"]}
    assert read == frame.drop(["CA", "FL"]).to_dict()


@pytest.mark.parametrize("config", CONFIGS)
def test_no_row_is_lost_or_made(built: Path, manifest: dict[str, Any], config: str) -> None:
    counts = manifest["configs"][config]
    kept_rows = sum(table.num_rows for table in rows_of(built, config).values())
    dropped = pq.read_metadata(built / "dropped" / f"{config}.parquet").num_rows
    assert (counts["rows"], counts["dropped"]) == (kept_rows, dropped)
    assert counts["source_rows"] == kept_rows + dropped + counts["left_out"]
    if config.endswith("silo"):
        assert counts["left_out"] == 0
        assert counts["source_rows"] == 1_664_500 - 195_665 - 98_925


@pytest.mark.parametrize("config", CONFIGS)
def test_nothing_but_the_task_is_written(built: Path, config: str) -> None:
    """No index column, which leaked into the authors' features, and no serial number."""
    for file in built.glob(f"data/{config}/*.parquet"):
        names = pq.read_schema(file).names
        assert names == ["client_id", "row_id", *COLUMNS, "flipped"]


@pytest.mark.parametrize("config", ["attribute-silo", "value-silo"])
def test_what_was_dropped_restores_the_clean_rows(built: Path, pums: Path, config: str) -> None:
    """Kept rows with their clean labels and dropped rows are the source, row for row."""
    whole = rows_of(built, config)
    dropped = pq.read_table(built / "dropped" / f"{config}.parquet").replace_schema_metadata(None)
    source = open_source(pums, states=["AR", "OR"])
    features = [name for name in COLUMNS if name not in ("MAR", "RAC1P")]
    for state in ("AR", "OR"):
        rows = whole[state]
        flips = rows["flipped"].cast(pa.int64())
        clean = rows.set_column(
            rows.column_names.index("label"), "label", pc.bit_wise_xor(rows["label"], flips)
        )
        gone = dropped.filter(pc.equal(dropped["client_id"], state))
        assert gone.num_rows > 0
        assert set(gone["label"].to_pylist()) == {1}
        both = pa.concat_tables([part.select(["row_id", *features]) for part in (clean, gone)])
        raw = source.read(state).select(["row_id", *features])
        assert both.sort_by("row_id").equals(raw.cast(both.schema))


def test_a_source_that_lacks_states_names_them(pums: Path) -> None:
    with pytest.raises(SourceError, match=r"no person file of CA, FL;.*--allow-missing"):
        open_recipes(pums, recipes=DATASET.recipes)


def test_missing_states_do_not_change_folds_or_splits(built: Path) -> None:
    for config in ("attribute-device", "value-device"):
        index = pq.read_table(built / "clients" / f"{config}.parquet").to_pandas()
        recipe = DATASET.recipe(config)
        assert isinstance(recipe.split, ClientSplit)
        sides = index.set_index("client_id")["split"]
        assert set(sides[sides == "test"].index) == set(recipe.split.test) & set(sides.index)
        assert len(index[["parent", "fold", "split"]].drop_duplicates()) == len(
            set(index["parent"])
        )
        assert sorted(index["fold"].unique()) == [0, 1, 2, 3, 4]


# The genuine zips


def test_genuine_zips_build_to_the_same_rows(
    shared_data: Path, built: Path, tmp_path: Path, home: Path
) -> None:
    shutil.copytree(shared_data / "raw_pums" / "2018_1-Year", tmp_path / "zips/2018/1-Year")
    words = ["--source", str(tmp_path / "zips"), "--allow-missing", "--out", str(tmp_path / "out")]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "acs", *words], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    for config in CONFIGS:
        whole, own = rows_of(built, config), rows_of(tmp_path / "out", config)
        assert set(own) == {client for client in whole if client.partition("_")[0] in GENUINE}
        for client, rows in own.items():
            assert rows.equals(whole[client]), client


def test_a_source_without_test_clients_has_no_test_split(
    shared_data: Path, tmp_path: Path, home: Path
) -> None:
    folder = tmp_path / "2018" / "1-Year"
    folder.mkdir(parents=True)
    shutil.copy(shared_data / "raw_pums" / "2018_1-Year" / "csv_pwy.zip", folder)
    datasets.disable_progress_bars()
    builder = Feda4FairACS(
        cache_dir=str(tmp_path / "cache"),
        config_name="value-device",
        data_dir=str(tmp_path),
        allow_missing=True,
    )
    builder.download_and_prepare()
    assert {name: set(rows["client_id"]) for name, rows in builder.as_dataset().items()} == {
        "train": {"WY_0"}
    }


# The rates


def test_rates_are_those_of_the_released_files(shared_data: Path) -> None:
    released = expected(shared_data, "acs_modifications.csv")
    assert len(released) == 86
    for config in CONFIGS:
        recipe = DATASET.recipe(config)
        ours = {}
        for group in recipe.groups:
            (rule,), (client,) = group.rules, group.clients  # type: ignore[misc]
            ((attribute, value),) = rule.where
            code = recipe.schema.code(attribute, value)
            ours[client] = (attribute, code, rule.drop, rule.flip, rule.label)
        theirs = {
            row.state: (row.attribute, row.value, row.p_drop_effective, row.p_flip_effective, 1)
            for row in released[released["config"] == config].itertuples()
        }
        assert ours == theirs


def test_five_states_differ_from_the_printed_table(shared_data: Path) -> None:
    released = expected(shared_data, "acs_modifications.csv")
    differing = set()
    for row in released.itertuples():
        printed = PRINTED_ATTRIBUTE if row.config.startswith("attribute") else PRINTED_VALUE
        assert printed[row.state] == (row.p_drop, row.attribute, row.value)
        if (row.p_drop_effective, row.p_flip_effective) != (row.p_drop, 0):
            total = row.p_drop_effective + row.p_flip_effective
            assert total == pytest.approx(row.p_drop)
            assert RELEASED_ATTRIBUTE[row.state] == (row.p_drop_effective, row.p_flip_effective)
            differing.add(row.state)
    assert differing == set(RELEASED_ATTRIBUTE) == {"AL", "GA", "ME", "MT", "OR"}


def table_of(shared_data: Path, number: int) -> list[list[str]]:
    """Return the rows of a table of the paper."""
    path = shared_data.parent / "paper" / "feda4fair.txt"
    if not path.is_file():
        pytest.skip(f"the paper's text is not at {path}")
    block = path.read_text("utf-8").partition(f"\nTable {number}. ")[2].split("\n\n")[1]
    return [line.split("\t") for line in block.splitlines()[1:]]


@pytest.mark.parametrize(("number", "printed"), [(1, PRINTED_ATTRIBUTE), (2, PRINTED_VALUE)])
def test_printed_rates_are_those_of_the_paper(
    shared_data: Path, number: int, printed: dict[str, tuple[float, str, int]]
) -> None:
    rows = table_of(shared_data, number)
    assert printed == {
        state: (float(rate), attribute, int(value)) for state, rate, attribute, value in rows
    }


@pytest.mark.parametrize(
    ("number", "config", "clients"),
    [(5, "attribute-device", ATTRIBUTE_DEVICE), (6, "value-device", VALUE_DEVICE)],
)
def test_kept_devices_are_those_of_the_paper(
    shared_data: Path, number: int, config: str, clients: dict[str, str]
) -> None:
    printed = {row[0]: row[2].split(", ") for row in table_of(shared_data, number)[1:]}
    schema = DATASET.recipe(config).schema
    ours = {
        value if number == 5 else str(schema.code("RAC1P", value)): listed.split()
        for value, listed in clients.items()
    }
    assert ours.keys() == printed.keys()
    assert all(sorted(ours[value]) == sorted(printed[value]) for value in ours)
    assert len(kept(config)) == len(set(kept(config))) == {5: 111, 6: 100}[number]


def test_sizes_of_the_suite() -> None:
    assert len(STATES) == 51
    assert "DC" not in STATES
    assert "PR" in STATES
    ruled = [len(DATASET.recipe(config).groups) for config in CONFIGS]
    assert ruled == [31, 12, 31, 12]
    cuts = [DATASET.recipe(config).subdivide for config in CONFIGS]
    assert cuts == [None, None, Subdivide(parts=6, cut="floor"), Subdivide(parts=3)]


def test_puerto_rico_drops_nothing_of_one_row(manifest: dict[str, Any]) -> None:
    ledger = manifest["configs"]["value-silo"]["ledger"]
    (entry,) = [entry for entry in ledger if entry["client"] == "PR"]
    assert (entry["drop"], entry["eligible"], entry["dropped"]) == (0.6, 1, 0)
    assert entry["note"] == "the rates round to no row among 1"


@pytest.mark.parametrize("config", CONFIGS)
def test_the_ledger_counts_exactly(manifest: dict[str, Any], config: str) -> None:
    recipe, ledger = DATASET.recipe(config), manifest["configs"][config]["ledger"]
    states = {recipe.parent(client) for client in recipe.keep or STATES} - {"CA", "FL"}
    ruled = {group.name for group in recipe.groups} & states
    assert {entry["client"] for entry in ledger} == ruled
    for entry in ledger:
        assert entry["dropped"] == int(entry["eligible"] * entry["drop"])
        assert entry["flipped"] == int(entry["survivors"] * entry["flip"])
        assert entry["survivors"] == entry["eligible"] - entry["dropped"]


# The frozen test clients


@pytest.mark.parametrize(
    ("config", "clients", "frozen", "by_stratum"),
    [
        ("attribute-device", ATTRIBUTE_DEVICE, ATTRIBUTE_DEVICE_TEST, [15, 15]),
        ("value-device", VALUE_DEVICE, VALUE_DEVICE_TEST, [0, 5, 2, 9, 14]),
    ],
)
def test_test_clients_are_frozen_as_they_were_drawn(
    config: str, clients: dict[str, str], frozen: tuple[str, ...], by_stratum: list[int]
) -> None:
    recipe = DATASET.recipe(config)
    strata = {
        client: (recipe.parent(client), value)
        for value, listed in clients.items()
        for client in listed.split()
    }
    assert draw_test_clients(strata, 30, seed=42, scope=config) == frozen
    assert recipe.split == ClientSplit(test=frozen, folds=5)
    counts = Counter(strata[client][1] for client in frozen)
    assert [counts[value] for value in clients] == by_stratum
    sides = {recipe.parent(client) for client in frozen}
    assert not sides & {recipe.parent(client) for client in set(kept(config)) - set(frozen)}
