"""Everything that decides the figures of a run, as flat values that Flower can carry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from feda4fair.errors import RecipeError
from feda4fair.fl.methods import Option, open_method
from feda4fair.fl.steps import OPTIMIZERS, Optimizer

__all__ = ["Settings"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One federated training.

    Parameters
    ----------
    method : str
        See :func:`feda4fair.fl.methods.method_names`.
    options : mapping
        Options of the method.
    mitigate : str
        Sensitive attribute that the method is to be fair to; recorded for FedAvg.
    rounds : int
        Rounds, in each of which every client trains.
    epochs : int
        Passes of a client over its rows in a round.
    batch : int
        Rows of a batch.
    rate : float
        Learning rate.
    optimizer : {"sgd", "adam"}
        Without memory from one round to the next.
    seed : int
        Training seed: first weights and order of rows.
    """

    method: str
    mitigate: str
    options: Mapping[str, Option] = field(default_factory=dict)
    rounds: int = 10
    epochs: int = 1
    batch: int = 512
    rate: float = 0.01
    optimizer: Optimizer = "adam"
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be trained."""
        for name in ("rounds", "epochs", "batch"):
            if getattr(self, name) < 1:
                raise RecipeError(f"{name} {getattr(self, name)}: at least 1 is needed.")
        if not self.rate > 0:
            raise RecipeError(f"rate {self.rate}: a learning rate is above 0.")
        if self.optimizer not in OPTIMIZERS:
            raise RecipeError(f"optimizer {self.optimizer!r}: it is {' or '.join(OPTIMIZERS)}.")
        if not 0 <= self.seed < 2**32:
            raise RecipeError(f"seed {self.seed}: it lies outside 0 to 2**32 - 1.")
        open_method(self.method, self.options)

    def plain(self) -> dict[str, Any]:
        """Return the settings as JSON takes them."""
        return {**asdict(self), "options": dict(self.options)}

    def flat(self) -> dict[str, Option]:
        """Return the settings in one level, the options as ``option.NAME``.

        Examples
        --------
        >>> settings = Settings(method="puffle", mitigate="SEX", options={"weight": 0.5})
        >>> settings.flat()["option.weight"]
        0.5
        >>> Settings.from_flat(settings.flat()) == settings
        True
        """
        plain = self.plain()
        options = plain.pop("options")
        return plain | {f"option.{name}": value for name, value in options.items()}

    @classmethod
    def from_flat(cls, values: Mapping[str, Any]) -> Settings:
        """Return settings from one level; keys that are none are left aside."""
        known = {name: values[name] for name in cls.__dataclass_fields__ if name in values}
        options = {
            key.removeprefix("option."): value
            for key, value in values.items()
            if key.startswith("option.")
        }
        return cls(**{**known, "options": options})
