"""feda4fair: federated datasets whose clients carry known, conflicting bias.

Examples
--------
>>> import feda4fair
>>> rule = feda4fair.BiasRule(where={"SEX": "Female"}, drop=0.4)
>>> rule.name
'SEX=Female'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from feda4fair.bias import LedgerEntry
from feda4fair.columns import Coding, Column, Label
from feda4fair.dataset import Dataset
from feda4fair.errors import Feda4FairError
from feda4fair.federation import Client, Federation
from feda4fair.partition import (
    Assigned,
    Dirichlet,
    Iid,
    LogNormal,
    Natural,
    PowerLaw,
    Shards,
    Subdivide,
)
from feda4fair.recipe import (
    BiasRule,
    ClientGroup,
    ClientSplit,
    Gaussian,
    Recipe,
    RowSplit,
)
from feda4fair.schema import Schema
from feda4fair.steps import federate_table

if TYPE_CHECKING:
    from feda4fair.client import load_client
    from feda4fair.export import to_csv, to_datasets, to_pandas
    from feda4fair.measurement import measure
    from feda4fair.own import federate, write
    from feda4fair.report import FairnessReport

__version__ = "0.1.0"

LATER = {
    "FairnessReport": "report",
    "federate": "own",
    "load_client": "client",
    "measure": "measurement",
    "to_csv": "export",
    "to_datasets": "export",
    "to_pandas": "export",
    "write": "own",
}
"""Names whose modules load slowly (pandas, scipy) and are imported when they are asked for."""

__all__ = [
    "Assigned",
    "BiasRule",
    "Client",
    "ClientGroup",
    "ClientSplit",
    "Coding",
    "Column",
    "Dataset",
    "Dirichlet",
    "FairnessReport",
    "Feda4FairError",
    "Federation",
    "Gaussian",
    "Iid",
    "Label",
    "LedgerEntry",
    "LogNormal",
    "Natural",
    "PowerLaw",
    "Recipe",
    "RowSplit",
    "Schema",
    "Shards",
    "Subdivide",
    "federate",
    "federate_table",
    "load_client",
    "measure",
    "to_csv",
    "to_datasets",
    "to_pandas",
    "write",
]


def __getattr__(name: str) -> Any:
    if name in LATER:
        return getattr(import_module(f"feda4fair.{LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
