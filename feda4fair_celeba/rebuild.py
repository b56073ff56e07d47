"""Rebuild the full CelebA rows of a published index from the user's own copy, and prove them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import datasets
import pyarrow as pa
import pyarrow.compute as pc
from huggingface_hub import hf_hub_download

from feda4fair.errors import SourceError
from feda4fair.federation import Federation
from feda4fair.manifest import MANIFEST, Manifest, read_manifest
from feda4fair.parquet import arrow_schema, hub_features
from feda4fair.split import SPLITS
from feda4fair.steps import federate_table
from feda4fair_celeba import DATASET
from feda4fair_celeba.annotations import sentence
from feda4fair_celeba.images import IMAGE_TYPE, Images
from feda4fair_celeba.index import full_sha256
from feda4fair_celeba.source import open_source

__all__ = ["join"]

Loaded: TypeAlias = "datasets.DatasetDict | datasets.Dataset"


def join(
    dataset: Loaded | str | os.PathLike[str],
    root: str | os.PathLike[str],
    *,
    config: str = "",
    manifest: Manifest | str | os.PathLike[str] | None = None,
) -> datasets.DatasetDict:
    """Return the full rows of an index, rebuilt from the user's own copy of CelebA.

    The recipe of the config is run again on the user's files. The result must give the index
    image by image, and its content hash must be the one in the manifest.

    Parameters
    ----------
    dataset : DatasetDict, Dataset, path or str
        The index: loaded from the Hub, or a built folder, or a Hub repository.
    root : path
        Folder with ``list_attr_celeba.txt``, ``list_eval_partition.txt`` and, if there are to be
        images, ``img_align_celeba`` or its zip.
    config : str
        Config of the index; a loaded one knows its own.
    manifest : dict, path or str, optional
        The manifest, or the folder or Hub repository that holds it; by default that of
        ``dataset``, where it is a folder or repository.

    Returns
    -------
    datasets.DatasetDict
        All columns of the full form, each split in client order. Images are not copied: their
        column points to the user's files.

    Raises
    ------
    SourceError
        The user's files differ from those that the index was made of, or nothing is known to
        prove the rows by.
    RecipeError
        If there is no such config.
    """
    if isinstance(dataset, str | os.PathLike):
        name = DATASET.recipe(config).name
        manifest = dataset if manifest is None else manifest
        index: Loaded = datasets.load_dataset(os.fspath(dataset), name)
    else:
        index = dataset
    parts = index if isinstance(index, datasets.DatasetDict) else {str(index.split): index}
    name = config or next(iter(parts.values())).info.config_name
    recipe = DATASET.recipe(name)
    expected = _expected_sha256(manifest, name)
    source = open_source(root)
    federation = federate_table(source.read(), recipe)
    for split, rows in parts.items():
        _check_index(name, split, rows, _rows_of(federation, split))
    found = full_sha256(federation)
    if found != expected:
        raise SourceError(
            f"{root}: celeba/{name} rebuilt from it has content {found[:12]}, the manifest says "
            f"{expected[:12]}: use the original list_attr_celeba.txt and list_eval_partition.txt, "
            "and the version of feda4fair that made the index."
        )
    return datasets.DatasetDict(
        {split: _as_dataset(federation, split, source.images) for split in parts}
    )


def _expected_sha256(manifest: Manifest | str | os.PathLike[str] | None, config: str) -> str:
    if manifest is None:
        raise SourceError(
            "join: a loaded dataset does not tell its content hash: pass "
            'manifest="ORG/NAME", its repository, or the folder it was built in.'
        )
    if not isinstance(manifest, Mapping):
        place = Path(manifest)
        if not place.exists():
            place = Path(hf_hub_download(os.fspath(manifest), MANIFEST, repo_type="dataset"))
        manifest = read_manifest(place if place.is_dir() else place.parent)
    if manifest["dataset"] != DATASET.name or config not in manifest["configs"]:
        raise SourceError(
            f"join: the manifest describes {manifest['dataset']} with "
            f"{', '.join(manifest['configs'])}, expected celeba with {config}: pass the manifest "
            "of the index."
        )
    return str(manifest["configs"][config]["content_sha256"])


def _rows_of(federation: Federation, split: str) -> pa.Table:
    if split not in SPLITS:
        raise SourceError(f"join: the index has a split {split!r}, expected {', '.join(SPLITS)}.")
    return federation.table.filter(pa.array(federation.split == SPLITS.index(split)))


def _check_index(config: str, split: str, index: datasets.Dataset, rows: pa.Table) -> None:
    """Make sure that the index names the same images, each in the same client."""
    given = index.with_format("arrow")[:]
    missing = {"client_id", "image_id"} - set(given.column_names)
    if missing:
        raise SourceError(
            f"join: split {split} has no column {', '.join(sorted(missing))}: pass an index of "
            "CelebA."
        )
    pairs = [
        set(
            pc.binary_join_element_wise(
                table["image_id"].cast(pa.string()), table["client_id"].cast(pa.string()), " in "
            ).to_pylist()
        )
        for table in (given, rows)
    ]
    if pairs[0] != pairs[1] or given.num_rows != rows.num_rows:
        raise SourceError(
            f"celeba/{config}, split {split}: the index and the rebuilt rows differ "
            f"({sentence(pairs[0] - pairs[1], 'only in the index', 'none only in the index')}; "
            f"{sentence(pairs[1] - pairs[0], 'only rebuilt', 'none only rebuilt')}): use the "
            "original files of CelebA and the version of feda4fair that made the index."
        )


def _as_dataset(federation: Federation, split: str, images: Images | None) -> datasets.Dataset:
    schema = federation.recipe.schema
    rows = _rows_of(federation, split).cast(arrow_schema(schema).remove_metadata())
    features: dict[str, Any] = hub_features(schema)
    if images is not None:
        ids = rows["image_id"].to_pylist()
        paths = pa.array([images.locate(image_id) for image_id in ids], pa.string())
        nothing = pa.nulls(len(ids), pa.binary())
        column = pa.StructArray.from_arrays([nothing, paths], fields=list(IMAGE_TYPE))
        position = rows.column_names.index("image_id") + 1
        rows = rows.add_column(position, "image", column)
        items = list(features.items())
        features = dict([*items[:position], ("image", {"_type": "Image"}), *items[position:]])
    info = datasets.DatasetInfo(
        features=datasets.Features.from_dict(features), config_name=federation.recipe.name
    )
    return datasets.Dataset(rows, info=info, split=datasets.NamedSplit(split))
