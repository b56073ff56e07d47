"""What can go wrong, named.

Every message is one sentence: what, where, got and expected, what to do.
"""

from __future__ import annotations

__all__ = [
    "Feda4FairError",
    "MeasureError",
    "MissingExtraError",
    "OutputError",
    "PublishError",
    "RecipeError",
    "SchemaError",
    "SourceError",
]


class Feda4FairError(Exception):
    """Root of every error that this library raises on purpose."""


class SourceError(Feda4FairError):
    """A source file is missing, damaged, or not what its dataset expects."""


class SchemaError(Feda4FairError, ValueError):
    """A table does not fit its schema, or the schema does not fit itself."""


class RecipeError(Feda4FairError, ValueError):
    """A recipe contradicts itself, its schema, or its clients."""


class MeasureError(Feda4FairError, ValueError):
    """A fairness figure was asked of data that cannot give it."""


class OutputError(Feda4FairError):
    """An output folder cannot be written, or holds something else."""


class PublishError(Feda4FairError):
    """The Hub refused, or a release would break a rule."""


class MissingExtraError(Feda4FairError, ImportError):
    """An optional dependency is not installed; the message names the extra."""
