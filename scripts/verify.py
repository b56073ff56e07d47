"""Verify a built folder or a published repository: hash, count and measure everything again."""

from __future__ import annotations

from _command import run

# isort: split

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq
from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]

from feda4fair.build import build
from feda4fair.dataset import Dataset
from feda4fair.errors import OutputError
from feda4fair.manifest import Manifest, read_manifest
from feda4fair.own import TableSource, own_dataset
from feda4fair.recipe import Recipe
from feda4fair.verify import Verification, compare_folders, downloaded, verify

EXAMPLES = """examples:
  verify.py build/acs                                     a folder against itself
  verify.py ORG/acs --revision v1.0.0                     a published release
  verify.py ORG/acs --revision v1.0.0 --rebuild --source DIR    byte for byte, from the source

Exit code 1 if anything differs; each difference is named.
"""

DATASETS = ("acs", "dutch", "celeba")
REPO_ID = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    command = argparse.ArgumentParser(
        prog="verify.py",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("release", metavar="DIR|ORG/NAME", help="built folder or repository")
    command.add_argument("--revision", default="main", help="branch, tag or commit (Hub only)")
    command.add_argument("--rebuild", action="store_true", help="build it again and compare bytes")
    command.add_argument("--source", type=Path, metavar="DIR", help="source files for --rebuild")
    command.add_argument("--debug", action="store_true", help="show tracebacks")
    return command


def main(argv: Sequence[str] | None = None) -> None:
    """Verify what the command line names."""
    args = parser().parse_args(argv)
    if not sys.stderr.isatty():
        disable_progress_bars()
    with _opened(args.release, args.revision) as (folder, hub):
        results = [verify(folder, hub=hub)]
        print(results[0], flush=True)
        if args.rebuild:
            results.append(_rebuild(folder, args.source, hub=hub))
            print(results[1])
    differences = [text for result in results for text in result.differences]
    if differences:
        raise OutputError(
            f"{args.release}: {len(differences)} differences, the first: {differences[0]}"
        )
    print(f"{args.release}: verified")


@contextmanager
def _opened(release: str, revision: str) -> Iterator[tuple[Path, bool]]:
    """Give the folder of a release, and whether it came from the Hub."""
    if Path(release).is_dir():
        yield Path(release), False
    elif REPO_ID.fullmatch(release):
        with downloaded(release, revision) as folder:
            yield folder, True
    else:
        raise OutputError(f"{release}: is neither a folder nor a repository ORG/NAME.")


def _rebuild(folder: Path, source_folder: Path | None, *, hub: bool) -> Verification:
    """Build the release again, as its manifest says it was built."""
    manifest = read_manifest(folder)
    if manifest.get("own"):
        return _rebuild_own(folder, manifest, source_folder, hub=hub)
    if manifest["dataset"] not in DATASETS:
        raise OutputError(
            f"{folder}: is of {manifest['dataset']!r}, and only {', '.join(DATASETS)} are rebuilt."
        )
    dataset: Dataset = import_module(f"feda4fair_{manifest['dataset']}").DATASET
    configs = manifest["configs"]
    first = next(iter(configs.values()))
    recipes = dataset.choose(list(configs), control=first["control"])
    clients = _clients(folder, manifest)
    source = dataset.open_source(
        source_folder,
        recipes=recipes,
        clients=clients,
        sample=manifest["synthetic"],
        allow_missing=bool(manifest["notes"]),
        **manifest["source_options"],
    )
    with TemporaryDirectory(prefix="feda4fair-rebuild-") as place:
        out = Path(place) / "rebuilt"
        own = set(source.notes)
        build(
            dataset,
            recipes,
            source,
            out,
            clients=clients,
            form=first["form"],
            notes=[note for note in manifest["notes"] if note not in own],
        )
        return compare_folders(folder, out, hub=hub)


def _rebuild_own(
    folder: Path, manifest: Manifest, source: Path | None, *, hub: bool
) -> Verification:
    """Build a federation of a user's own data again, from its recipes and its rows."""
    if source is None:
        raise OutputError(
            f"{folder}: is of {manifest['sources'][0]['name']!r}; name these rows with --source."
        )
    recipes = [
        Recipe.from_json(folder / "recipes" / f"{config}.json") for config in manifest["configs"]
    ]
    chosen = {
        name.removeprefix("source-"): text for name, text in manifest["source_options"].items()
    }
    with TemporaryDirectory(prefix="feda4fair-rebuild-") as place:
        out = Path(place) / "rebuilt"
        dataset = own_dataset(recipes, manifest["prose"])
        rows = TableSource(data=str(source), **chosen)
        build(dataset, recipes, rows, out, clients=_clients(folder, manifest))
        return compare_folders(folder, out, hub=hub)


def _clients(folder: Path, manifest: Manifest) -> list[str]:
    """Return the clients of a build of some clients only, none for a build of all."""
    if not any(note.startswith("only the clients ") for note in manifest["notes"]):
        return []
    name = next(iter(manifest["configs"]))
    index = pq.read_table(folder / "clients" / f"{name}.parquet", columns=["client_id"])
    names: list[str] = sorted(set(index["client_id"].to_pylist()))
    return names


if __name__ == "__main__":
    sys.exit(run(main))
