"""CelebA: four federated benchmarks on face images and their attributes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from feda4fair.dataset import Dataset
from feda4fair_celeba.configs import RECIPES
from feda4fair_celeba.index import INDEX
from feda4fair_celeba.source import open_source

if TYPE_CHECKING:
    from feda4fair_celeba.feda4fair_celeba import Feda4FairCelebA
    from feda4fair_celeba.rebuild import join

__all__ = ["DATASET", "Feda4FairCelebA", "join"]

DATASET: Final = Dataset(
    name="celeba",
    folder=Path(__file__).parent,
    recipes=RECIPES,
    open_source=open_source,
    index=INDEX,
)


def __getattr__(name: str) -> Any:
    """Import what needs ``datasets``, which loads slowly, when it is asked for."""
    match name:
        case "Feda4FairCelebA":
            from feda4fair_celeba.feda4fair_celeba import Feda4FairCelebA

            return Feda4FairCelebA
        case "join":
            from feda4fair_celeba.rebuild import join

            return join
        case _:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
