"""Publish a dataset to the Hub: regenerate it, or take a built folder, and push one release."""

from __future__ import annotations

from _command import run

# isort: split

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Literal

from huggingface_hub import get_token
from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]

from feda4fair.dataset import Dataset, Source
from feda4fair.errors import PublishError
from feda4fair.hub import plan, publish
from feda4fair.manifest import read_manifest
from feda4fair.patience import Patience
from feda4fair.preflight import PREFLIGHT, Standing, preflight
from feda4fair.release import OPEN_LICENSES, Consent, check_rights, kind_of

EXAMPLES = """examples:
  publish.py acs --repo-id ORG/acs --dry-run           build it, show the plan, push nothing
  publish.py acs --repo-id ORG/acs --build build/acs   push a folder that build.py wrote
  publish.py dutch --repo-id ORG/dutch --accept-terms  its license is unclear; you answer for it
  publish.py acs --repo-id ME/acs --sample             a synthetic sample, and it says so
  publish.py celeba --repo-id ORG/celeba --source DIR  publishes the index form only
  publish.py own --build build/loans --repo-id ORG/loans   a federation of your own data

The token comes from HF_TOKEN or `hf auth login`. If a transfer hangs, HF_HUB_DISABLE_XET=1 sends
files the plain way. A run that failed is finished by running the same command again.
"""


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    command = argparse.ArgumentParser(
        prog="publish.py",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument(
        "dataset",
        choices=("acs", "dutch", "celeba", "own"),
        help="own: a federation of your own data, with --build and --repo-id",
    )
    where = command.add_mutually_exclusive_group()
    where.add_argument("--build", type=Path, metavar="DIR", help="folder that build.py wrote")
    where.add_argument("--source", type=Path, metavar="DIR", help="build it from these files")
    where.add_argument("--sample", action="store_true", help="build it from the synthetic sample")
    command.add_argument("--repo-id", metavar="ORG/NAME", help="default: feda4fair/DATASET")
    command.add_argument("--dry-run", action="store_true", help="show the plan, push nothing")
    command.add_argument("--create-pr", action="store_true", help="open a pull request")
    command.add_argument("--private", action="store_true", help="make a new repository private")
    command.add_argument(
        "--accept-terms", action="store_true", help="you settled that the rows may be published"
    )
    command.add_argument(
        "--include-images",
        action="store_true",
        help="push full rows that may not be redistributed, to a private or gated repository",
    )
    command.add_argument(
        "--not-benchmark",
        action="store_true",
        help="push a sample or another variant where the benchmark is, or by default goes",
    )
    command.add_argument("--tag", default="", metavar="vX.Y.Z", help="default: the version's")
    command.add_argument(
        "--patience",
        type=float,
        default=180,
        metavar="SECONDS",
        help="stop when the Hub has done nothing for so long (default 180)",
    )
    command.add_argument("--debug", action="store_true", help="show tracebacks")
    return command


def main(argv: Sequence[str] | None = None) -> None:
    """Publish what the command line names."""
    args = parser().parse_args(argv)
    if not sys.stderr.isatty():
        disable_progress_bars()
    if args.patience <= 0:
        raise PublishError(f"--patience {args.patience}: give a number of seconds above 0.")
    dataset = _dataset(args)
    repo_id = args.repo_id or f"feda4fair/{args.dataset}"
    index_only = dataset.index is not None
    _check_rights(args, dataset)
    standing = None
    if get_token() or not args.dry_run:
        standing = preflight(
            repo_id,
            create_pr=args.create_pr,
            private=args.private,
            patience=replace(Patience.within(min(args.patience, PREFLIGHT.limit)), tries=2),
        )
    consent = _consent(args, standing)
    folder = args.build or _build(args, dataset)
    if args.dry_run:
        made = plan(folder, repo_id, consent=consent, index_only=index_only, tag=args.tag)
        print(made.describe())
        if standing is None:
            print("  no token: whether it could be pushed was not checked")
        return
    done = publish(
        folder,
        repo_id,
        standing=standing,
        consent=consent,
        index_only=index_only,
        tag=args.tag,
        create_pr=args.create_pr,
        private=args.private,
        patience=Patience.within(args.patience),
        say=lambda line: print(line, flush=True),
    )
    kind = kind_of(read_manifest(folder))
    what = f"{kind}, " if kind else ""
    what += "published" if done.new else "was there already, unchanged"
    print(f"{repo_id} {done.tag}: {what}, {done.url}")


def _dataset(args: argparse.Namespace) -> Dataset:
    """Return the built-in dataset, or what a folder of own data says of itself."""
    if args.dataset != "own":
        dataset: Dataset = import_module(f"feda4fair_{args.dataset}").DATASET
        return dataset
    if args.build is None or args.repo_id is None:
        raise PublishError("own: name the folder with --build and its place with --repo-id.")
    manifest = read_manifest(args.build)
    return Dataset(
        name=manifest["dataset"] if manifest.get("own") else "own",
        folder=None,
        recipes=(),
        open_source=_no_source,
        own_prose=manifest["prose"],
    )


def _no_source(*_: object, **__: object) -> Source:
    raise PublishError("own: the rows of a built folder are not read again.")


def _consent(args: argparse.Namespace, standing: Standing | None) -> Consent:
    # Without a standing nothing is pushed, and the plan shows what --private would allow.
    closed = args.private if standing is None or not standing.exists else standing.closed
    return Consent(
        accept_terms=args.accept_terms,
        include_images=args.include_images,
        closed=closed,
        not_benchmark=args.not_benchmark,
    )


def _check_rights(args: argparse.Namespace, dataset: Dataset) -> None:
    """Refuse what may not be published before anything else happens."""
    # Whether the repository is closed is known after preflight.
    claimed = Consent(
        accept_terms=args.accept_terms, include_images=args.include_images, closed=True
    )
    if args.build:
        manifest = read_manifest(args.build)
        if manifest["dataset"] != dataset.name:
            raise PublishError(
                f"{args.build}: holds {manifest['dataset']!r}, not {dataset.name!r}; name its own "
                "dataset."
            )
        check_rights(args.build, manifest, claimed, index_only=dataset.index is not None)
        kind = kind_of(manifest)
    elif not (dataset.index or args.accept_terms or dataset.prose["license"] in OPEN_LICENSES):
        raise PublishError(
            f"{dataset.name}: the terms of its rows are unclear (see its prose.toml); pass "
            "--accept-terms if you have settled that you may publish them."
        )
    else:
        kind = "a synthetic sample" if args.sample else ""
    if kind and not (args.repo_id or args.not_benchmark):
        raise PublishError(
            f"{args.build or '--sample'}: is {kind}, and feda4fair/{dataset.name} is the place of "
            "the benchmark; name a repository with --repo-id, or pass --not-benchmark."
        )


def _build(args: argparse.Namespace, dataset: Dataset) -> Path:
    """Build the dataset, in the form that may be published unless asked otherwise."""
    # It brings pandas and scipy, for which nobody with a wrong token should wait.
    from feda4fair.build import build

    index = dataset.index is not None and not args.include_images
    recipes = dataset.choose()
    source = dataset.open_source(
        args.source,
        recipes=recipes,
        clients=(),
        sample=args.sample,
        allow_missing=False,
        **({"images": "none"} if index else {}),
    )
    out = Path("build") / dataset.name
    form: Literal["full", "index"] = "index" if index else "full"
    build(dataset, recipes, source, out, form=form, overwrite=True)
    return out


if __name__ == "__main__":
    sys.exit(run(main, stopped="stopped; the same command finishes what was begun."))
