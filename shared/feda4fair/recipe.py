"""The whole scientific choice of a federation as frozen data, with an exact JSON round trip."""

from __future__ import annotations

import json
import math
import re
import typing
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from feda4fair.columns import Value
from feda4fair.errors import RecipeError, SchemaError
from feda4fair.partition import Dirichlet, LogNormal, Partition, PowerLaw, Shards, Subdivide
from feda4fair.schema import Schema
from feda4fair.typed import check_fields, to_plain, typed

__all__ = [
    "BiasRule",
    "ClientGroup",
    "ClientSplit",
    "Control",
    "Gaussian",
    "Rate",
    "Recipe",
    "RowSplit",
    "Split",
    "homogeneous_rule",
]

FORMAT = 1
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}", re.ASCII)

DEVICES = frozenset({"con", "prn", "aux", "nul"})
"""Names that some systems keep for devices, whatever follows after a point."""

Control = Literal["", "none", "homogeneous"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaussian:
    """A rate drawn once for each client, clipped to [0, 1].

    ``std`` is a standard deviation; the paper (section 3.2) calls it variance but uses it so.
    """

    mean: float
    std: float

    def __post_init__(self) -> None:
        check_fields(self)
        if not (0 <= self.mean <= 1 and 0 <= self.std < math.inf):
            raise RecipeError(
                f"Gaussian(mean={self.mean}, std={self.std}): the mean must lie in [0, 1] and the "
                "standard deviation must be finite and not negative."
            )


Rate = float | Gaussian


@dataclass(frozen=True, slots=True, kw_only=True)
class BiasRule:
    """Drop and flip rows of one group that carry one label (paper section 3.2).

    Parameters
    ----------
    where : mapping or tuple of (str, int or str)
        Sensitive attribute and value (its name or code); two entries name an intersection.
    label : int, default 1
        Label of the rows that are eligible; 1 is the favorable outcome.
    drop, flip : float or Gaussian, in [0, 1]
        Share of the eligible rows that is removed, and share of those left whose label is
        changed. Counts are exact: ``int(n * rate)``.

    Raises
    ------
    RecipeError
        If a rate lies outside [0, 1], no attribute is named, or the label is not 0 or 1.
    """

    where: tuple[tuple[str, Value], ...]
    label: int = 1
    drop: Rate = 0.0
    flip: Rate = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.where, Mapping):
            object.__setattr__(self, "where", tuple(self.where.items()))
        if isinstance(self.label, bool):
            object.__setattr__(self, "label", int(self.label))
        check_fields(self)
        if not self.where:
            raise RecipeError("rule: no attribute is named in where; name at least one.")
        if self.label not in (0, 1):
            raise RecipeError(
                f"rule {self.name}: label {self.label!r} is not 0 (unfavorable) or 1 (favorable)."
            )
        for operation, rate in (("drop", self.drop), ("flip", self.flip)):
            if isinstance(rate, Gaussian):
                continue
            if not 0 <= rate <= 1:
                raise RecipeError(
                    f"rule {self.name}: {operation} rate {rate} lies outside [0, 1]."
                )

    @property
    def name(self) -> str:
        """The group that the rule names, e.g. ``SEX=Female & RAC1P=Black``."""
        return " & ".join(f"{attribute}={value}" for attribute, value in self.where)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientGroup:
    """Clients that share the same rules.

    ``clients`` are client names; or a share in (0, 1], taken in client order after the shares
    of the groups before; or None for all clients.
    """

    name: str
    rules: tuple[BiasRule, ...]
    clients: tuple[str, ...] | float | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if isinstance(self.clients, float) and not 0 < self.clients <= 1:
            raise RecipeError(f"group {self.name}: share {self.clients} lies outside (0, 1].")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSplit:
    """Split the rows of every client into train, validation and test.

    ``stratify`` names attributes (or ``label``) whose joint values get equal shares.
    """

    validation: float = 0.1
    test: float = 0.2
    stratify: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self)
        shares = (self.validation, self.test)
        if not (all(0 <= share < 1 for share in shares) and sum(shares) < 1):
            raise RecipeError(
                f"RowSplit(validation={self.validation}, test={self.test}): both shares must be "
                "at least 0 and leave rows for train."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSplit:
    """Split by client: the named clients are test, all others train.

    ``folds`` is the number of cross-validation folds of clients (0: none); pieces of one client
    never sit on both sides.
    """

    test: tuple[str, ...]
    folds: int = 5

    def __post_init__(self) -> None:
        check_fields(self)
        if self.folds < 0:
            raise RecipeError(f"ClientSplit(folds={self.folds}): 0 or more folds are needed.")


Split = RowSplit | ClientSplit


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Everything that decides which rows a federation holds.

    Parameters
    ----------
    dataset : str
        Short name of the source, e.g. ``acs``.
    name : str
        Config name; letters, digits, ``.``, ``_`` and ``-``.
    schema : Schema
        Columns, codes and the favorable label.
    partition : Natural, Iid, Dirichlet, Shards or Assigned
        How rows become clients; see :mod:`feda4fair.partition`.
    groups : tuple of ClientGroup
        Which clients get which bias rules; a client may be in one group only.
    subdivide : Subdivide or None
        Cut clients into smaller ones after injection.
    keep : tuple of str or None
        Clients that stay; None keeps all.
    select : tuple of (str, tuple of values)
        Rows whose column holds one of the named values stay; others are left out at the start.
    split : RowSplit or ClientSplit
        How rows or clients become train, validation and test.
    seed : int
        Seed of every draw.
    sampler : {"keyed", "released"}
        "keyed" draws from streams keyed by names. "released" replays the legacy NumPy streams
        (``RandomState(seed)`` for each rule, ``default_rng(seed).permutation`` for each client).
    control : {"", "none", "homogeneous"}
        "none": same rows, clients and splits without injection. "homogeneous": every client
        gets one and the same rule instead of its own.
    description : str
        One sentence for people.
    """

    dataset: str
    name: str
    schema: Schema
    partition: Partition
    groups: tuple[ClientGroup, ...] = ()
    subdivide: Subdivide | None = None
    keep: tuple[str, ...] | None = None
    select: tuple[tuple[str, tuple[Value, ...]], ...] = ()
    split: Split = field(default_factory=RowSplit)
    seed: int = 42
    sampler: Literal["keyed", "released"] = "keyed"
    control: Control = ""
    description: str = ""

    def __post_init__(self) -> None:
        check_fields(self)
        for what, name in (("dataset", self.dataset), ("config", self.name)):
            if not NAME.fullmatch(name) or name.partition(".")[0].lower() in DEVICES:
                raise RecipeError(
                    f"{what} name {name!r}: use 1 to 96 letters, digits, '.', '_' and '-', "
                    "beginning with a letter or digit, and no name of a device, such as con."
                )
        try:
            json.dumps(to_plain(self, TAGGED), ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise RecipeError(
                f"{self}: a name or description holds half of a character; write it again."
            ) from None
        if not 0 <= self.seed < 2**32:
            raise RecipeError(f"{self}: seed {self.seed} lies outside 0 to 2**32 - 1.")
        problems = dict.fromkeys([*self._rule_problems(), *self._client_problems()])
        if problems:
            raise RecipeError(f"{self}: " + " Also: ".join(problems))

    def __str__(self) -> str:
        return f"{self.dataset}/{self.name}"

    @property
    def rules(self) -> tuple[BiasRule, ...]:
        """All rules of all groups, in order."""
        return tuple(rule for group in self.groups for rule in group.rules)

    def parent(self, client: str) -> str:
        """Return the client before subdivision, e.g. ``TX`` for ``TX_0``."""
        return client if self.subdivide is None else client.rpartition("_")[0]

    def _rule_problems(self) -> list[str]:
        problems = []
        for rule in self.rules:
            for attribute, value in rule.where:
                try:
                    column = self.schema[attribute]
                    self.schema.code(attribute, value)
                except SchemaError as error:
                    problems.append(f"rule {error}")
                    continue
                if column.role != "sensitive":
                    problems.append(
                        f"rule {rule.name}: {attribute} is not a sensitive attribute; those are "
                        f"{', '.join(self.schema.sensitive)}."
                    )
        return problems

    def _client_problems(self) -> list[str]:
        problems = []
        named = [c for g in self.groups if isinstance(g.clients, tuple) for c in g.clients]
        twice = sorted(client for client, count in Counter(named).items() if count > 1)
        if twice:
            problems.append(f"client {', '.join(twice)} is in two groups; a client has one.")
        if self.keep is not None and isinstance(self.split, ClientSplit):
            foreign = sorted(set(self.split.test) - set(self.keep))
            if foreign:
                problems.append(f"test client {', '.join(foreign)} is not among the kept ones.")
        if self.sampler == "released" and self.subdivide and self.subdivide.parts is None:
            problems.append(
                "the released procedure cuts clients into parts; name parts, not rows."
            )
        if self.keep is not None and self.subdivide is not None:
            foreign = [c for c in self.keep if not self.subdivide.may_be(c.rpartition("_")[2])]
            if foreign:
                problems.append(
                    f"kept client {', '.join(foreign)} is no piece; pieces are named "
                    "<client>_0, <client>_1 and so on."
                )
        by = self.partition.by if isinstance(self.partition, Dirichlet | Shards) else ()
        stratify = self.split.stratify if isinstance(self.split, RowSplit) else ()
        for what, names in (("partition by", by), ("stratify", stratify)):
            foreign = sorted(set(names) - {"label", *self.schema.sensitive})
            if foreign:
                problems.append(
                    f"{what} names {', '.join(foreign)}, which is neither label nor a sensitive "
                    f"attribute ({', '.join(self.schema.sensitive)})."
                )
        return problems

    def with_control(self, control: Control) -> Recipe:
        """Return the same recipe as an unbiased or homogeneous counterpart.

        Raises
        ------
        RecipeError
            If there is no such control.
        """
        if control not in typing.get_args(Control):
            raise RecipeError(f"control {control!r}: it is 'none' or 'homogeneous'.")
        return replace(self, control=control)

    def to_json(self) -> str:
        """Return the recipe as JSON text; ``from_json`` gives an equal recipe back."""
        return json.dumps({"format": FORMAT, "recipe": to_plain(self, TAGGED)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str | Path) -> Recipe:
        """Read a recipe from JSON text or a file; data only, nothing in it is executed.

        Raises
        ------
        RecipeError
            If the text is not JSON, is of another format, or a field is unknown or invalid.
        """
        where = str(text) if isinstance(text, Path) else "recipe"
        try:
            data = json.loads(text.read_text("utf-8-sig") if isinstance(text, Path) else text)
        except (ValueError, OSError, RecursionError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise RecipeError(f"{where}: not readable as JSON ({reason}).") from None
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            found = data.get("format") if isinstance(data, dict) else type(data).__name__
            raise RecipeError(
                f"{where}: format {found!r} where {FORMAT} is expected; write recipes with "
                "Recipe.to_json."
            )
        try:
            recipe: Recipe = typed(cls, data.get("recipe"), where)
        except SchemaError as error:
            raise RecipeError(f"{where}: {error}") from None
        return recipe


def homogeneous_rule(recipe: Recipe) -> BiasRule:
    """Return the one rule that every client of a homogeneous control gets (paper section 3.2).

    It names the group that most clients' rules name (the first one on a tie), with the mean of
    those rules' drop and flip rates.
    """
    if not recipe.rules:
        raise RecipeError(f"{recipe}: a recipe without rules has no homogeneous counterpart.")
    weight: dict[tuple[tuple[tuple[str, Value], ...], int], float] = {}
    for group in recipe.groups:
        size = len(group.clients) if isinstance(group.clients, tuple) else group.clients or 1.0
        for rule in group.rules:
            key = (rule.where, rule.label)
            weight[key] = weight.get(key, 0.0) + size
    target = max(weight, key=lambda key: weight[key])
    rules = [rule for rule in recipe.rules if (rule.where, rule.label) == target]

    def mean(rates: list[Rate]) -> float:
        centers = [rate.mean if isinstance(rate, Gaussian) else rate for rate in rates]
        return round(sum(centers) / len(centers), 6)

    return BiasRule(
        where=target[0],
        label=target[1],
        drop=mean([rule.drop for rule in rules]),
        flip=mean([rule.flip for rule in rules]),
    )


TAGGED: frozenset[type] = frozenset(typing.get_args(Partition | Split | PowerLaw | LogNormal))
"""Classes that share a field; their name is written beside their values."""
