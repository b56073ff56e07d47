"""Loading script and builder of the Dutch census."""

from __future__ import annotations

from typing import ClassVar

from feda4fair.builder import FederatedBuilder, FederatedConfig
from feda4fair.dataset import Dataset
from feda4fair_dutch import DATASET

__all__ = ["Feda4FairDutch"]


class Feda4FairDutch(FederatedBuilder):
    """The Dutch census in four federations.

    Examples
    --------
    >>> builder = Feda4FairDutch(config_name="value-device", sample=True)
    >>> len(builder.config.recipe.split.test)
    30
    """

    DATASET: ClassVar[Dataset] = DATASET
    BUILDER_CONFIGS: ClassVar[list[FederatedConfig]] = [
        FederatedConfig(
            name=recipe.name,
            version=DATASET.version,
            description=recipe.description,
            recipe=recipe,
        )
        for recipe in DATASET.recipes
    ]
    DEFAULT_CONFIG_NAME = DATASET.recipes[0].name
