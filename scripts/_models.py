"""What scripts that train local models share."""

from __future__ import annotations

from feda4fair.ownsplit import OWN_SPLIT
from feda4fair.recipe import Recipe, RowSplit


def own_split(recipe: Recipe) -> RowSplit:
    """Return how device clients split their own rows: for ACS as the paper's models did."""
    if recipe.dataset != "acs":
        return OWN_SPLIT
    from feda4fair_acs.published import OWN_SPLITS

    return OWN_SPLITS.get(recipe.name, OWN_SPLIT)
