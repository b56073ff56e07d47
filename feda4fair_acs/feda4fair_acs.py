"""Loading script and builder of ACS Income."""

from __future__ import annotations

from typing import ClassVar

from feda4fair.builder import FederatedBuilder, FederatedConfig
from feda4fair.dataset import Dataset
from feda4fair_acs import DATASET

__all__ = ["Feda4FairACS"]


class Feda4FairACS(FederatedBuilder):
    """ACS Income in four federations.

    Examples
    --------
    >>> builder = Feda4FairACS(config_name="value-device", sample=True)
    >>> builder.config.recipe.split.folds
    5
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
