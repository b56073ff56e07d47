"""The dashboard's page without a browser: every branch, against the library's own figures."""

from __future__ import annotations

import importlib.util
import io
import json
import re
import socket
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

pytest.importorskip("streamlit", reason="the extra dashboard is not installed")
pytest.importorskip("altair", reason="the extra dashboard is not installed")

from streamlit.testing.v1 import AppTest

from feda4fair import (
    BiasRule,
    ClientGroup,
    ClientSplit,
    Dirichlet,
    Gaussian,
    Iid,
    LogNormal,
    Natural,
    PowerLaw,
    Recipe,
    RowSplit,
    Schema,
    Shards,
    Subdivide,
    federate,
)
from feda4fair.build import federations
from feda4fair.dashboard import charts
from feda4fair.dashboard.exporting import export
from feda4fair.dashboard.inspecting import table
from feda4fair.dashboard.loading import upload_name
from feda4fair.dashboard.opening import Opening
from feda4fair.dashboard.rows import Rows, open_builtin, open_own
from feda4fair.dashboard.state import Session, key_of, plain
from feda4fair.errors import SourceError
from feda4fair.evaluate import local_models
from feda4fair.export import to_csv
from feda4fair.federation import Federation, concat
from feda4fair.measurement import contenders, count_labels, measure
from feda4fair.report import measure_cube
from feda4fair.scenarios import attribute_bias, homogeneous, opposed, value_bias
from feda4fair.score import score_rows
from feda4fair_acs import DATASET as ACS
from feda4fair_celeba import DATASET as CELEBA
from feda4fair_dutch import DATASET as DUTCH

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"


def opened(name: str) -> ModuleType:
    """Return a script as a module."""
    spec = importlib.util.spec_from_file_location(f"{name}_script", SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(SCRIPTS))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(SCRIPTS))
    return module


def no_tick(_what: str, _share: float) -> None:
    pass


def people(rows: int = 1200, seed: int = 3) -> pa.Table:
    """Make up rows whose names and values Markdown could take for its own."""
    random = np.random.RandomState(seed)
    sex = np.array(["female", "male"])[random.randint(0, 2, rows)]
    race = np.array(["a*", "b_", "[c](x)"])[random.randint(0, 3, rows)]
    good = random.rand(rows) < 0.35 + 0.2 * (sex == "male") + 0.1 * (race == "a*")
    return pa.table(
        {
            "age": random.randint(18, 80, rows),
            "hours": random.randint(5, 60, rows).astype(float),
            "region": np.array(list("NESW"))[random.randint(0, 4, rows)],
            "sex": sex,
            "race": race,
            "income": np.where(good, ">50K", "<=50K"),
        }
    )


@pytest.fixture(scope="module")
def csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "people.csv"
    pacsv.write_csv(people(), path)
    return path


def people_recipe(path: Path, **parts: Any) -> Recipe:
    """Return the recipe that the page makes of these rows, with other parts."""
    schema = Schema.infer(
        pacsv.read_csv(path), label="income", favorable=[">50K"], sensitive=["sex", "race"]
    )
    base = Recipe(dataset="people", name="default", schema=schema, partition=Iid(10))
    return replace(base, **parts)


class Page:
    """The page as a test uses it: widgets by their label."""

    def __init__(self, *arguments: str) -> None:
        self.app = AppTest.from_file(str(SCRIPTS / "_page.py"), default_timeout=120)
        self.app.run()

    def run(self) -> Page:
        self.app.run()
        assert not self.app.exception, [each.value for each in self.app.exception]
        return self

    def find(self, kind: str, label: str) -> Any:
        found = [each for each in getattr(self.app, kind) if each.label == label]
        assert found, f"no {kind} {label!r} among {[w.label for w in getattr(self.app, kind)]}"
        return found[0]

    def pick(self, label: str, value: Any) -> Page:
        self.find("selectbox", label).set_value(value)
        return self.run()

    def many(self, label: str, *values: Any) -> Page:
        self.find("multiselect", label).set_value(list(values))
        return self.run()

    def number(self, label: str, value: float) -> Page:
        self.find("number_input", label).set_value(value)
        return self.run()

    def choose(self, label: str, value: Any) -> Page:
        self.find("radio", label).set_value(value)
        return self.run()

    def text(self, label: str, value: str) -> Page:
        self.find("text_input", label).set_value(value)
        return self.run()

    def click(self, label: str) -> Page:
        self.find("button", label).click()
        return self.run()

    def go(self, step: str) -> Page:
        (button,) = [b for b in self.app.button if re.fullmatch(rf"\d {step}", b.label)]
        button.click()
        return self.run()

    def load(self, dataset: str, config: str) -> Page:
        self.pick("Dataset", dataset).pick("Start from the config", config)
        return self.click("Load rows")

    def load_people(self, path: Path) -> Page:
        self.choose("Rows from", "Path")
        self.text("Path of a file or folder on the machine that serves this page", str(path))
        self.click("Load rows").pick("Label", "income")
        return self.many("Favorable outcome", ">50K").many("Sensitive attributes", "sex", "race")

    @property
    def metrics(self) -> dict[str, str]:
        return {each.label: each.value for each in self.app.metric}

    @property
    def errors(self) -> list[str]:
        return [re.sub(r"\\(.)", r"\1", each.value) for each in self.app.error]

    @property
    def here(self) -> Session:
        session: Session = self.app.session_state["feda4fair"]
        return session

    @property
    def code(self) -> str:
        (code,) = [each.value for each in self.app.code if "import" in each.value]
        return str(code)


@pytest.fixture
def page() -> Page:
    return Page()


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def unpacked(archive: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(archive) as packed:
        return {name.partition("/")[2]: packed.read(name) for name in packed.namelist()}


def rounded(text: str) -> float:
    return float(text.replace(",", ""))


# Load


def test_the_page_begins_with_rows_and_nothing_else_is_open(page: Page) -> None:
    steps = {b.label: b.disabled for b in page.app.button if b.label[0].isdigit()}
    assert steps == {
        "1 Load": False,
        "2 Split": True,
        "3 Inject": True,
        "4 Inspect": True,
        "5 Export": True,
    }
    assert page.find("button", "Next: Split").disabled


@pytest.mark.parametrize("dataset", [ACS, CELEBA, DUTCH], ids=lambda dataset: str(dataset.name))
def test_a_built_in_sample_is_as_its_source_reads_it(page: Page, dataset: Any) -> None:
    recipe = dataset.recipes[-1]
    page.load(dataset.name, recipe.name)
    source = dataset.open_source(None, recipes=[recipe], sample=True)
    tables = [source.read(part) for part in source.parts]
    assert page.metrics["Rows"] == f"{sum(table.num_rows for table in tables):,}"
    assert page.metrics["Columns"] == str(tables[0].num_columns)
    assert page.here.base == recipe
    assert not page.find("button", "Next: Split").disabled


def test_the_schema_of_own_rows_is_the_persons_choice(page: Page, csv: Path) -> None:
    page.load_people(csv)
    assert page.here.base == people_recipe(csv)
    page.many("Favorable outcome", "<=50K")
    base = page.here.base
    assert base is not None
    assert base.schema.label.names == (">50K", "<=50K")
    page.many("Sensitive attributes")
    assert page.here.base is None
    assert page.find("button", "Next: Split").disabled


def test_what_can_be_guessed_is_proposed(page: Page, tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"sex": ["f", "m"] * 50, "label": [0, 1, 1, 1] * 25}), tmp_path / "p.parquet"
    )
    page.choose("Rows from", "Path")
    page.text(
        "Path of a file or folder on the machine that serves this page",
        str(tmp_path / "p.parquet"),
    )
    page.click("Load rows")
    assert page.here.base is not None
    assert page.here.base.schema.sensitive == ("sex",)
    assert page.here.base.schema.label.favorable == (1,)


def test_other_rows_forget_the_choices_for_the_first(page: Page, csv: Path) -> None:
    page.load_people(csv).go("Split").pick("Partition", "Shards of sorted rows")
    page.go("Inject").pick("Scenario", "Same for all: every client against one group of people")
    assert page.here.groups
    page.go("Load").choose("Rows from", "Built-in dataset").load("dutch", "value-silo")
    assert page.here.layout == {}
    assert page.here.groups is None
    assert page.here.is_benchmark


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("absent.csv", None, "no such file or folder"),
        ("rows.pkl", b"\x80\x04N.", "a file of type .pkl"),
        ("rows.parquet", b"PAR1 no", "cannot be read"),
        ("rows.csv", b"a,b\n1,2\n1\n", "cannot be read"),
        ("rows.csv", b"a,b\n", "no rows"),
        ("rows.csv", b"a,a\n1,2\n", "stands twice"),
        ("rows.json", b"[[[[", "cannot be read"),
        ("rows.csv", b"a,b\n1.5,2.5\n2.5,3.5\n", "none can be a label"),
    ],
)
def test_rows_that_cannot_be_read_are_one_sentence(
    page: Page, tmp_path: Path, name: str, content: bytes | None, told: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    page.choose("Rows from", "Path")
    page.text("Path of a file or folder on the machine that serves this page", str(path))
    page.click("Load rows")
    (error,) = page.errors
    assert told in error
    assert "Traceback" not in error


@pytest.mark.parametrize("name", ["ORG/NAME/MORE", "../secret", "", "tests"])
def test_only_an_id_is_asked_of_the_hub(page: Page, name: str) -> None:
    page.choose("Rows from", "Hugging Face Hub").text("Dataset id", name).click("Load rows")
    (error,) = page.errors
    assert "Hub dataset" in error or "is a path here" in error


def test_an_upload_keeps_nothing_of_its_path(tmp_path: Path) -> None:
    names = ["../../x/people.csv", r"C:\rows\people.CSV", "/etc/people.csv", "..people.csv"]
    for name in names:
        kept = upload_name(name)
        assert (tmp_path / kept).parent == tmp_path
        assert kept == "people.csv"
    for name in ["rows.pkl", "rows.py", "rows", ".csv", "rows.csv.exe"]:
        if name == ".csv":
            continue
        with pytest.raises(SourceError, match="is not one of csv"):
            upload_name(name)


def test_an_uploaded_table_is_read_from_the_sessions_folder(page: Page, csv: Path) -> None:
    page.choose("Rows from", "Upload")
    page.app.file_uploader[0].set_value(("a people.csv", csv.read_bytes(), "text/csv"))
    page.run().click("Load rows")
    assert page.metrics["Rows"] == "1,200"
    folder = page.here.folder
    assert [path.name for path in folder.iterdir()] == ["a_people.csv"]
    assert str(folder) not in page.pick("Label", "income").app.session_state[
        "feda4fair"
    ].rows.script(people_recipe(csv), "out")


def test_without_paths_none_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["_page.py", "--no-paths"])
    page = Page().load("dutch", "value-silo")
    assert "Path" not in page.find("radio", "Rows from").options
    assert "Folder of source files" not in page.find("selectbox", "Rows").options
    page.go("Export")
    assert not [each for each in page.app.button if each.label == "Write the folder"]


# Split


def split_people(page: Page, csv: Path) -> Page:
    return page.load_people(csv).go("Split")


def dealt(page: Page) -> Page:
    return page.pick("Partition", "At random (IID)")


PARTITIONS: dict[str, tuple[Callable[[Page], object], dict[str, Any]]] = {
    "iid": (lambda page: dealt(page).number("Clients", 7), {"partition": Iid(7)}),
    "power law": (
        lambda page: dealt(page).pick("Sizes", "power law").number("Exponent: 0 is equal", 0.5),
        {"partition": Iid(10, sizes=PowerLaw(0.5))},
    ),
    "log-normal": (
        lambda page: dealt(page).pick("Sizes", "log-normal"),
        {"partition": Iid(10, sizes=LogNormal(1.0))},
    ),
    "given": (
        lambda page: (
            dealt(page)
            .number("Clients", 3)
            .pick("Sizes", "given")
            .text("Relative sizes", "3, 2, 1")
        ),
        {"partition": Iid(3, sizes=(3.0, 2.0, 1.0))},
    ),
    "dirichlet": (
        lambda page: (
            page.pick("Partition", "Skewed by a Dirichlet draw")
            .many("By", "label", "race")
            .number("Alpha", 0.9)
            .number("Fewest rows of a client", 5)
        ),
        {"partition": Dirichlet(10, by=("label", "race"), alpha=0.9, smallest=5)},
    ),
    "shards": (
        lambda page: page.pick("Partition", "Shards of sorted rows").number(
            "Shards for each client", 3
        ),
        {"partition": Shards(10, per_client=3)},
    ),
    "natural": (
        lambda page: page.pick("Partition", "One client for each value of a column").pick(
            "Column that names the client", "region"
        ),
        {"partition": Natural("region")},
    ),
    "parts": (
        lambda page: (
            dealt(page)
            .number("Clients", 4)
            .pick("Cut each client into smaller ones, after injection", "into equal parts")
            .number("Parts", 3)
        ),
        {"partition": Iid(4), "subdivide": Subdivide(3)},
    ),
    "pieces": (
        lambda page: (
            dealt(page)
            .number("Clients", 4)
            .pick(
                "Cut each client into smaller ones, after injection", "into pieces of so many rows"
            )
        ),
        {"partition": Iid(4), "subdivide": Subdivide(rows=100)},
    ),
    "stratified": (
        lambda page: dealt(page).many("Keep these in equal shares in each split", "label", "sex"),
        {"split": RowSplit(stratify=("label", "sex"))},
    ),
    "seed": (lambda page: dealt(page).number("Seed", 7), {"seed": 7}),
}


@pytest.mark.parametrize("kind", PARTITIONS)
def test_a_partition_gives_the_librarys_clients(page: Page, csv: Path, kind: str) -> None:
    choose, parts = PARTITIONS[kind]
    split_people(page, csv)
    choose(page)
    assert not page.errors
    expected = people_recipe(csv, **parts)
    assert page.here.recipe == expected
    sizes = count_labels(federate(csv, recipe=expected))[0].rows()
    assert page.metrics["Clients"] == str(len(sizes))
    assert page.metrics["Smallest client"] == f"{sizes.min():,} rows"
    assert page.metrics["Largest client"] == f"{sizes.max():,} rows"


def test_whole_clients_can_be_test(page: Page, csv: Path) -> None:
    split_people(page, csv)
    dealt(page).pick("Test data", "whole clients").number("Test clients", 3)
    split = page.here.recipe.split
    assert isinstance(split, ClientSplit)
    assert len(split.test) == 3
    federation = federate(csv, recipe=page.here.recipe)
    tests = [c.name for c in federation.clients if (federation.split_of(c) == 2).all()]
    assert tuple(tests) == split.test


def test_a_wish_that_cannot_be_fulfilled_is_one_sentence(page: Page, csv: Path) -> None:
    split_people(page, csv)
    page.pick("Partition", "Skewed by a Dirichlet draw").number("Fewest rows of a client", 500)
    (error,) = page.errors
    assert "500" in error
    page.number("Fewest rows of a client", 1)
    assert not page.errors
    dealt(page).pick("Sizes", "given").text("Relative sizes", "3, x")
    assert page.errors[0].startswith("sizes '3, x'")


def test_a_column_of_too_many_values_names_no_clients(page: Page, tmp_path: Path) -> None:
    rows = people(12_000).append_column("person", pa.array(range(12_000)))
    pq.write_table(rows, tmp_path / "people.parquet")
    page.load_people(tmp_path / "people.parquet").go("Split")
    page.pick("Partition", "One client for each value of a column")
    assert page.errors == ["clients: choose the column that names them."]
    page.pick("Column that names the client", "person")
    assert "12,000 values are too many" in page.errors[0]
    assert "hours" not in page.find("selectbox", "Column that names the client").options


def test_another_schema_offers_its_own_choices(page: Page, csv: Path) -> None:
    split_people(page, csv).pick("Partition", "Skewed by a Dirichlet draw").many("By", "race")
    page.go("Inject").pick("Scenario", "Same for all: every client against one group of people")
    page.pick("Against: attribute", "race").go("Load").many("Sensitive attributes", "sex")
    for step in ("Split", "Inject", "Inspect", "Export"):
        page.go(step)
        assert not page.errors
    assert page.here.recipe.partition == Iid(10)
    assert page.here.recipe.groups == ()


def test_a_benchmark_stays_itself_until_it_is_changed(page: Page) -> None:
    page.load("acs", "value-device").go("Split")
    assert page.here.is_benchmark
    page.pick("Partition", "One client for each value of a column")
    recipe = page.here.recipe
    assert (recipe.name, recipe.sampler, recipe.keep) == ("custom", "keyed", None)
    assert isinstance(recipe.partition, Natural)
    page.pick("Partition", "As in the benchmark")
    assert page.here.recipe == ACS.recipe("value-device")


# Inject

RATE = "Drop: share of the eligible rows that is removed"
FLIP = "Flip: share of those left whose label is changed"


def inject_people(page: Page, csv: Path, scenario: str) -> Page:
    return page.load_people(csv).go("Inject").pick("Scenario", scenario)


SCENARIOS: dict[str, tuple[str, Callable[[Page], object], Callable[[Schema], Any]]] = {
    "homogeneous": (
        "Same for all: every client against one group of people",
        lambda page: (
            page.pick("Against: attribute", "sex")
            .pick("Value", "female")
            .pick("And: second attribute", "race")
            .pick("Value ", "b_")
            .number(FLIP, 0.2)
        ),
        lambda _: homogeneous({"sex": "female", "race": "b_"}, drop=0.3, flip=0.2),
    ),
    "value": (
        "Value bias: clients against different values of one attribute",
        lambda page: page.pick("Attribute", "race").many(
            "Values: one group of clients for each", "a*", "b_", "[c](x)"
        ),
        lambda _: value_bias("race", ["a*", "b_", "[c](x)"], drop=0.3, flip=0.0),
    ),
    "attribute": (
        "Attribute bias: clients against different attributes",
        lambda page: page.pick("sex", "female").pick("race", "b_").number(RATE, 0.5),
        lambda _: attribute_bias({"sex": "female", "race": "b_"}, drop=0.5, flip=0.0),
    ),
    "opposed": (
        "Opposed: half against a value, half against all others",
        lambda page: (
            page.pick("Against: attribute", "race")
            .pick("Value", "a*")
            .choose("Rates", "Gaussian, drawn for each client")
            .number("Drop: standard deviation", 0.1)
        ),
        lambda schema: opposed(
            schema,
            "race",
            "a*",
            drop=Gaussian(mean=0.3, std=0.1),
            flip=Gaussian(mean=0.0, std=0.05),
        ),
    ),
    "none": ("No bias", lambda page: page, lambda _: ()),
}


@pytest.mark.parametrize("kind", SCENARIOS)
def test_a_scenario_touches_what_the_library_says(page: Page, csv: Path, kind: str) -> None:
    scenario, choose, groups = SCENARIOS[kind]
    inject_people(page, csv, scenario)
    if kind == "attribute":
        assert "at least one attribute" in page.errors[0]
    choose(page)
    assert not page.errors
    base = people_recipe(csv)
    expected = replace(base, groups=groups(base.schema))
    assert page.here.recipe == expected
    federation = federate(csv, recipe=expected)
    assert page.metrics["Rows dropped"] == f"{federation.dropped.num_rows:,}"
    flipped = sum(entry.flipped for entry in federation.ledger)
    assert page.metrics["Labels flipped"] == f"{flipped:,}"
    assert page.metrics["Clients with a rule"] == str(len({e.client for e in federation.ledger}))


def test_groups_of_ones_own_drop_here_and_flip_there(page: Page, csv: Path) -> None:
    inject_people(page, csv, "Groups of my own").number("Groups", 2)
    app = page.app

    def of(kind: str, label: str, group: int, rule: int = 0) -> Any:
        inner = [w for w in getattr(app, kind) if w.label == label and f"group-{group}-" in w.key]
        return next(w for w in inner if "rule-" not in w.key or f"rule-{rule}-" in w.key)

    of("text_input", "Name", 0).set_value("dropping")
    of("selectbox", "Value", 0).set_value("female")
    of("selectbox", "Clients", 1).set_value("named clients")
    of("number_input", "Rules", 1).set_value(2)
    page.run()
    of("multiselect", "Names", 1).set_value(["c8", "c9"])
    of("number_input", RATE, 1).set_value(0.0)
    of("number_input", FLIP, 1).set_value(0.25)
    of("selectbox", "Against: attribute", 1, 1).set_value("race")
    page.run()
    of("selectbox", "Value", 1, 1).set_value("b_")
    of("radio", "Acts on rows labeled", 1, 1).set_value(0)
    page.run()
    assert not page.errors
    expected = (
        ClientGroup(
            name="dropping", clients=0.5, rules=(BiasRule(where={"sex": "female"}, drop=0.3),)
        ),
        ClientGroup(
            name="group 2",
            clients=("c8", "c9"),
            rules=(
                BiasRule(where={"sex": "male"}, flip=0.25),
                BiasRule(where={"race": "b_"}, label=0, drop=0.3),
            ),
        ),
    )
    assert page.here.groups == expected
    shown = page.app.table[0].value
    ledger = federate(csv, recipe=people_recipe(csv, groups=expected)).ledger
    dropped = [
        sum(e.dropped for e in ledger if e.rule == rule) for rule in ("sex=female", "race=b_")
    ]
    texts = dict(
        zip([re.sub(r"\\(.)", r"\1", t) for t in shown.index], shown["Dropped"], strict=True)
    )
    assert [texts["sex=female"], texts["race=b_"]] == [str(count) for count in dropped]


# Inspect


def everything(dataset: Any, recipe: Recipe) -> Federation:
    source = dataset.open_source(None, recipes=[recipe], sample=True)
    return concat(federations(recipe, source))


@pytest.mark.parametrize(
    ("dataset", "config"),
    [
        (ACS, "attribute-silo"),
        (ACS, "value-device"),
        (CELEBA, "value-silo"),
        (CELEBA, "attribute-device"),
        (DUTCH, "value-device"),
    ],
    ids=lambda part: getattr(part, "name", part),
)
def test_counts_without_features_are_those_of_the_whole(dataset: Any, config: str) -> None:
    rows = open_builtin(Opening(dataset=dataset, sample=True, config=config), no_tick)
    recipe = dataset.recipe(config)
    found, whole = rows.count_labels(recipe, no_tick), everything(dataset, recipe)
    assert (found.before, found.after) == count_labels(whole)
    assert found.ledger == whole.ledger
    assert (found.dropped, found.left_out) == (whole.dropped.num_rows, whole.left_out)
    splits = [np.bincount(whole.split_of(c), minlength=3).tolist() for c in whole.clients]
    assert found.splits.tolist() == splits


def test_the_page_shows_the_librarys_disparities(page: Page) -> None:
    page.load("acs", "attribute-silo").go("Inspect")
    report = measure(everything(ACS, ACS.recipe("attribute-silo")))
    pooled = [each.value for each in page.app.metric if each.label == "Pooled DD"]
    expected = [
        report.pooled.finding("pooled", a.name).disparity.size for a in report.attributes()
    ]
    assert pooled == [f"{size:.6f}" for size in expected]
    ranked = page.app.table[0].value
    worst = sorted((report.worst(c).disparity.size or 0 for c in report.clients), reverse=True)
    assert [rounded(text.replace("\\", "")) for text in ranked["DD"]] == [
        round(size, 4) for size in worst[:10]
    ]
    shown = page.app.dataframe[0].value
    long = report.to_frame().query("scope == 'client' and attribute == 'SEX'")
    assert shown["gap"].tolist() == long["gap"].tolist()
    assert shown["verdict"].tolist() == long["verdict"].tolist()
    assert shown["support"].tolist() == long["support"].tolist()


@pytest.mark.parametrize("count", [20_000, pytest.param(1_600_000, marks=pytest.mark.slow)])
def test_one_flipped_label_changes_the_figure(page: Page, tmp_path: Path, count: int) -> None:
    rows = people(count)
    shown = []
    for number in range(2):
        label = rows["income"].to_pylist()
        if number:
            label[777] = ">50K" if label[777] == "<=50K" else "<=50K"
        changed = rows.set_column(rows.column_names.index("income"), "income", pa.array(label))
        path = tmp_path / f"{number}" / "people.parquet"
        path.parent.mkdir()
        pq.write_table(changed, path)
        page.go("Load").load_people(path).go("Inspect")
        shown.append([each.value for each in page.app.metric])
    assert shown[0] != shown[1]


def test_models_in_parts_are_models_of_the_whole(page: Page, csv: Path) -> None:
    page.load_people(csv).go("Inspect")
    page.pick("Measured on", "predictions of local LogisticRegression models")
    page.pick("Figure", "EOD")
    recipe = people_recipe(csv)
    numbers = tuple(
        replace(c, role="provenance") if c.name == "region" else c for c in recipe.schema.columns
    )
    recipe = replace(recipe, schema=replace(recipe.schema, columns=numbers))
    local = local_models(federate(csv, recipe=recipe), model="lr")
    report = score_rows(local.predictions, local.rows).injected.report
    pooled = [each.value for each in page.app.metric if each.label == "Pooled EOD"]
    assert pooled == [
        f"{report.pooled.finding('pooled', name, 'EOD').disparity.size:.6f}"
        for name in ("sex", "race")
    ]
    notes = " ".join(each.value for each in page.app.markdown)
    assert "left out\\: region" in notes


def test_levels_color_by_attribute_and_by_value(page: Page) -> None:
    page.load("celeba", "attribute-silo").go("Inspect")
    for level in page.find("selectbox", "Color by").options:
        page.pick("Color by", level)
        assert not page.errors
        specs = [json.loads(c.proto.spec) for c in page.app.get("vega_lite_chart")]
        assert all(spec["title"]["text"] for spec in specs)


def test_charts_of_thousands_of_clients_draw_some_of_them() -> None:
    schema = Schema.infer(people(10), label="income", favorable=">50K", sensitive=["sex"])
    recipe = Recipe(dataset="people", name="many", schema=schema, partition=Iid(1000))
    before, after = count_labels(federate(people(20_000), recipe=recipe))
    for chart in (charts.sizes(before, ("bad", "good")), charts.shares(before, "sex")):
        frame = chart.data
        assert frame["client"].nunique() == charts.MOST_BARS
    reports = [measure_cube(cube, compare=contenders(recipe)) for cube in (before, after)]
    assert len(table(reports, "sex", "DD")) == 2000


# Export


def custom_acs(page: Page) -> Page:
    page.load("acs", "value-silo").go("Split")
    page.pick("Partition", "One client for each value of a column")
    page.pick("Cut each client into smaller ones, after injection", "into equal parts")
    page.number("Parts", 2).go("Inject")
    page.pick("Scenario", "Opposed: half against a value, half against all others")
    return page


def custom_celeba(page: Page) -> Page:
    page.load("celeba", "value-silo").go("Split").pick("Partition", "At random (IID)")
    page.number("Clients", 5).go("Inject")
    return page.pick("Scenario", "Value bias: clients against different values of one attribute")


def custom_people(page: Page, csv: Path) -> Page:
    page.load_people(csv).go("Split").pick("Partition", "Skewed by a Dirichlet draw")
    page.go("Inject").pick("Scenario", "Same for all: every client against one group of people")
    return page.choose("Rates", "Gaussian, drawn for each client")


@pytest.mark.parametrize("kind", ["acs", "celeba", "people"])
def test_python_lines_and_recipe_give_the_same_bytes(
    page: Page, csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    if kind == "people":
        custom_people(page, csv)
    else:
        {"acs": custom_acs, "celeba": custom_celeba}[kind](page)
    page.go("Export").click("Prepare the files")
    assert not page.errors
    recipe = page.here.recipe
    name = f"{recipe.dataset}-{recipe.name}"
    exported = unpacked(page.here.folder / "export" / f"{name}.zip")
    monkeypatch.chdir(tmp_path)
    exec(compile(page.code, "page", "exec"), {})
    assert files(tmp_path / "build" / name) == exported
    (tmp_path / "recipe.json").write_text(recipe.to_json(), encoding="utf-8")
    source = ["--source", str(csv)] if kind == "people" else ["--sample"]
    opened("build").main(["--recipe", "recipe.json", *source, "--out", "built"])
    assert files(tmp_path / "built") == exported


def test_a_click_on_download_loses_nothing(page: Page, csv: Path) -> None:
    custom_people(page, csv).go("Export").click("Prepare the files")
    kept = {key: id(value) for key, value in page.here.results.items()}
    labels = ["Recipe (JSON)", "Folder (zip)", "Datasheet", "Dataset card"]
    for label in [*labels, *labels]:
        page.find("download_button", label).click()
        page.run()
        assert page.app.success[0].value.startswith("Ready: ")
    assert {key: id(value) for key, value in page.here.results.items()} == kept
    page.go("Inspect").go("Export")
    assert page.app.success, "the files are still there after another step"


def test_files_of_another_recipe_are_not_shown(page: Page, csv: Path) -> None:
    custom_people(page, csv).go("Export").click("Prepare the files")
    page.go("Inject").number(RATE, 0.4).go("Export")
    assert not page.app.success


def test_a_folder_is_written_where_the_person_says(page: Page, csv: Path, tmp_path: Path) -> None:
    custom_people(page, csv).go("Export").click("Write the folder")
    assert "no folder is named" in page.errors[0]
    page.text("Folder", str(tmp_path / "mine")).click("Write the folder")
    assert not page.errors
    names = set(files(tmp_path / "mine"))
    assert {"README.md", "manifest.json", "recipes/default.json"} <= names
    assert Recipe.from_json(tmp_path / "mine" / "recipes" / "default.json") == page.here.recipe
    page.click("Write the folder")
    assert "replace it with --overwrite" in page.errors[0]


@pytest.mark.parametrize("kind", ["celeba", "people"])
def test_csv_for_each_client_is_the_librarys(
    page: Page, csv: Path, tmp_path: Path, kind: str
) -> None:
    if kind == "people":
        federation = federate(csv, recipe=custom_people(page, csv).here.recipe)
        attach = None
    else:
        recipe = custom_celeba(page).here.recipe
        source = CELEBA.open_source(None, recipes=[recipe], sample=True)
        federation, attach = everything(CELEBA, source.fit(recipe)), source.attach
    page.go("Export").click("Prepare a CSV for each client")
    assert not page.errors
    recipe = page.here.recipe
    archive = page.here.folder / "csv" / f"{recipe.dataset}-{recipe.name}.zip"
    to_csv(federation, tmp_path / "csv", attach=attach)
    assert unpacked(archive) == files(tmp_path / "csv")
    page.find("download_button", "CSV for each client (zip)").click()
    page.run()
    assert page.app.success[0].value.startswith("Ready: ")


def test_an_index_is_exported_where_rows_may_not_be(page: Page) -> None:
    page.load("celeba", "value-silo").go("Export").choose("Form", "index")
    page.click("Prepare the files")
    assert not page.errors
    content = unpacked(page.here.folder / "export" / "celeba-value-silo.zip")
    shard = next(name for name in content if name.startswith("data/"))
    assert pq.read_schema(io.BytesIO(content[shard])).names == ["client_id", "image_id", "split"]


def test_a_dry_run_says_what_stands_against_it(page: Page, csv: Path) -> None:
    custom_people(page, csv).go("Export").click("Prepare the files")
    page.text("Repository", "no id").click("Show the plan")
    (error,) = page.errors
    assert "no id" in error
    assert str(page.here.folder) not in error
    assert page.app.success, "the files are still there"


# What never happens


def test_an_unknown_error_is_a_sentence(
    page: Page, csv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page.load_people(csv)

    def broken(*_: Any) -> None:
        raise KeyError("secret detail")

    monkeypatch.setattr(Rows, "count_labels", broken)
    page.go("Split")
    (error,) = page.errors
    assert "KeyError" in error
    assert "secret" not in error
    assert not page.app.exception


def test_results_are_keyed_by_rows_and_recipe(csv: Path) -> None:
    rows = open_own(Opening(data=str(csv)), no_tick)
    base = people_recipe(csv)
    keys = {
        key_of("counts", rows, base),
        key_of("counts", rows, replace(base, seed=1)),
        key_of("counts", replace(rows, content="other"), base),
        key_of("model lr", rows, base),
    }
    assert len(keys) == 4
    assert key_of("counts", rows, base) == key_of("counts", rows, people_recipe(csv))


def test_data_is_never_markdown(page: Page, csv: Path) -> None:
    page.load_people(csv).go("Inject")
    page.pick("Scenario", "Value bias: clients against different values of one attribute")
    page.pick("Attribute", "race").many("Values: one group of clients for each", "[c](x)")
    (name,) = page.app.table[0].value.index
    assert name == plain("race=[c](x)")
    assert "](" not in name


def test_stopped_work_writes_nothing(csv: Path, tmp_path: Path) -> None:
    rows = open_own(Opening(data=str(csv)), no_tick)

    class Halt(Exception):  # noqa: N818 - as the page's own
        pass

    def halt(what: str, _share: float) -> None:
        if what == "writing":
            raise Halt

    with pytest.raises(Halt):
        export(rows, people_recipe(csv), tmp_path, "full", halt)
    assert files(tmp_path) == {}


@pytest.mark.usefixtures("untouched_random")
def test_global_random_state_stays(csv: Path) -> None:
    rows = open_own(Opening(data=str(csv)), no_tick)
    recipe = people_recipe(csv, groups=homogeneous({"sex": "female"}, drop=0.3))
    rows.count_labels(recipe, no_tick)
    rows.model(recipe, "lr", ("sex",), no_tick)


# The command


@pytest.fixture
def script() -> ModuleType:
    return opened("dashboard")


def served(script: ModuleType, monkeypatch: pytest.MonkeyPatch, *words: str) -> list[str]:
    called: list[list[str]] = []

    def serve(command: list[str], _variables: dict[str, str]) -> int:
        called.append(command)
        return 0

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setattr(script, "_serve", serve)
    script.main([*words, "--port", str(port)])
    (command,) = called
    return command


def test_the_server_listens_on_loopback_and_sends_nothing(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = served(script, monkeypatch)
    assert "--server.address=127.0.0.1" in command
    assert "--browser.gatherUsageStats=false" in command
    assert "--server.enableXsrfProtection=true" in command
    assert "--client.showErrorDetails=none" in command
    assert "--server.allowedHosts=localhost" in command
    assert command[-1] == "--"


def test_the_network_cannot_name_paths(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = served(script, monkeypatch, "--address", "0.0.0.0")
    assert "--server.address=0.0.0.0" in command
    assert command[-2:] == ["--", "--no-paths"]
    assert "cannot be named" in capsys.readouterr().err


def test_visitors_do_not_act_with_the_owners_token(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("STREAMLIT_SERVER_ADDRESS", "0.0.0.0")
    assert script.environment(local=True)["HF_TOKEN"] == "hf_secret"
    foreign = script.environment(local=False)
    assert "hf_secret" not in foreign.values()
    assert not [name for name in foreign if name.startswith("STREAMLIT_")]


def test_a_missing_extra_is_named(
    script: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(script, "find_spec", lambda _name: None)
    monkeypatch.setattr(sys, "argv", ["dashboard.py"])
    assert script.run(script.main) == 1
    assert "pip install 'feda4fair[dashboard]'" in capsys.readouterr().err


def test_a_port_that_cannot_be_had_is_refused(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for port, told in ((99999, "--port 99999"), (taken.getsockname()[1], "cannot be served")):
            monkeypatch.setattr(sys, "argv", ["dashboard.py", "--port", str(port)])
            assert script.run(script.main) == 1
            assert told in capsys.readouterr().err
