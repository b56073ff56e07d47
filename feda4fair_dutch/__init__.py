"""Dutch census: four federated benchmarks on the Dutch Virtual Census of 2001."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from feda4fair.dataset import Dataset
from feda4fair_dutch.configs import RECIPES
from feda4fair_dutch.source import open_source

if TYPE_CHECKING:
    from feda4fair_dutch.feda4fair_dutch import Feda4FairDutch

__all__ = ["DATASET", "Feda4FairDutch"]

DATASET: Final = Dataset(
    name="dutch",
    folder=Path(__file__).parent,
    recipes=RECIPES,
    open_source=open_source,
)


def __getattr__(name: str) -> Any:
    """Import the builder when it is asked for: it needs ``datasets``, which loads slowly."""
    if name == "Feda4FairDutch":
        from feda4fair_dutch.feda4fair_dutch import Feda4FairDutch

        return Feda4FairDutch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
