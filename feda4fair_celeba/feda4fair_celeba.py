"""Loading script and builder of CelebA."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from feda4fair.builder import FederatedBuilder, FederatedConfig
from feda4fair.dataset import Dataset
from feda4fair.recipe import Recipe
from feda4fair_celeba import DATASET
from feda4fair_celeba.configs import with_images
from feda4fair_celeba.source import CelebASource, embeds, open_source

__all__ = ["CelebAConfig", "Feda4FairCelebA"]


@dataclass
class CelebAConfig(FederatedConfig):
    """A config of CelebA.

    Parameters
    ----------
    images : {"embed", "none"}, optional
        Whether rows get their image bytes; by default where images are there.
    """

    images: Literal["embed", "none"] | None = None


class Feda4FairCelebA(FederatedBuilder):
    """CelebA in four federations.

    Examples
    --------
    >>> builder = Feda4FairCelebA(config_name="value-device", sample=True, images="none")
    >>> "image" in builder.info.features
    False
    """

    DATASET: ClassVar[Dataset] = DATASET
    BUILDER_CONFIG_CLASS = CelebAConfig
    BUILDER_CONFIGS: ClassVar[list[CelebAConfig]] = [
        CelebAConfig(
            name=recipe.name,
            version=DATASET.version,
            description=recipe.description,
            recipe=recipe,
        )
        for recipe in DATASET.recipes
    ]
    DEFAULT_CONFIG_NAME = DATASET.recipes[0].name

    @property
    def recipe(self) -> Recipe:
        """Recipe of the chosen config, with the image column where images are embedded."""
        recipe = super().recipe
        config = self.config
        if embeds(_folder(config), sample=config.sample, images=config.images):
            return with_images(recipe)
        return recipe

    def _source(self) -> CelebASource:
        config = self.config
        return open_source(_folder(config), sample=config.sample, images=config.images)


def _folder(config: CelebAConfig) -> Path | None:
    return Path(config.data_dir) if config.data_dir else None
