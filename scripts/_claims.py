"""The paper's claims about federated training, each with what a run says about it.

A run says that a claim holds where an interval (95 %) lies on its side, that it does not hold
where it lies on the other side, and nothing where the interval holds the border. One run in
twenty may say so by chance: what several runs come to needs more than that share of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from feda4fair.cube import Cube
from feda4fair.harm import Harm, figures
from feda4fair.intervals import wilson
from feda4fair.rates import rates
from feda4fair.report import FairnessReport

__all__ = ["CLAIMS", "RULE", "Claim", "Evidence", "Pair", "Verdict", "ask_all", "overall"]

Floats = NDArray[np.float64]
Verdict = Literal["holds", "does not hold", "undecided"]

Z = 1.959963984540054
THRESHOLD = 0.09
"""The disparity that the paper's clients were made to exceed."""

NAMED: Mapping[str, Sequence[str]] = {
    "RAC1P": ("Alaska Native/American Indian", "Others"),
    "Marital_status": ("Divorced",),
}
"""Values that the paper says the disadvantage moves to (5.2, C.2.2)."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A client's local model and the global model on the same rows.

    Parameters
    ----------
    config, method, model, protocol : str
        Which: config, federated method, short name of the local model, injected or restored.
    mitigated : str
        Attribute of the mitigation.
    local, reached : FairnessReport
        Predictions of the local models and of the global one, on the same rows.
    baseline : FairnessReport
        FedAvg's, on the same rows.
    harms : tuple of Harm
        The global model against the local ones, and against FedAvg.
    """

    config: str
    method: str
    model: str
    protocol: str
    mitigated: str
    local: FairnessReport
    reached: FairnessReport
    baseline: FairnessReport
    harms: tuple[Harm, ...]

    @property
    def others(self) -> tuple[str, ...]:
        """The contending attributes that are not mitigated."""
        return tuple(name for name in self.reached.contenders if name != self.mitigated)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What one run says: a figure, its interval, and the verdict."""

    what: str
    value: float
    low: float
    high: float
    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim of the paper, where it is made, and how a run is asked."""

    name: str
    source: str
    asked: str
    ask: Callable[[Pair], Iterator[Evidence]]


CHANCE = 0.05

RULE = (
    "A claim holds, or does not hold, where more than half of the runs say so by an interval of "
    "95 % and no more than 5 % say the opposite; it is undecided where no more than 5 % say "
    "anything, and depends otherwise. Intervals of shares are Wilson's, those of means are normal "
    "over the clients; neither covers the training seed or the draw of the injection."
)


def overall(verdicts: Sequence[Verdict]) -> str:
    """Return what several verdicts come to; see ``RULE``.

    Examples
    --------
    >>> overall(["holds", "undecided", "holds"]), overall(["holds", "does not hold"])
    ('holds', 'depends')
    """
    if not verdicts:
        return "not asked"
    share = {name: verdicts.count(name) / len(verdicts) for name in get_args(Verdict)}
    sides: tuple[Verdict, Verdict] = ("holds", "does not hold")
    for side, other in (sides, sides[::-1]):
        if share[side] > 0.5 and share[other] <= CHANCE:
            return side
    said = max(share[side] for side in sides)
    return "depends" if said > CHANCE else "undecided"


def _side(low: float, high: float, border: float) -> Verdict:
    if low > border:
        return "holds"
    return "does not hold" if high < border else "undecided"


def _share(what: str, hits: int, of: int, border: float) -> Evidence:
    low, high = (float(v[0]) for v in wilson(np.array([hits]), np.array([of]), Z))
    value = hits / of if of else float("nan")
    return Evidence(what=what, value=value, low=low, high=high, verdict=_side(low, high, border))


def _mean(what: str, values: Floats, *, positive: bool) -> Evidence:
    """Return the mean over the clients with its normal interval, which is to be beyond 0."""
    known = values[~np.isnan(values)]
    if len(known) < 2:
        nan = float("nan")
        return Evidence(what=what, value=nan, low=nan, high=nan, verdict="undecided")
    mean, reach = float(known.mean()), float(Z * known.std(ddof=1) / np.sqrt(len(known)))
    low, high = mean - reach, mean + reach
    verdict = _side(low, high, 0.0) if positive else _side(-high, -low, 0.0)
    return Evidence(what=what, value=mean, low=low, high=high, verdict=verdict)


def _disparity(cube: Cube, attribute: str) -> Floats:
    return figures(cube, "rest")["DD", attribute]


def _client_specific(pair: Pair) -> Iterator[Evidence]:
    """Ask whether clients harmed and clients helped are both more than chance makes them."""
    for harm in pair.harms:
        if harm.reference != "local" or harm.figure != "DD":
            continue
        if harm.attribute not in pair.reached.contenders:
            continue
        known = [verdict for verdict in harm.verdicts if verdict != "undefined"]
        sides = {
            side: _share(f"DD {harm.attribute}, {side}", known.count(side), len(known), 0.025)
            for side in ("harmed", "helped")
        }
        rarer = min(sides.values(), key=lambda found: found.value)
        yield rarer


def _fedavg_worsens(pair: Pair) -> Iterator[Evidence]:
    if pair.method != "fedavg":
        return
    for attribute in pair.reached.contenders:
        change = _disparity(pair.reached.cube, attribute) - _disparity(pair.local.cube, attribute)
        known = change[~np.isnan(change)]
        yield _share(f"DD {attribute}, clients worse", int((known > 0).sum()), len(known), 0.5)


def _target_reached(pair: Pair) -> Iterator[Evidence]:
    if pair.method == "fedavg" or pair.mitigated not in pair.reached.contenders:
        return
    change = _disparity(pair.reached.cube, pair.mitigated) - _disparity(
        pair.local.cube, pair.mitigated
    )
    yield _mean(f"DD {pair.mitigated}, global minus local", change, positive=False)


def _others_worse(pair: Pair) -> Iterator[Evidence]:
    if pair.method == "fedavg" or pair.mitigated not in pair.reached.contenders:
        return
    for attribute in pair.others:
        reached = _disparity(pair.reached.cube, attribute)
        for name, report in (("local", pair.local), ("FedAvg", pair.baseline)):
            change = reached - _disparity(report.cube, attribute)
            yield _mean(f"DD {attribute}, global minus {name}", change, positive=True)


def _rare_values(pair: Pair) -> Iterator[Evidence]:
    """Ask whether the lowest rate moves to the rarer half of the values, and to those named."""
    if pair.mitigated in pair.reached.contenders:
        return
    for attribute in pair.others:
        here, there = (rates(r.cube.on(attribute), "DD") for r in (pair.local, pair.reached))
        rows = pair.local.cube.on(attribute).counts.sum(axis=(0, 2, 3))
        order = np.argsort(rows, kind="stable")
        present = order[rows[order] > 0]
        groups = {"rarer half": [here.attribute.values[i] for i in present[: len(present) // 2]]}
        if attribute in NAMED:
            groups["named by the paper"] = [*NAMED[attribute]]
        for kind, values in groups.items():
            chosen = [here.attribute.index(value) for value in values]
            before, after = (np.asarray(p.lowest()[:, chosen].any(axis=1)) for p in (here, there))
            known = here.lowest().any(axis=1) & there.lowest().any(axis=1)
            moved = np.array(after[known], np.float64) - before[known]
            what = f"lowest rate at {', '.join(values)} ({kind}): share, global minus local"
            yield _mean(what, moved, positive=True)


def _still_unfair(pair: Pair) -> Iterator[Evidence]:
    if pair.method == "fedavg":
        return
    most = np.fmax.reduce([_disparity(pair.reached.cube, n) for n in pair.reached.contenders])
    known = most[~np.isnan(most)]
    hits = int((known > THRESHOLD).sum())
    yield _share(f"clients with DD > {THRESHOLD} in some attribute", hits, len(known), 0.5)


CLAIMS: Sequence[Claim] = (
    Claim(
        name="Fairness effects are client-specific",
        source="5.3, first",
        asked="Of the clients harmed and those helped against their local model, is the rarer "
        "kind more than the 2.5 % that chance calls so?",
        ask=_client_specific,
    ),
    Claim(
        name="FedAvg increases the disparity of most clients",
        source="5.2, Figures 7a and 8a",
        asked="Is the disparity above that of the local model for more than half of the clients?",
        ask=_fedavg_worsens,
    ),
    Claim(
        name="Mitigation reduces the disparity of its target",
        source="5.3, second; Figures 7 and 8",
        asked="Is the mean change of the mitigated attribute, over the clients, below 0?",
        ask=_target_reached,
    ),
    Claim(
        name="Mitigation of one attribute increases the disparity of another",
        source="5.3, second; Figures 7 and 8",
        asked="Is the mean change of the other attribute, over the clients, above 0?",
        ask=_others_worse,
    ),
    Claim(
        name="Value bias: federated training moves the disadvantage to rare groups",
        source="5.3, third; Figure 9",
        asked="Does the share of clients whose lowest rate is that of a rare value grow? Rare is "
        "the rarer half of the values by rows; beside it stand those that the paper names.",
        ask=_rare_values,
    ),
    Claim(
        name="Heterogeneous bias is left unsolved by fair methods",
        source="5.3, fourth",
        asked=f"Do more than half of the clients keep a disparity above {THRESHOLD}?",
        ask=_still_unfair,
    ),
)
"""The key takeaways of section 5.3, and the statements of 5.2 behind them."""


def ask_all(pairs: Sequence[Pair]) -> Mapping[str, list[tuple[Pair, Evidence]]]:
    """Return for every claim the evidence of every run that it speaks of."""
    return {claim.name: [(p, e) for p in pairs for e in claim.ask(p)] for claim in CLAIMS}
