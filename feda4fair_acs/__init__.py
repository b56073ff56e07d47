"""ACS Income: four federated benchmarks on the American Community Survey of 2018."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from feda4fair.dataset import Dataset
from feda4fair_acs.configs import RECIPES
from feda4fair_acs.schema import STATE_NAMES
from feda4fair_acs.source import open_recipes

if TYPE_CHECKING:
    from feda4fair_acs.feda4fair_acs import Feda4FairACS

__all__ = ["DATASET", "Feda4FairACS"]

DATASET: Final = Dataset(
    name="acs",
    folder=Path(__file__).parent,
    recipes=RECIPES,
    open_source=open_recipes,
    assets=("codes.tsv",),
    client_names=STATE_NAMES,
)


def __getattr__(name: str) -> Any:
    """Import the builder when it is asked for: it needs ``datasets``, which loads slowly."""
    if name == "Feda4FairACS":
        from feda4fair_acs.feda4fair_acs import Feda4FairACS

        return Feda4FairACS
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
