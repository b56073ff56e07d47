"""Whether a release is what it says: hashes, rows, counts, statistics and card, recomputed.

Nothing is taken from the manifest that the rows themselves can tell.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from jinja2 import TemplateError

from feda4fair.card import render_pages
from feda4fair.client import row_groups
from feda4fair.errors import Feda4FairError, OutputError, PublishError
from feda4fair.facts import read_facts
from feda4fair.federation import Federation
from feda4fair.manifest import (
    MANIFEST,
    Manifest,
    file_sha256,
    read_manifest,
    written_columns,
)
from feda4fair.measurement import contenders, count_labels
from feda4fair.merge import merge_card
from feda4fair.parquet import STAGE, ContentDigest
from feda4fair.readback import read_federation, recipe_sha256
from feda4fair.recipe import Recipe
from feda4fair.release import CARD, damage, is_safe_path
from feda4fair.report import measure_cube

__all__ = ["Verification", "compare_folders", "downloaded", "verify"]

ATTRIBUTES = ".gitattributes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What was checked and what differs.

    Attributes
    ----------
    name : str
        What was checked, in words.
    checked : tuple of str
        A phrase for each check that held.
    differences : tuple of str
        A phrase for each thing that differs, naming it.
    """

    name: str
    checked: tuple[str, ...]
    differences: tuple[str, ...]

    def __str__(self) -> str:
        """Return one line for each check."""
        lines = [self.name, *(f"  ok       {text}" for text in self.checked)]
        return "\n".join([*lines, *(f"  DIFFERS  {text}" for text in self.differences)])


def verify(folder: Path, *, hub: bool = False) -> Verification:
    """Check a built folder against itself.

    Parameters
    ----------
    folder : Path
        A folder that ``build.py`` wrote, or the copy of a repository.
    hub : bool, default False
        It is a copy of a repository, whose card may hold text written there and where the Hub
        keeps a file of its own.

    Raises
    ------
    OutputError
        If the folder holds no manifest, or one that is not ours.
    """
    manifest = read_manifest(folder)
    checked: list[str] = []
    differences: list[str] = []
    try:
        found = _file_differences(folder, manifest, hub=hub)
        differences += found
        if not found:
            checked.append(f"{len(manifest['files'])} files: size and SHA-256")
        for name in manifest["configs"]:
            if not is_safe_path(name):
                differences.append(f"config {name!r} has a name that no config has")
                continue
            good, bad = _verify_config(folder, manifest, name)
            checked += good
            differences += bad
        differences += _page_differences(folder, manifest, checked)
    except (KeyError, TypeError, AttributeError) as error:
        raise OutputError(
            f"{folder / MANIFEST}: lacks or garbles {error}; build the folder again."
        ) from None
    forms = sorted({config["form"] for config in manifest["configs"].values()})
    name = f"{manifest['dataset']} {manifest['version']}, {' and '.join(forms)} form"
    return Verification(name=name, checked=tuple(checked), differences=tuple(differences))


def _file_differences(folder: Path, manifest: Manifest, *, hub: bool) -> list[str]:
    found = damage(folder, manifest)
    if not hub:
        return found
    # The Hub's own file, a card with hand-written parts, and files that people added there.
    return [
        text
        for text in found
        if text.split(" ")[0] not in (ATTRIBUTES, CARD) and "is not in the manifest" not in text
    ]


def _page_differences(folder: Path, manifest: Manifest, checked: list[str]) -> Iterator[str]:
    """Render the pages anew from the folder; what was generated of them must be the same."""
    written, own = manifest["versions"]["feda4fair"], version("feda4fair")
    if written != own:
        checked.append(f"pages: by their hashes, as feda4fair {written} wrote them and not {own}")
        return
    try:
        facts = read_facts(folder, manifest)
        pages = render_pages(facts)
        pages.pop(ATTRIBUTES)
        texts = {name: (folder / name).read_text("utf-8") for name in pages}
        pages[CARD] = merge_card(texts[CARD], pages[CARD])
    except (
        OSError,
        ValueError,
        LookupError,
        TemplateError,
        Feda4FairError,
        pa.ArrowException,
    ) as error:
        yield f"the card cannot be rendered anew ({error})"
        return
    for name, text in texts.items():
        if text == pages[name]:
            checked.append(f"{name}: what was generated of it is what the folder gives")
        else:
            yield f"{name} {_first_difference(text, pages[name])}"


def _first_difference(text: str, again: str) -> str:
    lines = zip_longest(text.splitlines(), again.splitlines(), fillvalue="")
    for number, (old, new) in enumerate(lines, 1):
        if old != new:
            return f"line {number}: {old[:60]!r} where the folder gives {new[:60]!r}"
    return "has other line ends than the folder gives"


def _verify_config(folder: Path, manifest: Manifest, name: str) -> tuple[list[str], list[str]]:
    """Return what holds and what differs in one config; damage to a file is a difference."""
    facts, pyarrow = manifest["configs"][name], manifest["versions"]["pyarrow"]
    good: list[str] = []
    bad: list[str] = []
    steps: list[tuple[str, Callable[[], Iterator[str]]]] = [
        ("recipe", lambda: _recipe(folder, name, facts)),
        ("counts of clients and rows", lambda: _counts(folder, name, facts, pyarrow)),
    ]
    if facts["form"] == "index":
        good.append(f"{name}: index form, so labels and content are left to --rebuild")
    else:
        steps += [
            ("content hash and labels", lambda: _content(folder, name, facts)),
            ("content hash of dropped rows", lambda: _dropped(folder, name, facts)),
            ("statistics, recomputed from the rows", lambda: _statistics(folder, name)),
        ]
    for what, step in steps:
        try:
            found = [f"{name}: {text}" for text in step()]
        except Feda4FairError as error:
            found = [f"{name}: {error}"]
        except (
            OSError,
            LookupError,
            TypeError,
            ValueError,
            AttributeError,
            pa.ArrowException,
        ) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            found = [f"{name}: {what} cannot be read ({reason})"]
        bad += found
        if not found:
            good.append(f"{name}: {what}")
    return good, bad


def _recipe(folder: Path, name: str, facts: dict[str, Any]) -> Iterator[str]:
    recipe = Recipe.from_json(folder / "recipes" / f"{name}.json")
    if recipe_sha256(recipe) != facts["recipe_sha256"]:
        yield f"recipes/{name}.json has another hash than the manifest says"
    if recipe.name != name:
        yield f"recipes/{name}.json is the recipe of {recipe.name!r}"
    told = {
        "description": recipe.description,
        "control": recipe.control,
        "columns": written_columns(recipe.schema, facts["features"]),
    }
    for key, value in told.items():
        if facts[key] != value:
            yield f"{key} in the manifest is not that of recipes/{name}.json"


def _counts(folder: Path, name: str, facts: dict[str, Any], pyarrow: str) -> Iterator[str]:
    """Compare the client index, the row groups and the manifest."""
    index = _index(folder, name)
    clients = {entry["client_id"] for entry in index}
    yield from _differ("clients", len(clients), facts["clients"])
    for column in ("rows", "positives", "flipped", "dropped"):
        yield from _differ(column, sum(entry[column] for entry in index), facts[column])
    for split, part in facts["splits"].items():
        files = [f"data/{name}/{file}" for file in part["files"]]
        metadata = [_metadata(folder, file) for file in files]
        rows = sum(each.num_rows for each in metadata)
        for file, each in zip(files, metadata, strict=True):
            yield from _written(file, each, facts["features"], pyarrow)
        yield from _differ(f"rows of {split}", rows, part["rows"])
        own = [entry for entry in index if entry["split"] == split]
        yield from _differ(f"indexed rows of {split}", sum(e["rows"] for e in own), part["rows"])
        stray = {entry["file"] for entry in own} ^ set(files)
        if stray:
            yield f"{split}: index and manifest do not agree on {min(stray)}"


def _written(
    file: str, metadata: pq.FileMetaData, features: dict[str, Any], pyarrow: str
) -> Iterator[str]:
    """Compare what a file says of its columns and its writer with the manifest."""
    noted = json.loads((metadata.metadata or {}).get(b"huggingface", b"{}"))
    if noted != {"info": {"features": features}}:
        yield f"{file}: its features are not those of the manifest"
    if not metadata.created_by.endswith(f" {pyarrow}"):
        yield f"{file}: {metadata.created_by} wrote it, the manifest says pyarrow {pyarrow}"


def _differ(what: str, found: Any, expected: Any) -> Iterator[str]:
    if found != expected:
        yield f"{what}: {found} where the manifest says {expected}"


def _content(folder: Path, name: str, facts: dict[str, Any]) -> Iterator[str]:
    """Hash the rows client by client, and count their labels."""
    digest = ContentDigest()
    for entry, table in _client_rows(folder, name):
        who = f"{entry['client_id']} {entry['split']}"
        if set(table["client_id"].unique().to_pylist()) != {entry["client_id"]}:
            yield f"{who}: its row group holds rows of others"
        if table.num_rows != entry["rows"]:
            yield f"{who}: {table.num_rows} rows where the index says {entry['rows']}"
        for column, counted in (("positives", "label"), ("flipped", "flipped")):
            total = pc.sum(table[counted]).as_py()
            if total != entry[column]:
                yield f"{who}: {total} {column} where the index says {entry[column]}"
        digest.feed(entry["client_id"], entry["split"], table)
    yield from _differ("content hash", digest.hexdigest(), facts["content_sha256"])


def _client_rows(folder: Path, name: str) -> Iterator[tuple[dict[str, Any], pa.Table]]:
    """Yield the index entries in their order, each with its rows."""
    opened: dict[str, pq.ParquetFile] = {}
    try:
        for entry in _index(folder, name):
            file = opened.get(entry["file"])
            if file is None:
                file = opened[entry["file"]] = pq.ParquetFile(_data(folder, entry["file"]))
            groups = row_groups(file.metadata, entry["row_group"], entry["rows"])
            yield entry, file.read_row_groups(groups, use_threads=False)
    finally:
        for file in opened.values():
            file.close()


def _dropped(folder: Path, name: str, facts: dict[str, Any]) -> Iterator[str]:
    table = pq.read_table(folder / "dropped" / f"{name}.parquet", partitioning=None)
    yield from _differ("rows in dropped", table.num_rows, facts["dropped"])
    digest = ContentDigest()
    runs = pc.run_end_encode(table["client_id"].combine_chunks())
    start = 0
    for client, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        digest.feed(client, "dropped", table.slice(start, end - start))
        start = end
    yield from _differ("content hash of dropped", digest.hexdigest(), facts["dropped_sha256"])


def _statistics(folder: Path, name: str) -> Iterator[str]:
    """Measure the rows again, as they are and as they were, and compare every figure."""
    found = pq.read_table(folder / "statistics" / f"{name}.parquet", partitioning=None)
    expected = _measured(read_federation(folder, name, features=False))
    if found.schema.names != expected.schema.names or found.num_rows != expected.num_rows:
        yield (
            f"statistics/{name}.parquet: {found.num_rows} rows where measuring again gives "
            f"{expected.num_rows}"
        )
        return
    for column in expected.schema.names:
        if found[column].equals(expected[column].cast(found[column].type)):
            continue
        pairs = zip(found[column].to_pylist(), expected[column].to_pylist(), strict=True)
        row, (old, new) = next((i, p) for i, p in enumerate(pairs) if p[0] != p[1])
        keys = found.slice(row, 1).select(["stage", "client_id", "attribute", "value", "metric"])
        where = ", ".join(str(value) for value in keys.to_pylist()[0].values())
        yield f"statistics of {where}: {column} {old} where measuring again gives {new}"
    if found.schema.metadata != expected.schema.metadata:
        yield f"statistics/{name}.parquet: its metadata hold another report than the rows give"


def _measured(federation: Federation) -> pa.Table:
    """Return the statistics of a config as they are written."""
    compare = contenders(federation.recipe)
    cubes = count_labels(federation)
    before, after = (measure_cube(cube, compare=compare).statistics() for cube in cubes)
    tables = [
        table.replace_schema_metadata(None).add_column(
            0, STAGE, [pa.repeat(stage, table.num_rows)]
        )
        for stage, table in (("before", before), ("after", after))
    ]
    return pa.concat_tables(tables).replace_schema_metadata(after.schema.metadata)


def _index(folder: Path, name: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = pq.read_table(
        folder / "clients" / f"{name}.parquet", partitioning=None
    ).to_pylist()
    return entries


def _metadata(folder: Path, file: str) -> pq.FileMetaData:
    return pq.read_metadata(_data(folder, file))


def _data(folder: Path, file: str) -> Path:
    """Return the path of a data file that manifest or index name, never one outside."""
    if not is_safe_path(file) or not file.startswith("data/"):
        raise OutputError(f"{file!r} is no data file of a build.")
    return folder / file


def compare_folders(folder: Path, rebuilt: Path, *, hub: bool = False) -> Verification:
    """Compare a release with another build of it, byte for byte.

    Parameters
    ----------
    folder, rebuilt : Path
        The release, and the folder built anew.
    hub : bool, default False
        The release is a copy of a repository: its card and the Hub's own file are left out.
    """
    one, other = (_hashes(path) for path in (folder, rebuilt))
    left_out = {ATTRIBUTES, CARD} if hub else _written_by_hand(folder, rebuilt)
    names = sorted(set(other) | (set() if hub else set(one)))
    differences = []
    for name in names:
        if name in left_out or one.get(name) == other.get(name):
            continue
        missing = "release" if name not in one else "new build" if name not in other else ""
        differences.append(f"{name}: " + (f"not in the {missing}" if missing else "other bytes"))
    checked = [] if differences else [f"{len(names)} files equal, byte for byte"]
    old, new = (read_manifest(path)["versions"] for path in (folder, rebuilt))
    if differences and old != new:
        texts = (", ".join(f"{k} {v}" for k, v in versions.items()) for versions in (old, new))
        differences.append("bytes depend on versions: {} then, {} now".format(*texts))
    name = f"rebuilt {read_manifest(rebuilt)['dataset']}"
    return Verification(name=name, checked=tuple(checked), differences=tuple(differences))


def _written_by_hand(folder: Path, rebuilt: Path) -> set[str]:
    """Return the card, and the manifest that holds its hash, if only people's words differ."""
    cards = [path / CARD for path in (folder, rebuilt)]
    if not all(path.is_file() for path in cards):
        return set()
    old, new = (path.read_text("utf-8", "replace") for path in cards)
    manifests = [read_manifest(path) for path in (folder, rebuilt)]
    for manifest in manifests:
        manifest["files"].pop(CARD, None)
    try:
        same = old != new and merge_card(old, new, whole=True) == old
    except OutputError:
        return set()
    return {CARD, MANIFEST} if same and manifests[0] == manifests[1] else set()


def _hashes(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): file_sha256(path) for path in files}


@contextmanager
def downloaded(repo_id: str, revision: str = "main") -> Iterator[Path]:
    """Give a copy of a repository at a revision, which vanishes afterwards.

    Raises
    ------
    PublishError
        If the Hub does not answer, or there is no such repository or revision.
    """
    from huggingface_hub import HfApi, get_token, snapshot_download

    from feda4fair.patience import Patience, patient_client, persist

    patience = Patience(tries=4)
    what = f"download of {repo_id} at {revision}"

    def download(folder: str) -> None:
        info = HfApi().dataset_info(repo_id, revision=revision, token=get_token())
        for name in (sibling.rfilename for sibling in info.siblings or []):
            if {"", ".", ".."} & set(name.split("/")) or not name.isprintable() or "\\" in name:
                raise PublishError(f"{repo_id}: holds {name!r}, which may lead out of a folder.")
        snapshot_download(repo_id, repo_type="dataset", revision=info.sha, local_dir=folder)

    with TemporaryDirectory(prefix="feda4fair-verify-") as folder:
        with patient_client(patience):
            persist(lambda: download(folder), what, patience, lambda _line: None)
        yield Path(folder)
