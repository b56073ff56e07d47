"""Find the rates that bring every client's disparity above a floor, or the clients above it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from textwrap import fill

from _command import run
from _models import own_split
from feda4fair.build import federations
from feda4fair.calibrate import Calibration, calibrate, calibrate_labels, select_clients
from feda4fair.dataset import Dataset, Source
from feda4fair.errors import OutputError, RecipeError
from feda4fair.evaluate import MODELS, local_models
from feda4fair.federation import concat
from feda4fair.recipe import ClientSplit, Recipe
from feda4fair.score import score_rows

EXAMPLES = """examples:
  calibrate.py acs attribute-silo --floor 0.09 --source DIR          raise rates, local models
  calibrate.py acs attribute-silo --floor 0.09 --source DIR --model lr xgb --out found.json
  calibrate.py acs value-silo --labels --floor 0.15 --sample         closed form on the labels
  calibrate.py acs attribute-device --floor 0.09 --sample            which pieces to keep

Silo configs: a rate for each client, beside the one that the recipe gives. Device configs whose
clients are pieces of others: the pieces whose local models exceed the floor. The recipe that
--out writes builds with build.py --recipe; nothing here changes data.
"""


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    command = argparse.ArgumentParser(
        prog="calibrate.py",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("dataset", choices=("acs", "dutch", "celeba"), metavar="DATASET")
    command.add_argument("config", metavar="CONFIG", help="e.g. attribute-silo")
    command.add_argument(
        "--floor", type=float, required=True, metavar="DD", help="disparity to exceed, e.g. 0.09"
    )
    where = command.add_mutually_exclusive_group()
    where.add_argument("--source", type=Path, metavar="DIR", help="folder of the source files")
    where.add_argument("--sample", action="store_true", help="built-in synthetic sample, offline")
    how = command.add_mutually_exclusive_group()
    how.add_argument(
        "--model",
        nargs="+",
        choices=tuple(MODELS),
        default=["lr"],
        help="local models, each of which must exceed the floor (default lr)",
    )
    how.add_argument(
        "--labels", action="store_true", help="no model: the floor is a gap of the labels"
    )
    command.add_argument("--by", choices=("drop", "flip"), default="drop", help="rate to find")
    command.add_argument(
        "--beside", type=float, default=0.0, metavar="RATE", help="the other rate (default 0)"
    )
    command.add_argument("--step", type=float, default=0.1, help="step of rates (default 0.1)")
    command.add_argument(
        "--against", choices=("rest", "pairs"), default="rest", help="definition (default rest)"
    )
    command.add_argument("--clients", nargs="+", metavar="ID", default=[], help="only these")
    command.add_argument(
        "--allow-missing", action="store_true", help="accept a source that lacks some clients"
    )
    command.add_argument("--out", type=Path, metavar="FILE", help="write the recipe found, JSON")
    command.add_argument("--debug", action="store_true", help="show tracebacks")
    return command


def main(argv: Sequence[str] | None = None) -> None:
    """Calibrate what the command line names."""
    args = parser().parse_args(argv)
    if args.out and not args.out.parent.is_dir():
        raise OutputError(f"{args.out}: its folder does not exist; make it or name another.")
    dataset: Dataset = import_module(f"feda4fair_{args.dataset}").DATASET
    recipe = dataset.recipe(args.config)
    if args.labels and recipe.subdivide:
        raise RecipeError(f"{recipe}: --labels finds rates, and its clients share their parents'.")
    source = dataset.open_source(
        args.source,
        recipes=[replace(recipe, keep=None)],
        clients=args.clients,
        sample=args.sample,
        allow_missing=args.allow_missing,
        **({"images": "none"} if args.dataset == "celeba" else {}),
    )
    found = _select(args, recipe, source) if recipe.subdivide else _rates(args, recipe, source)
    if args.out:
        _write(args.out, found)


def _rates(args: argparse.Namespace, recipe: Recipe, source: Source) -> Recipe:
    """Find a rate for each client and show it beside the recipe's own."""
    shared = {"by": args.by, "beside": args.beside, "against": args.against}
    found: Calibration
    if args.labels:
        federation = concat(federations(recipe, source, args.clients))
        found = calibrate_labels(federation, gap=args.floor, **shared)
    else:
        found = calibrate(
            source,
            recipe,
            floor=args.floor,
            models=args.model,
            step=args.step,
            clients=args.clients,
            split=own_split(recipe),
            **shared,
        )
    print(found)
    return found.recipe


def _select(args: argparse.Namespace, recipe: Recipe, source: Source) -> Recipe:
    """Keep the pieces whose local models exceed the floor."""
    every = replace(recipe, keep=None)
    federation = concat(federations(every, source, args.clients))
    reports = []
    for model in args.model:
        local = local_models(federation, model=model, split=own_split(recipe))
        scored = score_rows(local.predictions, local.rows, against=args.against)
        reports.append(scored.injected.report)
    kept = select_clients(reports, floor=args.floor)
    print(fill(" ".join(kept), 99))
    print(f"{len(kept)} of {len(federation.clients)} clients exceed {args.floor}", end="")
    if recipe.keep is None:
        print()
    else:
        own = {client.name for client in federation.clients} & set(recipe.keep)
        print(f", {len(own & set(kept))} of the {len(own)} that the recipe keeps among them")
    split = recipe.split
    if isinstance(split, ClientSplit):
        split = replace(split, test=tuple(name for name in split.test if name in kept))
    return replace(recipe, keep=kept, split=split)


def _write(path: Path, recipe: Recipe) -> None:
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(recipe.to_json(), encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written ({error.strerror}); name another.") from None
    finally:
        part.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(run(main))
