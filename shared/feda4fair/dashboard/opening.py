"""Where the rows of a session come from, and the Python lines that do the same."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from feda4fair.dataset import Dataset, Source
from feda4fair.recipe import Recipe
from feda4fair.script import changed, changes, imports, python

__all__ = ["OWN_NOTE", "Opening", "script"]

OWN_NOTE: Final = "follows a recipe of its own."
"""As ``build.py --recipe`` notes it."""


@dataclass(frozen=True, kw_only=True)
class Opening:
    """Where rows come from: enough to open them again.

    Parameters
    ----------
    data : str
        Path or Hub id of own rows; folder of a built-in source, or "".
    name : str
        How Python lines name own rows, where that is not ``data``: the name of an upload.
    dataset : Dataset, optional
        A built-in dataset; None for own rows.
    sample : bool
        The built-in sample.
    config, split : str, optional
        Config and split of a Hub dataset; ``config`` also names the config of a built-in one
        that the session starts from.
    """

    data: str = ""
    name: str = ""
    dataset: Dataset | None = None
    sample: bool = False
    config: str | None = None
    split: str | None = None

    def source(self, recipe: Recipe) -> Source:
        """Open the source of a built-in dataset for one recipe, as ``build.py`` does."""
        assert self.dataset is not None, "own rows are held by Rows"
        opened: Source = self.dataset.open_source(
            Path(self.data) if self.data else None,
            recipes=[recipe],
            clients=(),
            sample=self.sample,
            allow_missing=bool(self.data),
        )
        return opened


def script(opening: Opening, base: Recipe | None, recipe: Recipe, out: str, form: str) -> str:
    """Return the Python lines that write a folder as the page does, byte for byte.

    Parameters
    ----------
    opening : Opening
        Where the rows come from.
    base : Recipe or None
        The config of a built-in dataset that the session started from.
    recipe : Recipe
        What is made of the rows.
    out : str
        Folder that the lines name.
    form : {"full", "index"}
        Rows, or only their index.
    """
    if opening.dataset is None:
        return _own_script(opening, recipe, out)
    assert base is not None, "a built-in dataset has configs"
    return _builtin_script(opening, base, recipe, out, form)


def _own_script(opening: Opening, recipe: Recipe, out: str) -> str:
    options = [
        f"{option}={value!r}"
        for option, value in (
            ("source_config", opening.config),
            ("source_split", opening.split),
        )
        if value is not None
    ]
    arguments = ", ".join([python(opening.name or opening.data), "recipe=recipe", *options])
    return (
        f"{imports(recipe, 'federate', 'write')}\n\nrecipe = {python(recipe)}\n"
        f"federation = federate({arguments})\nwrite(federation, {python(out)})\n"
    )


def _builtin_script(opening: Opening, base: Recipe, recipe: Recipe, out: str, form: str) -> str:
    assert opening.dataset is not None
    assert opening.dataset.folder is not None, "a built-in dataset has its folder"
    module = opening.dataset.folder.name
    expression = changed(f"DATASET.recipe({python(base.name)})", base, recipe)
    kinds = tuple(changes(base, recipe).values())
    lines = ["from dataclasses import replace"] if recipe != base else []
    lines += ["from pathlib import Path", ""]
    lines += [imports(kinds)] if _is_any_kind(kinds) else []
    lines += ["from feda4fair.build import build", f"from {module} import DATASET", ""]
    folder = f"Path({python(opening.data)})" if opening.data else "None"
    missing = ", allow_missing=True" if opening.data else ""
    sample = ", sample=True" if opening.sample else ""
    options = "" if form == "full" else f", form={python(form)}"
    options += "" if recipe == base else f", notes=[{python(f'{recipe.name} {OWN_NOTE}')}]"
    lines += [
        f"recipe = {expression}",
        f"source = DATASET.open_source({folder}, recipes=[recipe]{sample}{missing})",
        f"build(DATASET, [recipe], source, Path({python(out)}){options})",
    ]
    return "\n".join(lines) + "\n"


def _is_any_kind(kinds: tuple[Any, ...]) -> bool:
    return imports(kinds).rstrip() != "from feda4fair import"
