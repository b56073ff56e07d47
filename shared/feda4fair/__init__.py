"""feda4fair: federated datasets whose clients carry known, conflicting bias.

Examples
--------
>>> import feda4fair
>>> rule = feda4fair.BiasRule(where={"SEX": "Female"}, drop=0.4)
>>> rule.name
'SEX=Female'
"""

from __future__ import annotations

from feda4fair.bias import LedgerEntry
from feda4fair.dataset import Dataset
from feda4fair.errors import Feda4FairError
from feda4fair.federate import federate_table
from feda4fair.federation import Client, Federation
from feda4fair.recipe import (
    BiasRule,
    ClientGroup,
    ClientSplit,
    Gaussian,
    Iid,
    Natural,
    Recipe,
    RowSplit,
    Subdivide,
)
from feda4fair.schema import Coding, Column, Label, Schema

__version__ = "0.1.0"

__all__ = [
    "BiasRule",
    "Client",
    "ClientGroup",
    "ClientSplit",
    "Coding",
    "Column",
    "Dataset",
    "Feda4FairError",
    "Federation",
    "Gaussian",
    "Iid",
    "Label",
    "LedgerEntry",
    "Natural",
    "Recipe",
    "RowSplit",
    "Schema",
    "Subdivide",
    "federate_table",
]
