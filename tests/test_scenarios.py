"""Scenarios: the groups they name, and what they do to a federation."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from feda4fair import ClientGroup, Gaussian, Iid, Schema, federate, measure
from feda4fair.errors import RecipeError, SchemaError
from feda4fair.scenarios import attribute_bias, homogeneous, opposed, value_bias

pytestmark = pytest.mark.usefixtures("untouched_random")


def fair_rows(count: int = 8_000) -> pa.Table:
    """Return rows in which no group has another rate."""
    position = np.arange(count)
    return pa.table(
        {
            "sex": np.array(["f", "m"])[position % 2],
            "race": np.array(["a", "b", "c"])[position // 2 % 3],
            "label": position // 6 % 2,
        }
    )


def worst_values(groups: tuple[ClientGroup, ...], attribute: str) -> list[str]:
    """Federate fair rows with these groups; return the value that each client is biased toward."""
    report = measure(federate(fair_rows(), partition=Iid(4), groups=groups, seed=3))
    return report.attribute(attribute)["toward"].tolist()


def test_homogeneous_bias_hits_the_same_group_everywhere() -> None:
    assert worst_values(homogeneous({"sex": "f"}, drop=0.6), "sex") == ["f"] * 4


def test_value_bias_hits_other_values_in_other_clients() -> None:
    groups = value_bias("race", ["a", "b"], drop=0.6)
    assert worst_values(groups, "race") == ["a", "a", "b", "b"]


def test_attribute_bias_hits_other_attributes_in_other_clients() -> None:
    groups = attribute_bias({"sex": "f", "race": "b"}, drop=0.6, flip=0.2)
    report = measure(federate(fair_rows(), partition=Iid(4), groups=groups, seed=3))
    found = [report.worst(client).attribute for client in report.clients]
    assert found == ["sex", "sex", "race", "race"]


def test_given_shares_and_clients_without_a_rule() -> None:
    groups = value_bias("race", ["a", "b"], drop=Gaussian(mean=0.5, std=0.1), shares=[0.5, 0.25])
    made = federate(fair_rows(), partition=Iid(4), groups=groups, seed=3)
    assert [entry.client for entry in made.ledger] == ["c0", "c1", "c2"]
    assert len({entry.drop for entry in made.ledger}) == 3


def test_an_intersection_is_one_rule() -> None:
    made = federate(
        fair_rows(), partition=Iid(2), groups=homogeneous({"sex": "f", "race": "a"}, drop=1.0)
    )
    gone = made.dropped
    assert set(gone["sex"].to_pylist()) == {"f"}
    assert set(gone["race"].to_pylist()) == {"a"}
    favorable = [row for row in fair_rows().to_pylist() if row["label"] == 1]
    hit = [row for row in favorable if (row["sex"], row["race"]) == ("f", "a")]
    assert gone.num_rows == len(hit) < len(favorable) / 5


@pytest.mark.parametrize(("attribute", "value"), [("sex", "f"), ("race", "b")])
def test_opposed_bias_cancels_in_the_pooled_rows(attribute: str, value: str) -> None:
    table = fair_rows()
    groups = opposed(Schema.infer(table), attribute, value, drop=0.5)
    report = measure(federate(table, partition=Iid(10), groups=groups, seed=3))
    frame = report.heterogeneity()
    cancelled = frame[
        (frame["figure"] == "H4 cancellation")
        & (frame["attribute"] == attribute)
        & (frame["value"] == value)
    ]
    assert cancelled["estimate"].item() > 0.9
    assert report.attribute(attribute)["size"].min() > 0.08
    assert report.pooled.attribute(attribute)["size"].max() < 0.05


def test_refusals() -> None:
    schema = Schema.infer(fair_rows())
    with pytest.raises(RecipeError, match="give one for each, 1 at most in all"):
        value_bias("race", ["a", "b"], shares=[0.9])
    with pytest.raises(RecipeError, match="give one for each"):
        value_bias("race", ["a", "b"], shares=["half", "half"])  # type: ignore[list-item]
    with pytest.raises(RecipeError, match="'sex' names no people"):
        homogeneous("sex")  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match="names no people"):
        attribute_bias(["sex", "race"])  # type: ignore[arg-type]
    alone = Schema.infer(pa.table({"sex": ["f", "f"], "label": [0, 1]}), sensitive="sex")
    with pytest.raises(RecipeError, match="has one value only"):
        opposed(alone, "sex", "f")
    with pytest.raises(RecipeError, match="name at least one"):
        value_bias("race", [])
    with pytest.raises(SchemaError, match="no such value"):
        opposed(schema, "sex", "x")
    with pytest.raises(RecipeError, match="shares"):
        value_bias("race", ["a", "b"], shares=[0.9, 0.9])
