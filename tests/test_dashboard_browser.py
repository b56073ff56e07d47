"""The dashboard in a real browser: all five steps, and the numbers that a person reads there."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import numpy as np
import pytest
from hub_emulator import HubEmulator, Repo

from feda4fair import Dirichlet, Recipe, Schema, federate, write
from feda4fair.build import build, federations
from feda4fair.evaluate import local_models
from feda4fair.federation import Federation, concat
from feda4fair.measurement import measure
from feda4fair.report import FairnessReport
from feda4fair.scenarios import opposed, value_bias
from feda4fair.score import score_rows
from feda4fair.tables import read_table
from feda4fair_acs import DATASET as ACS
from feda4fair_celeba import DATASET as CELEBA

pytest.importorskip("streamlit", reason="the extra dashboard is not installed")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "dashboard.py"
NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
BROWSER = next((found for name in NAMES if (found := shutil.which(name))), None)
FLAGS = (
    *("--no-sandbox", "--disable-dev-shm-usage", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
    *("--disable-default-apps", "--no-default-browser-check", "--disable-extensions"),
)
SLOW = 60_000
"""Milliseconds that a busy machine may take for a click."""

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")


@pytest.fixture(scope="module")
def hub() -> Iterator[HubEmulator]:
    with HubEmulator() as hub:
        yield hub


@pytest.fixture(scope="module")
def address(hub: HubEmulator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve the page as a person does, with a Hub on this machine."""
    scratch = tmp_path_factory.mktemp("scratch")
    home = tmp_path_factory.mktemp("home")
    environment = {**os.environ, **hub.env(home), "TMPDIR": str(scratch)}
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, str(SCRIPT), "--port", str(port)]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as server:
        assert server.stderr is not None
        try:
            wait_for(f"http://127.0.0.1:{port}/_stcore/health", server)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            said = server.stderr.read().decode()
    assert "Traceback" not in said, said
    left = [path.name for path in scratch.iterdir() if path.name.startswith("feda4fair-dashboard")]
    assert left == [], "uploads and exports go with the server"


def wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        assert server.poll() is None, "the server ended"
        try:
            with urllib.request.urlopen(url) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    raise AssertionError("the server does not answer")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=BROWSER, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Any, address: str) -> Iterator[Page]:
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    tab = context.new_page()
    tab.set_default_timeout(SLOW)
    asked: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(address)
    yield Page(tab)
    context.close()
    hosts = {urlparse(url).hostname for url in asked if url.startswith(("http", "ws"))}
    assert hosts == {"127.0.0.1"}, "the page asks nobody else"


class Page:
    """The page as a person uses it."""

    def __init__(self, tab: Any) -> None:
        self.tab = tab

    def pick(self, label: str, value: str) -> None:
        box = self.tab.get_by_role("combobox", name=label).first
        box.click()
        self.tab.get_by_role("option", name=value, exact=True).click()
        self.rest()

    def add(self, label: str, value: str) -> None:
        self.pick(label, value)
        self.tab.keyboard.press("Escape")

    def click(self, name: str) -> None:
        self.tab.get_by_role("button", name=name, exact=True).click()
        self.rest()

    def rest(self) -> None:
        """Wait until the page has taken notice and is done."""
        self.tab.wait_for_timeout(150)
        app = self.tab.get_by_test_id("stApp")
        playwright.expect(app).to_have_attribute(
            "data-test-script-state", "notRunning", timeout=SLOW
        )

    def next(self, step: str) -> None:
        """Go on; the way on must lie in sight at both widths, and nothing beyond the edge."""
        button = self.tab.get_by_role("button", name=f"Next: {step}")
        for width in (800, 1280):
            self.tab.set_viewport_size({"width": width, "height": 900})
            playwright.expect(button).to_be_in_viewport(ratio=1, timeout=SLOW)
            wide = self.tab.evaluate("document.documentElement.scrollWidth")
            assert wide <= width
        button.click()
        heading = self.tab.get_by_role("heading", name=f"{step}:")
        playwright.expect(heading).to_be_visible(timeout=SLOW)
        self.rest()

    def sees(self, text: str) -> None:
        found = self.tab.get_by_text(text).first
        playwright.expect(found).to_be_visible(timeout=SLOW)

    def metrics(self, label: str) -> list[str]:
        """Return the values of all figures with a label."""
        boxes = self.tab.get_by_test_id("stMetric").filter(has_text=label)
        playwright.expect(boxes.first).to_be_visible(timeout=SLOW)
        return [box.get_by_test_id("stMetricValue").inner_text().strip() for box in boxes.all()]

    def ranked(self) -> list[list[str]]:
        """Return the table of the most biased clients."""
        rows = self.tab.get_by_test_id("stTable").first.locator("tbody tr").all()
        return [row.locator("th, td").all_inner_texts() for row in rows]

    def download(self, name: str) -> bytes:
        with self.tab.expect_download(timeout=SLOW) as found:
            self.tab.get_by_role("button", name=name, exact=True).click()
        content = Path(found.value.path()).read_bytes()
        self.rest()
        return content


def check_figures(page: Page, report: FairnessReport) -> None:
    """Compare what the page says after injection with the library."""
    names = [attribute.name for attribute in report.attributes()]
    pooled = [report.pooled.finding("pooled", name).disparity.size for name in names]
    assert page.metrics("Pooled DD") == [f"{size:.6f}" for size in pooled]
    middle = [float(np.nanmedian(report.attribute(name)["size"].astype(float))) for name in names]
    assert page.metrics("Median DD of clients") == [f"{size:.4f}" for size in middle]
    told = [(report.attribute(name)["verdict"] == "toward").sum() for name in names]
    assert page.metrics("Biased toward one value") == [
        f"{count} of {len(report.clients)}" for count in told
    ]
    shown = page.ranked()
    known = [
        client for client in report.clients if report.worst(client).disparity.size is not None
    ]
    assert len(shown) == min(10, len(known))
    for client, attribute, size, _, verdict in shown:
        worst = report.worst(client)
        assert worst.disparity.size is not None
        assert (attribute, size) == (worst.attribute, f"{worst.disparity.size:.4f}")
        assert verdict == (f"toward {worst.toward}" if worst.toward else worst.verdict)


def check_files(page: Page, folder: Path) -> None:
    """Compare the zip that the browser gets, twice, with the folder that the library writes."""
    page.click("Prepare the files")
    page.sees("Ready:")
    for _ in range(2):
        with zipfile.ZipFile(BytesIO(page.download("Folder (zip)"))) as packed:
            found = {name.partition("/")[2]: packed.read(name) for name in packed.namelist()}
        assert found == {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }
        page.sees("Ready:")


def whole(dataset: Any, recipe: Recipe) -> Federation:
    source = dataset.open_source(None, recipes=[recipe], sample=True)
    return concat(federations(recipe, source))


def built(dataset: Any, recipe: Recipe, out: Path) -> Path:
    source = dataset.open_source(None, recipes=[recipe], sample=True)
    notes = () if recipe in dataset.recipes else ("custom follows a recipe of its own.",)
    build(dataset, [recipe], source, out, notes=notes)
    return out


def test_acs_sample_from_load_to_export(page: Page, tmp_path: Path) -> None:
    page.pick("Start from the config", "value-silo")
    page.click("Load rows")
    page.sees("60,490")
    page.next("Split")
    recipe = ACS.recipe("value-silo")
    assert page.metrics("Clients") == ["51"]
    page.next("Inject")
    federation = whole(ACS, recipe)
    assert page.metrics("Rows dropped") == [f"{federation.dropped.num_rows:,}"]
    page.pick("Scenario", "Opposed: half against a value, half against all others")
    page.pick("Against: attribute", "SEX")
    groups = opposed(recipe.schema, "SEX", "Female", drop=0.3, flip=0.0)
    recipe = replace(recipe, name="custom", description="", sampler="keyed", groups=groups)
    federation = whole(ACS, recipe)
    assert page.metrics("Rows dropped") == [f"{federation.dropped.num_rows:,}"]
    page.next("Inspect")
    check_figures(page, measure(federation))
    page.next("Export")
    check_files(page, built(ACS, recipe, tmp_path / "acs"))


def people(path: Path) -> Path:
    random = np.random.RandomState(5)
    lines = ["age,sex,race,income"]
    for _ in range(3000):
        sex, race = random.choice(["female", "male"]), random.choice(["a", "b", "c*"])
        good = random.rand() < 0.35 + 0.2 * (sex == "male")
        lines.append(f"{random.randint(18, 80)},{sex},{race},{'>50K' if good else '<=50K'}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_an_uploaded_table_from_load_to_export(page: Page, tmp_path: Path) -> None:
    csv = people(tmp_path / "people.csv")
    page.tab.get_by_text("Upload", exact=True).click()
    page.tab.locator("input[type=file]").set_input_files(str(csv))
    page.sees("people.csv")
    page.click("Load rows")
    page.sees("What the columns mean")
    page.pick("Label", "income")
    page.add("Favorable outcome", ">50K")
    page.add("Sensitive attributes", "sex")
    page.add("Sensitive attributes", "race")
    page.next("Split")
    page.pick("Partition", "Skewed by a Dirichlet draw")
    page.next("Inject")
    page.pick("Scenario", "Value bias: clients against different values of one attribute")
    schema = Schema.infer(
        read_table(csv), label="income", favorable=[">50K"], sensitive=["sex", "race"]
    )
    recipe = Recipe(
        dataset="people",
        name="default",
        schema=schema,
        partition=Dirichlet(10),
        groups=value_bias("sex", ["female", "male"], drop=0.3, flip=0.0),
    )
    federation = federate(csv, recipe=recipe)
    assert page.metrics("Rows dropped") == [f"{federation.dropped.num_rows:,}"]
    page.next("Inspect")
    check_figures(page, measure(federation))
    page.pick("Measured on", "predictions of local LogisticRegression models")
    page.pick("Figure", "Equalized odds difference (EOD)")
    local = local_models(federation, model="lr")
    report = score_rows(local.predictions, local.rows).injected.report
    assert page.metrics("Pooled EOD") == [
        f"{report.pooled.finding('pooled', name, 'EOD').disparity.size:.6f}"
        for name in ("sex", "race")
    ]
    page.next("Export")
    write(federation, tmp_path / "people")
    check_files(page, tmp_path / "people")
    assert Recipe.from_json(page.download("Recipe (JSON)").decode()) == recipe


def test_celeba_sample_from_load_to_export(page: Page, tmp_path: Path) -> None:
    page.pick("Dataset", "FeDa4Fair: CelebA")
    page.pick("Start from the config", "attribute-silo")
    page.click("Load rows")
    page.sees("6,000")
    page.next("Split")
    assert page.metrics("Clients") == ["50"]
    page.next("Inject")
    recipe = CELEBA.recipe("attribute-silo")
    federation = whole(CELEBA, recipe)
    assert page.metrics("Rows dropped") == [f"{federation.dropped.num_rows:,}"]
    page.next("Inspect")
    check_figures(page, measure(federation))
    page.next("Export")
    check_files(page, built(CELEBA, recipe, tmp_path / "celeba"))
    page.click("Show the plan")
    page.sees("may not be redistributed")


def test_rows_from_the_hub_and_a_dry_run(page: Page, hub: HubEmulator, tmp_path: Path) -> None:
    repo = hub.repos["dataset", "feda4fair/people"] = Repo("dataset", "feda4fair/people")
    hub.new_commit(repo, "refs/heads/main", {}, "begin")
    hub.write(repo.id, "people.csv", people(tmp_path / "people.csv").read_bytes())
    page.tab.get_by_text("Hugging Face Hub", exact=True).click()
    page.tab.get_by_role("textbox", name="Dataset id").fill("feda4fair/nothing")
    page.click("Load rows")
    page.sees("feda4fair/nothing cannot be loaded")
    page.tab.get_by_role("textbox", name="Dataset id").fill("feda4fair/people")
    page.click("Load rows")
    page.sees("What the columns mean")
    assert page.metrics("Rows") == ["3,000"]
    page.pick("Label", "income")
    page.add("Favorable outcome", ">50K")
    page.add("Sensitive attributes", "sex")
    page.next("Split")
    page.next("Inject")
    page.next("Inspect")
    page.next("Export")
    page.sees('federate("feda4fair/people", recipe=recipe)')
    page.click("Prepare the files")
    page.sees("Ready:")
    page.tab.get_by_role("textbox", name="Repository").fill("feda4fair/benchmark")
    page.click("Show the plan")
    page.sees("pass --accept-terms")
    page.tab.get_by_text("I have settled that").click()
    page.rest()
    page.click("Show the plan")
    page.sees("a new repository")
    assert {name for _, name in hub.repos} == {"feda4fair/people"}, "nothing was sent"
    assert hub.history("feda4fair/people") == ["by hand", "begin"]


def test_long_work_shows_progress_and_is_stopped(page: Page) -> None:
    page.click("Load rows")
    page.next("Split")
    page.next("Inject")
    page.next("Inspect")
    before = page.metrics("Pooled DD")
    page.tab.get_by_role("combobox", name="Measured on").click()
    page.tab.get_by_role("option", name="predictions of local XGBoost models").click()
    page.sees("Training each client")
    main = page.tab.get_by_test_id("stMainBlockContainer")
    main.get_by_role("button", name="Stop", exact=True).click()
    page.sees("Stopped: Training each client")
    assert page.tab.get_by_role("button", name="Start again").is_visible()
    page.pick("Measured on", "labels, before any training")
    page.sees("Pooled DD")
    assert page.metrics("Pooled DD") == before


def test_every_chart_is_drawn_with_its_title(page: Page) -> None:
    page.click("Load rows")
    page.next("Split")
    page.next("Inject")
    page.next("Inspect")
    charts = page.tab.get_by_test_id("stVegaLiteChart")
    playwright.expect(charts).to_have_count(4, timeout=SLOW)
    sides = ["Before injection", "After injection"]
    for chart, side in zip(charts.all(), [*sides, *sides], strict=True):
        title = chart.locator("g.role-title text").first
        playwright.expect(title).to_contain_text(side, timeout=SLOW)
        assert len(chart.locator("g.role-axis-title text").all()) == 2
        assert chart.locator("g.role-legend text").first.is_visible()
