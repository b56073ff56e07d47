"""Demographic disparity and equalized odds difference, from counts.

For an outcome in {0, 1} write ``rate_z = P(outcome = 1 | Z = z)``. Two definitions:

``rest`` (default; Feda4Fair eq. 2 and 3)
    ``gap_z = rate_z - rate_{not z}``, disparity ``max_z |gap_z|``. Over both outcomes of a binary
    target the maximum of eq. 2 makes the gap absolute.
``pairs`` (between groups; the figures behind the paper's Tables 3 to 6)
    ``max_z rate_z - min_z rate_z``.

Demographic disparity (DD) takes the rates over all rows. Equalized odds difference (EOD) is the
larger of the same figure among rows of label 1 (true positive rates, TPR) and among rows of
label 0 (false positive rates, FPR). Eq. 3 prints no absolute value, and with it the outcome
would also flip the conditioning set; ours takes the absolute value in both strata.

The definitions can name different values: ``gap_z = (rate_z - rate) / (1 - share_z)``, so ``rest``
inflates the gap of a majority. With two groups they agree; ``pairs >= rest`` always. A maximum of
sizes has no direction: the value that a client is biased *toward*, the disadvantaged one, is the
one with the lowest signed gap.

A rate without rows is undefined, never 0: it enters no maximum and is listed with its reason. So
is a disparity of labels when every label is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from feda4fair.codes import Code, binary, encode
from feda4fair.cube import Attribute, Cube, concatenate
from feda4fair.disparity import PARTS, Disparity, Figure, Group, Witness, disparity
from feda4fair.errors import MeasureError
from feda4fair.rates import Against, Metric, Outcome, Rates, rates

__all__ = [
    "Against",
    "Attribute",
    "Cube",
    "Disparity",
    "Figure",
    "Group",
    "Metric",
    "Outcome",
    "Rates",
    "Witness",
    "concatenate",
    "demographic_disparity",
    "disparities",
    "disparity",
    "equalized_odds_difference",
    "rates",
]


def disparities(
    cube: Cube,
    figure: Figure = "DD",
    *,
    attribute: str | Sequence[str],
    against: Against = "rest",
) -> dict[str, Disparity]:
    """Return one figure of every client, with what attains it and the counts behind it.

    Parameters
    ----------
    cube : Cube
        Counts of all clients.
    figure : {"DD", "EOD"}
        EOD needs predictions; DD takes predictions where there are some, else labels.
    attribute : str or sequence of str
        A sensitive attribute, or several to intersect.
    against : {"rest", "pairs"}
        Definition.

    Returns
    -------
    dict of str to Disparity
        By client name.

    Examples
    --------
    >>> cube = Cube.count(
    ...     clients=np.zeros(4, dtype=int),
    ...     client_names=["WY"],
    ...     attributes={"SEX": (np.array([1, 1, 2, 2]), {1: "male", 2: "female"})},
    ...     y_true=np.array([1, 1, 0, 1]),
    ... )
    >>> print(disparities(cube, attribute="SEX")["WY"])
    DD of SEX (labels, rest): 0.5000 [male +0.5000, female -0.5000]
    """
    names = (attribute,) if isinstance(attribute, str) else tuple(attribute)
    part = cube.on(*names)
    parts = tuple(rates(part, metric) for metric in PARTS[figure])
    return {
        client: disparity(figure, parts, row, against) for row, client in enumerate(cube.clients)
    }


def demographic_disparity(
    y_true: ArrayLike | None,
    y_pred: ArrayLike | None = None,
    *,
    sensitive_features: Any,
    against: Against = "rest",
    pos_label: Code | None = None,
) -> Disparity:
    r"""Return the demographic disparity of predictions, or of labels when there are none.

    .. math:: DD = \max_z |P(\hat Y = 1 | Z = z) - P(\hat Y = 1 | Z \ne z)|

    under ``rest``, and :math:`\max_z P(\hat Y = 1 | Z = z) - \min_z P(\hat Y = 1 | Z = z)` under
    ``pairs``.

    Parameters
    ----------
    y_true : array-like, shape (n,), or None
        Labels; used only when there are no predictions, but of the same length.
    y_pred : array-like, shape (n,), optional
        Hard predictions.
    sensitive_features : array-like, shape (n,), data frame or mapping of columns
        Group of each row; several columns are intersected. A categorical column declares its
        values, so one without a row is listed too.
    against : {"rest", "pairs"}
        Definition.
    pos_label : scalar, optional
        The favorable label; needed unless labels are bool or 0 and 1.

    Returns
    -------
    Disparity
        ``float()`` of it is the figure.

    Raises
    ------
    MeasureError
        For unequal lengths, labels that are not binary, missing sensitive values, no row at all,
        or an intersection of too many cells.

    References
    ----------
    Feda4Fair, section 2.2, eq. 2. Barocas, Hardt and Narayanan (2017), Fairness in machine
    learning.

    Examples
    --------
    >>> groups = ["A"] * 100 + ["B"] * 10 + ["C"] * 10
    >>> labels = [1] * 50 + [0] * 50 + [1] * 2 + [0] * 8 + [1] * 8 + [0] * 2
    >>> found = demographic_disparity(labels, sensitive_features=groups)
    >>> round(float(found), 6), [(w.value, round(w.gap, 6)) for w in found.attained]
    (0.327273, [('B', -0.327273), ('C', 0.327273)])
    >>> round(float(demographic_disparity(labels, sensitive_features=groups, against="pairs")), 6)
    0.6
    """
    if y_true is None and y_pred is None:
        raise MeasureError("demographic disparity needs labels or predictions; got neither.")
    if y_true is not None and y_pred is not None and np.shape(y_true) != np.shape(y_pred):
        raise MeasureError(
            f"y_true has shape {np.shape(y_true)} and y_pred {np.shape(y_pred)}; give one "
            "prediction for each row."
        )
    outcome = y_true if y_pred is None else y_pred
    predictions = None if y_pred is None else outcome
    cube = _count(outcome, predictions, sensitive_features, pos_label)
    return disparity("DD", (rates(cube, "DD"),), 0, against)


def equalized_odds_difference(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    against: Against = "rest",
    pos_label: Code | None = None,
) -> Disparity:
    r"""Return the equalized odds difference.

    .. math::
        EOD = \max_{y \in \{0, 1\}} \max_z
              |P(\hat Y = 1 | Y = y, Z = z) - P(\hat Y = 1 | Y = y, Z \ne z)|

    under ``rest``; under ``pairs`` the larger of the ranges of the true and of the false positive
    rates over the groups (Fairlearn's ``agg="worst_case"``).

    Parameters
    ----------
    y_true, y_pred : array-like, shape (n,)
        Labels and hard predictions.
    sensitive_features, against, pos_label
        As in :func:`demographic_disparity`.

    Returns
    -------
    Disparity
        Each witness names the stratum, TPR (label 1) or FPR (label 0), that attains it.

    Raises
    ------
    MeasureError
        As :func:`demographic_disparity`.

    References
    ----------
    Feda4Fair, section 2.2, eq. 3. Hardt, Price and Srebro (2016), Equality of opportunity in
    supervised learning.

    Examples
    --------
    >>> print(
    ...     equalized_odds_difference(
    ...         [1, 1, 0, 0, 1, 1], [1, 1, 1, 0, 0, 1], sensitive_features=list("aaaabb")
    ...     )
    ... )
    EOD of sensitive_feature (predictions, rest): 0.5000 [TPR a +0.5000, TPR b -0.5000]
    """
    cube = _count(y_true, y_pred, sensitive_features, pos_label)
    return disparity("EOD", (rates(cube, "TPR"), rates(cube, "FPR")), 0, against)


def _count(
    y_true: ArrayLike | None, y_pred: ArrayLike | None, features: Any, pos_label: Code | None
) -> Cube:
    """Count arrays of one client, the sensitive columns crossed."""
    truth = binary(y_true if y_true is not None else [], "y_true", pos_label)
    if not len(truth):
        raise MeasureError("got no row; a disparity needs at least one row in each of two groups.")
    columns = {name: encode(column, name) for name, column in _columns(features).items()}
    cube = Cube.count(
        clients=np.zeros(len(truth), dtype=np.int64),
        client_names=["all"],
        attributes={
            name: (codes, {position: str(value) for position, value in enumerate(values)})
            for name, (codes, values) in columns.items()
        },
        y_true=truth,
        y_pred=None if y_pred is None else binary(y_pred, "y_pred", pos_label),
    )
    return cube.on(*columns)


def _columns(features: Any) -> dict[str, Any]:
    if isinstance(features, Mapping):
        return {str(name): column for name, column in features.items()}
    names = getattr(features, "column_names", None) or getattr(features, "columns", None)
    if names is not None:
        return {str(name): features[name] for name in names}
    if np.ndim(features) == 2:
        matrix = np.asarray(features)
        return {f"sensitive_feature_{i}": matrix[:, i] for i in range(matrix.shape[1])}
    return {str(getattr(features, "name", None) or "sensitive_feature"): features}
