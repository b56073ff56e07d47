"""Ready groups of biased clients: the scenarios of the paper (section 3.2), and opposed bias."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real

from feda4fair.columns import Value
from feda4fair.errors import RecipeError
from feda4fair.recipe import BiasRule, ClientGroup, Rate
from feda4fair.schema import Schema

__all__ = ["attribute_bias", "homogeneous", "opposed", "value_bias"]

Where = Mapping[str, Value]


def homogeneous(where: Where, *, drop: Rate = 0.0, flip: Rate = 0.0) -> tuple[ClientGroup, ...]:
    """Return one group of all clients that are biased against the same group of people.

    Parameters
    ----------
    where : mapping of str to value
        Sensitive attribute and value; several entries name an intersection.
    drop, flip : float or Gaussian
        Rates of :class:`BiasRule`; a Gaussian is drawn for each client.

    Examples
    --------
    >>> homogeneous({"sex": "f"}, drop=0.4)[0].name
    'sex=f'
    """
    _check_where(where)
    return _groups([(where,)], None, drop, flip)


def value_bias(
    attribute: str,
    values: Sequence[Value],
    *,
    drop: Rate = 0.0,
    flip: Rate = 0.0,
    shares: Sequence[float] | None = None,
) -> tuple[ClientGroup, ...]:
    """Return one group of clients for each value, biased against that value of one attribute.

    Parameters
    ----------
    attribute : str
        Sensitive attribute.
    values : sequence of values
        One for each group.
    drop, flip : float or Gaussian
        Rates of :class:`BiasRule`.
    shares : sequence of float, optional
        Share of the clients in each group; equal by default. Clients beyond them have no rule.

    Examples
    --------
    >>> [group.clients for group in value_bias("race", ["Black", "Asian"], drop=0.4)]
    [0.5, 0.5]
    """
    return _groups([({attribute: value},) for value in values], shares, drop, flip)


def attribute_bias(
    targets: Mapping[str, Value],
    *,
    drop: Rate = 0.0,
    flip: Rate = 0.0,
    shares: Sequence[float] | None = None,
) -> tuple[ClientGroup, ...]:
    """Return one group of clients for each attribute, biased against one of its values.

    Parameters
    ----------
    targets : mapping of str to value
        Sensitive attributes and the value that is hit.
    drop, flip, shares
        As in :func:`value_bias`.

    Examples
    --------
    >>> [group.name for group in attribute_bias({"sex": "f", "race": "Black"}, flip=0.3)]
    ['sex=f', 'race=Black']
    """
    _check_where(targets)
    return _groups([({name: value},) for name, value in targets.items()], shares, drop, flip)


def opposed(
    schema: Schema, attribute: str, value: Value, *, drop: Rate = 0.0, flip: Rate = 0.0
) -> tuple[ClientGroup, ...]:
    """Return two halves of clients, one biased against a value, one against all others.

    The disparities of clients then cancel in the pooled data: the illusion of fairness at its
    strongest (H4 of :mod:`feda4fair.heterogeneity`).

    Parameters
    ----------
    schema : Schema
        Names the attribute's other values.
    attribute, value : str, value
        What the first half is biased against.
    drop, flip : float or Gaussian
        Rates of :class:`BiasRule`.

    Raises
    ------
    RecipeError
        If the schema does not list the attribute's values.
    """
    coding = schema[attribute].coding
    if coding is None:
        raise RecipeError(
            f"opposed: the schema does not list the values of {attribute}; give it a coding."
        )
    code = schema.code(attribute, value)
    if len(coding.names) < 2:
        raise RecipeError(f"opposed: {attribute} has one value only; nothing is opposed to it.")
    others: list[Where] = [{attribute: name} for other, name in coding.names if other != code]
    name = dict(coding.names)[code]
    first, second = _groups([({attribute: name},), others], None, drop, flip)
    return first, ClientGroup(name=f"not {first.name}", rules=second.rules, clients=second.clients)


def _check_where(where: Where) -> None:
    if not isinstance(where, Mapping):
        raise RecipeError(
            f"scenario: {where!r} names no people; give attributes and their values, such as "
            "{'sex': 'f'}."
        )


def _groups(
    targets: Sequence[Sequence[Where]],
    shares: Sequence[float] | None,
    drop: Rate,
    flip: Rate,
) -> tuple[ClientGroup, ...]:
    """Return a group for each target, which is one rule or several."""
    if not targets:
        raise RecipeError("scenario: no group of people is named; name at least one.")
    if shares is None:
        shares = [1 / len(targets)] * len(targets)
    are_numbers = all(isinstance(share, Real) for share in shares)
    if len(shares) != len(targets) or not are_numbers or sum(shares) > 1 + 1e-9:
        raise RecipeError(
            f"scenario: shares {list(shares)} do not fit {len(targets)} groups; give one for each,"
            " 1 at most in all."
        )
    return tuple(
        ClientGroup(
            name=" or ".join(rule.name for rule in rules), rules=rules, clients=float(share)
        )
        for rules, share in zip(
            (
                tuple(BiasRule(where=tuple(where.items()), drop=drop, flip=flip) for where in each)
                for each in targets
            ),
            shares,
            strict=True,
        )
    )
