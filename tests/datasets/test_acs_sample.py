from __future__ import annotations

import csv
import hashlib
import os
import random
import subprocess
import sys
import zipfile
from pathlib import Path

import folktables
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.linear_model import LogisticRegression

import feda4fair_acs.sample
import feda4fair_acs.schema as acs
from feda4fair.errors import SourceError
from feda4fair_acs.configs import PRINTED_ATTRIBUTE, PRINTED_VALUE, RELEASED_ATTRIBUTE
from feda4fair_acs.sample import NOTICE, population, profiles, write_pums

FOLDER = Path(feda4fair_acs.sample.__file__).parent
CODED = ["COW", "SCHL", "MAR", "OCCP", "POBP", "RELP", "SEX", "RAC1P"]
GROUP = dict(acs.RACE_FIVE.recode)
POINTS = 0.05


def acs_income(rows: pd.DataFrame) -> pd.DataFrame:
    """Keep the rows of the ACSIncome task, by the definition that folktables states."""
    kept = rows[
        (rows.AGEP > 16) & (rows.PINCP > 100) & (rows.WKHP > 0) & (rows.PWGTP >= 1)
    ].reset_index(drop=True)
    return kept.assign(group=kept.RAC1P.map(GROUP), positive=kept.PINCP > 50_000)


def content(table: pa.Table) -> str:
    digest = hashlib.sha256()
    for name in table.column_names:
        digest.update(f"{name}:{table.schema.field(name).type}:".encode())
        digest.update(repr(table[name].to_pylist()).encode())
    return digest.hexdigest()


@pytest.fixture(scope="module")
def raw() -> dict[str, pd.DataFrame]:
    return {state: population(state).to_pandas() for state in profiles()}


@pytest.fixture(scope="module")
def sample(raw: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    return {state: acs_income(rows) for state, rows in raw.items()}


@pytest.fixture(scope="module")
def names() -> dict[str, dict[int, str]]:
    result: dict[str, dict[int, str]] = {}
    with (FOLDER / "codes.tsv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            column = result.setdefault(row["column"], {})
            assert int(row["code"]) not in column
            column[int(row["code"])] = row["name"]
    return result


def test_sample_has_the_51_clients_and_about_60000_rows(sample: dict[str, pd.DataFrame]) -> None:
    assert tuple(sorted(sample)) == acs.STATES
    assert len(sample) == 51
    assert "DC" not in sample
    assert 58_000 <= sum(map(len, sample.values())) <= 62_000
    assert {state: len(rows) for state, rows in sample.items()} == {
        state: profile.rows for state, profile in profiles().items()
    }
    assert len(sample["CA"]) == max(map(len, sample.values()))
    assert len(sample["WY"]) == min(map(len, sample.values()))


def test_every_code_is_in_the_census_dictionary(
    raw: dict[str, pd.DataFrame], names: dict[str, dict[int, str]]
) -> None:
    assert list(names) == CODED
    for rows in raw.values():
        for column in CODED:
            assert set(rows[column].dropna().astype(int)) <= set(names[column]), column
        assert rows.AGEP.between(0, 99).all()
        assert rows.WKHP.dropna().between(1, 99).all()
        assert rows.PWGTP.between(1, 9999).all()
        assert rows.PINCP.dropna().between(-19_998, 4_209_995).all()


def test_the_population_uses_many_codes(raw: dict[str, pd.DataFrame]) -> None:
    everyone = pd.concat(raw.values())
    assert sorted(everyone.RAC1P.unique()) == list(range(1, 10))
    assert sorted(everyone.MAR.unique()) == list(range(1, 6))
    assert 40 <= everyone.OCCP.nunique() <= 60
    births = [rows.POBP.nunique() for rows in raw.values()]
    assert min(births) >= 10
    assert 18 <= np.median(births) <= 30


def test_code_names_are_unique_and_agree_with_the_schema(names: dict[str, dict[int, str]]) -> None:
    for column, by_code in names.items():
        assert len(set(by_code.values())) == len(by_code), column
    assert {column: len(by_code) for column, by_code in names.items()} == {
        "COW": 9, "SCHL": 24, "MAR": 5, "OCCP": 530, "POBP": 224, "RELP": 18, "SEX": 2, "RAC1P": 9,
    }  # fmt: skip
    for column in ("COW", "SCHL", "RELP", "SEX"):
        assert names[column] == dict(getattr(acs, column).names)


def test_code_names_cover_the_real_rows(
    shared_data: Path, names: dict[str, dict[int, str]]
) -> None:
    real = pd.read_parquet(shared_data / "acs_income_2018.parquet", columns=CODED)
    for column in ("COW", "SCHL", "OCCP", "POBP", "RELP", "SEX"):
        assert set(real[column].unique()) <= set(names[column]), column


@pytest.mark.parametrize("state", acs.STATES)
def test_rates_and_shares_are_within_five_points(
    sample: dict[str, pd.DataFrame], state: str
) -> None:
    rows = sample[state]
    public = profiles()[state]
    assert rows.positive.mean() == pytest.approx(public.rate, abs=0.02)
    assert (rows.SEX == 2).mean() == pytest.approx(public.female, abs=0.02)
    assert (rows.MAR == 1).mean() == pytest.approx(public.married, abs=0.02)
    for sex, rate in enumerate(public.rate_by_sex, start=1):
        assert rows.positive[sex == rows.SEX].mean() == pytest.approx(rate, abs=0.02)
    for group, share in enumerate(public.race, start=1):
        members = rows[rows.group == group]
        assert len(members) >= 1
        assert len(members) / len(rows) == pytest.approx(share, abs=POINTS)
        if len(members) >= 30:
            rate = public.rate_by_race[group - 1]
            assert members.positive.mean() == pytest.approx(rate, abs=POINTS)


def test_every_value_of_a_rule_has_rows_and_positives_to_act_on(
    sample: dict[str, pd.DataFrame],
) -> None:
    rules = [
        (state, RELEASED_ATTRIBUTE.get(state, (rate, 0.0)), attribute, code, acs.RACE_BINARY)
        for state, (rate, attribute, code) in PRINTED_ATTRIBUTE.items()
    ] + [
        (state, (rate, 0.0), attribute, code, acs.RACE_FIVE)
        for state, (rate, attribute, code) in PRINTED_VALUE.items()
    ]
    assert len(rules) == 43
    for state, (drop, flip), attribute, code, race in rules:
        rows = sample[state]
        values = rows.SEX if attribute == "SEX" else rows.RAC1P.map(dict(race.recode))
        members = rows[values == code]
        positives = int(members.positive.sum())
        assert len(members) >= 30, (state, attribute, code)
        assert positives >= 6, (state, attribute, code)
        dropped = int(positives * drop)
        assert dropped + int((positives - dropped) * flip) >= 1, (state, attribute, code)


def test_profiles_are_the_public_figures(shared_data: Path) -> None:
    frame = pd.read_csv(shared_data / "expected" / "acs_frame_rows.csv", index_col="state")
    real = pd.read_parquet(
        shared_data / "acs_income_2018.parquet",
        columns=["state", "MAR", "SEX", "RAC1P", "PINCP"],
    )
    assert {state: profile.frame_rows for state, profile in profiles().items()} == frame[
        "rows"
    ].to_dict()
    for state, rows in real.groupby("state"):
        public = profiles()[str(state)]
        assert public.rate == pytest.approx(rows.PINCP.mean(), abs=0.001)
        assert public.female == pytest.approx((rows.SEX == 2).mean(), abs=0.001)
        assert public.married == pytest.approx((rows.MAR == 1).mean(), abs=0.001)
        for group, share in enumerate(public.race, start=1):
            assert share == pytest.approx((group == rows.RAC1P).mean(), abs=0.001)
        for sex, rate in enumerate(public.rate_by_sex, start=1):
            assert rate == pytest.approx(rows.PINCP[sex == rows.SEX].mean(), abs=0.001)
    assert set(profiles()) - set(real.state.unique()) == {"CA"}


def test_california_agrees_with_its_published_counts(shared_data: Path) -> None:
    published = pd.read_csv(
        shared_data / "expected" / "acs_published_summary_attribute_silo.csv", index_col="state"
    ).loc["CA"]
    public = profiles()["CA"]
    dropped = public.frame_rows - published["rows"]
    assert dropped == 2668
    others = (published["n_RAC1P_2"] + dropped) / public.frame_rows
    assert sum(public.race[1:]) == pytest.approx(others, abs=0.002)
    positives = dropped / 0.1 / public.frame_rows
    given = sum(share * rate for share, rate in zip(public.race, public.rate_by_race, strict=True))
    assert given - public.race[0] * public.rate_by_race[0] == pytest.approx(positives, abs=0.002)
    assert given == pytest.approx(public.rate, abs=0.002)


def test_incomes_follow_the_features(sample: dict[str, pd.DataFrame]) -> None:
    everyone = pd.concat(sample.values())
    features = everyone[["AGEP", "COW", "SCHL", "MAR", "OCCP", "POBP", "RELP", "WKHP", "SEX"]]
    scaled = (features - features.mean()) / features.std()
    model = LogisticRegression().fit(scaled, everyone.positive)
    assert 0.73 <= model.score(scaled, everyone.positive) <= 0.80
    for better, margin in (
        (everyone.SCHL >= 21, 0.15),
        (everyone.WKHP >= 40, 0.15),
        (everyone.AGEP >= 30, 0.15),
        (everyone.OCCP < 3600, 0.15),
        (everyone.MAR == 1, 0.1),
        (everyone.RELP <= 1, 0.1),
    ):
        rates = everyone.positive.groupby(better).mean()
        assert rates[True] > rates[False] + margin, better.name


def test_features_go_together(sample: dict[str, pd.DataFrame]) -> None:
    everyone = pd.concat(sample.values())
    assert set(everyone.MAR[everyone.RELP == 1]) == {1}
    assert (everyone.MAR[everyone.AGEP < 20] == 1).mean() < 0.1
    assert (everyone.SCHL[everyone.AGEP < 20] < 21).mean() > 0.99
    teachers, drivers = everyone[everyone.OCCP == 2310], everyone[everyone.OCCP == 9130]
    assert (teachers.SEX == 2).mean() > 0.6 > 0.3 > (drivers.SEX == 2).mean()
    assert (teachers.SCHL >= 21).mean() > 0.6
    assert everyone.POBP[everyone.RAC1P == 6].ge(200).mean() > 0.6


def test_some_rows_fall_to_each_condition_of_the_filter(raw: dict[str, pd.DataFrame]) -> None:
    rows = pd.concat(raw.values())
    removed = len(rows) - len(acs_income(rows))
    assert 0.03 <= removed / len(rows) <= 0.08
    children = rows[rows.AGEP < 15]
    assert len(children) > 500
    assert children[["COW", "OCCP", "WKHP", "PINCP"]].isna().all(axis=None)
    adults = rows[rows.AGEP > 16]
    assert ((rows.AGEP == 16) & (rows.PINCP > 100) & (rows.WKHP > 0)).sum() > 100
    assert (adults.WKHP.isna() & (adults.PINCP > 100)).sum() > 500
    low = adults[(adults.WKHP > 0) & (adults.PINCP <= 100)]
    assert {100, 0} <= set(low.PINCP)
    assert (low.PINCP < 0).any()
    assert (adults.PINCP == 50_000).sum() > 500
    assert not adults.PINCP.between(50_001, 50_999).any()


def test_every_row_names_its_synthetic_origin(raw: dict[str, pd.DataFrame]) -> None:
    for state, rows in raw.items():
        prefix = f"2018SYN{acs.FIPS[state]:02d}"
        assert rows.SERIALNO.str.fullmatch(prefix + r"\d{5}").all()
    serials = pd.concat([rows.SERIALNO for rows in raw.values()])
    assert serials.is_unique
    assert "synthetic" in NOTICE.lower()


def test_columns_are_small_integers_of_the_raw_file() -> None:
    schema = population("PR").schema
    assert schema.names == [
        "SERIALNO", "PWGTP", "AGEP", "COW", "SCHL", "MAR", "OCCP", "POBP", "RELP", "WKHP", "SEX",
        "RAC1P", "PINCP",
    ]  # fmt: skip
    assert schema.field("SERIALNO").type == pa.string()
    assert schema.field("PINCP").type == pa.int32()
    assert {field.type for field in list(schema)[1:-1]} == {pa.int16()}


def test_a_state_is_the_same_alone_and_among_others() -> None:
    alone = population("VT")
    population("WY")
    assert population("VT").equals(alone)


def test_another_seed_draws_other_people_with_the_same_figures() -> None:
    first, second = population("DE"), population("DE", seed=1)
    assert not first.drop(["SERIALNO"]).equals(second.drop(["SERIALNO"]))
    left, right = acs_income(first.to_pandas()), acs_income(second.to_pandas())
    assert len(left) == len(right)
    assert left.group.value_counts().equals(right.group.value_counts())


def test_the_population_is_the_one_that_was_released() -> None:
    hashes = {state: content(population(state))[:16] for state in ("CA", "PR", "WY")}
    assert hashes == {
        "CA": "68b33f37ac3160ca",
        "PR": "bb233eb3009026ba",
        "WY": "dd8451621924d9af",
    }


@pytest.mark.parametrize("hash_seed", ["0", "12345"])
def test_any_process_draws_the_same_bytes(hash_seed: str) -> None:
    program = (
        "import hashlib, pyarrow as pa\n"
        "from feda4fair_acs.sample import population\n"
        "sink = pa.BufferOutputStream()\n"
        "table = population('SD').combine_chunks()\n"
        "with pa.ipc.new_stream(sink, table.schema) as writer:\n"
        "    writer.write_table(table)\n"
        "print(hashlib.sha256(sink.getvalue()).hexdigest())\n"
    )
    environment = {
        **os.environ,
        "PYTHONHASHSEED": hash_seed,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    printed = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    sink = pa.BufferOutputStream()
    table = population("SD").combine_chunks()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    assert printed == hashlib.sha256(sink.getvalue()).hexdigest()


def test_global_random_state_is_neither_read_nor_moved() -> None:
    before = random.getstate(), np.random.get_state()[1].tobytes()  # noqa: NPY002
    first = population("RI")
    assert random.getstate() == before[0]
    assert np.random.get_state()[1].tobytes() == before[1]  # noqa: NPY002
    random.seed(99)
    np.random.seed(99)  # noqa: NPY002
    assert population("RI").equals(first)


@pytest.mark.parametrize("state", ["DC", "wy", "", "Texas"])
def test_an_unknown_state_is_one_sentence(state: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"^The built-in sample has no state .*\.$") as caught:
        population(state)
    assert repr(state) in str(caught.value)
    with pytest.raises(SourceError):
        write_pums(tmp_path / "pums", ["WY", state])
    assert not (tmp_path / "pums").exists()


def test_folktables_reads_what_write_pums_writes(
    tmp_path: Path, raw: dict[str, pd.DataFrame]
) -> None:
    states = ["AL", "WY", "PR"]
    files = write_pums(tmp_path, states)
    assert [file.relative_to(tmp_path).as_posix() for file in files] == [
        "2018/1-Year/psam_p01.csv",
        "2018/1-Year/psam_p56.csv",
        "2018/1-Year/psam_p72.csv",
    ]
    random_state = random.getstate()
    source = folktables.ACSDataSource("2018", "1-Year", "person", root_dir=str(tmp_path))
    read = source.get_data(states=states)
    random.setstate(random_state)
    features, target, _ = folktables.ACSIncome.df_to_pandas(read)
    expected = acs_income(pd.concat([raw[state] for state in states]))
    assert (features.to_numpy() == expected[list(features.columns)].to_numpy()).all()
    assert target["PINCP"].tolist() == expected.positive.tolist()


def test_a_zip_holds_the_same_csv_in_the_dress_of_the_census(tmp_path: Path) -> None:
    (plain,) = write_pums(tmp_path / "a", ["DE"])
    (packed,) = write_pums(tmp_path / "b", ["DE"], kind="zip")
    assert packed.name == "csv_pde.zip"
    with zipfile.ZipFile(packed) as archive:
        assert archive.namelist() == ["psam_p10.csv"]
        assert archive.read("psam_p10.csv") == plain.read_bytes()
    lines = plain.read_text(encoding="ascii").splitlines()
    assert lines[0] == (
        "RT,SERIALNO,SPORDER,ST,ADJINC,PWGTP,AGEP,COW,MAR,RELP,SCHL,SEX,WKHP,OCCP,PINCP,POBP,RAC1P"
    )
    assert len(lines) == 1 + population("DE").num_rows
    rows = list(csv.DictReader(lines))
    assert all(row["RT"] == "P" and row["ST"] == "10" for row in rows)
    assert all(len(row["POBP"]) == 3 and len(row["RELP"]) == 2 for row in rows)
    assert all(len(row["SCHL"]) in {0, 2} and len(row["OCCP"]) in {0, 4} for row in rows)
    assert {row["WKHP"] for row in rows if int(row["AGEP"]) < 15} == {""}
    again = write_pums(tmp_path / "c", ["DE"], kind="zip")
    assert again[0].read_bytes() == packed.read_bytes()
