"""The form of CelebA that may be published: which image is in which client and split.

It holds nothing else of the source: no attribute, no label, no pixel. The rows that injection
removed are not in it either, since the rule that removed an image tells its attributes.
"""

from __future__ import annotations

import json
from typing import Final

import pyarrow as pa

from feda4fair.dataset import Index
from feda4fair.federation import Federation
from feda4fair.split import SPLITS

__all__ = ["INDEX", "INDEX_SCHEMA", "full_sha256", "index_rows"]

INDEX_COLUMNS: Final = ("client_id", "image_id", "split")

FEATURES: Final = {name: {"dtype": "string", "_type": "Value"} for name in INDEX_COLUMNS}

INDEX_SCHEMA: Final = pa.schema(
    [pa.field(name, pa.string()) for name in INDEX_COLUMNS],
    metadata={"huggingface": json.dumps({"info": {"features": FEATURES}})},
)
"""Columns of the index with the features entry that the Hub reads."""


def index_rows(table: pa.Table, split: str) -> pa.Table:
    """Return the index of the rows of one client and split.

    Parameters
    ----------
    table : pyarrow.Table, n rows
        Rows with ``client_id`` and ``image_id``.
    split : str
        Their split.

    Returns
    -------
    pyarrow.Table, n rows
        ``client_id``, ``image_id`` and ``split``, of `INDEX_SCHEMA`.

    Examples
    --------
    >>> rows = pa.table({"client_id": ["c00"], "image_id": ["000001.jpg"], "Male": [1]})
    >>> index_rows(rows, "train").to_pylist()
    [{'client_id': 'c00', 'image_id': '000001.jpg', 'split': 'train'}]
    """
    splits = pa.repeat(pa.scalar(split), table.num_rows)
    columns = [table["client_id"], table["image_id"], splits]
    return pa.table(columns, names=list(INDEX_COLUMNS)).cast(INDEX_SCHEMA)


def full_sha256(federation: Federation) -> str:
    """Return the content hash of the full rows, without image bytes.

    It equals ``content_sha256`` of the config in the manifest of a build with ``--images none``,
    and is what the manifest of the index form holds, so that rebuilt rows can be proven.
    """
    from feda4fair.parquet import (  # here, since the writer loads pandas and scipy
        ContentDigest,
        arrow_schema,
        complete,
    )

    schema = arrow_schema(federation.recipe.schema)
    digest = ContentDigest()
    for client in federation.clients:
        for split in SPLITS:
            rows = federation.client(client.name, split)
            if rows.num_rows:
                digest.feed(client.name, split, complete(rows, schema, lambda plain: plain))
    return digest.hexdigest()


INDEX: Final = Index(features=FEATURES, schema=INDEX_SCHEMA, rows=index_rows)
