"""scripts/reproduce.py in its quick form, and the verdicts of its claims."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed (extra fl)")
pytest.importorskip("flwr", reason="flwr is not installed (extra fl)")
pytest.importorskip("matplotlib", reason="matplotlib is not installed (extra plots)")

from feda4fair.cube import Attribute, Cube
from feda4fair.report import FairnessReport, measure_cube

SCRIPTS = Path(__file__).resolve().parent.parent.parent / "scripts"


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(SCRIPTS)
    return import_module("_claims")


@pytest.fixture
def reproduce(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(SCRIPTS)
    return import_module("reproduce")


@pytest.mark.parametrize(
    ("hits", "of", "verdict"), [(40, 50, "holds"), (27, 50, "undecided"), (5, 50, "does not hold")]
)
def test_a_share_needs_its_interval(claims: ModuleType, hits: int, of: int, verdict: str) -> None:
    found = claims._share("", hits, of, 0.5)
    assert (found.value, found.verdict) == (hits / of, verdict)
    assert found.low < found.value < found.high


def test_a_mean_needs_its_interval_on_the_side_of_the_claim(claims: ModuleType) -> None:
    values = np.array([0.1, 0.2, 0.3, np.nan])
    assert claims._mean("", values, positive=True).verdict == "holds"
    assert claims._mean("", values, positive=False).verdict == "does not hold"
    assert claims._mean("", -values, positive=False).verdict == "holds"
    assert claims._mean("", values - 0.2, positive=True).verdict == "undecided"
    assert claims._mean("", np.array([0.3]), positive=True).verdict == "undecided"


def test_claims_that_disagree_depend(claims: ModuleType) -> None:
    assert claims.overall(["undecided", "undecided"]) == "undecided"
    assert claims.overall(["does not hold", "does not hold", "undecided"]) == "does not hold"
    assert claims.overall(["undecided"] * 30 + ["holds"]) == "undecided"  # as chance may say
    assert claims.overall(["undecided"] * 3 + ["holds"]) == "depends"
    assert claims.overall([]) == "not asked"
    assert claims.overall(["does not hold", "holds", "undecided"]) == "depends"


def test_a_quick_report_is_whole(
    built: Path, tmp_path: Path, reproduce: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    configs = ["--configs", "attribute-silo", "value-silo"]
    arguments = ["--dutch", str(built), *configs, "--quick", "--no-control", "--out", str(out)]
    reproduce.main(arguments)
    text = (out / "report.md").read_text("utf-8")
    shown = capsys.readouterr().out
    for claim in reproduce.CLAIMS:
        assert f"## Evidence: {claim.name}\n" in text
        assert re.search(
            rf"^{re.escape(claim.name)}: (holds|does not|undec|depends|not asked)", shown, re.M
        )
    assert "synthetic sample" in text
    assert "two rounds" in text
    pictures = re.findall(r"\]\((figures/[^)]+)\)", text)
    assert len(pictures) == 4
    assert all((out / each).stat().st_size > 1000 for each in pictures)
    before = {path: path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}
    reproduce.main([*arguments, "--resume"])
    assert {path: path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()} == before


def value_report(rates: list[list[float]]) -> FairnessReport:
    """Return clients with 100, 60, 40 and 20 rows of four values, and shares predicted 1."""
    sizes = np.array([100, 60, 40, 20])
    ones = np.rint(np.array(rates) * sizes).astype(np.int64)
    counts = np.zeros((len(rates), 4, 2, 2), np.int64)
    counts[..., 0, 1], counts[..., 0, 0] = ones, sizes - ones
    race = Attribute(name="race", values=("A", "B", "C", "D"), codes=(1, 2, 3, 4))
    names = tuple(f"c{k}" for k in range(len(rates)))
    return measure_cube(Cube(clients=names, attributes=(race,), counts=counts), compare=("race",))


def test_rare_values_by_hand(claims: ModuleType) -> None:
    # C and D are the rarer half. Lowest: locally A, B, C, D; then D, C, C, A.
    low = {value: np.full(4, 0.5) - 0.3 * np.eye(4)[i] for i, value in enumerate("ABCD")}
    local, reached = (value_report([low[v].tolist() for v in order]) for order in ("ABCD", "DCCA"))
    pair = claims.Pair(
        config="demo value",
        method="puffle",
        model="lr",
        protocol="injected",
        mitigated="sex",
        local=local,
        reached=reached,
        baseline=reached,
        harms=(),
    )
    (found,) = claims._rare_values(pair)
    assert found.what.startswith("lowest rate at D, C (rarer half):")
    assert found.value == (1 + 1 + 0 - 1) / 4
    assert found.verdict == "undecided"


@pytest.mark.slow
def test_printed_tables_stand_beside_recomputed_ones(
    tmp_path: Path, reproduce: ModuleType
) -> None:
    from small_release import small_release

    build = small_release(tmp_path / "acs", ["attribute-silo"])
    out = tmp_path / "out"
    reproduce.main(["--acs", str(build), "--quick", "--no-control", "--out", str(out)])
    text = (out / "report.md").read_text("utf-8")
    assert re.search(r"Table 3, .*: \d of 2 clients agree; not built: AK, AL, ", text)
    assert "| largest DD | printed | recomputed |" in text
