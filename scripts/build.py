"""Build a dataset into a folder in Hub layout, ready to load, check and publish."""

from __future__ import annotations

from _command import run

# isort: split

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from feda4fair.build import build
from feda4fair.dataset import Dataset, Source
from feda4fair.engine import default_workers
from feda4fair.errors import RecipeError
from feda4fair.manifest import Manifest
from feda4fair.own import TableSource, own_dataset, read_prose
from feda4fair.recipe import Recipe

EXAMPLES = """examples:
  build.py acs --sample --out build/acs              all four configs, synthetic, offline
  build.py acs --source DIR --out build/acs          DIR/2018/1-Year/{csv_pxx.zip|psam_pNN.csv}
  build.py acs value-device --out build/acs          one config, source downloaded and cached
  build.py acs value-device --clients TX_0 --sample --out build/tx
  build.py --recipe recipes/mine.json --source rows.parquet --out build/mine
"""


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    command = argparse.ArgumentParser(
        prog="build.py",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("dataset", nargs="?", choices=BUILT_IN, help="unless --recipe names it")
    command.add_argument("configs", nargs="*", metavar="CONFIG", help="default: all four")
    command.add_argument(
        "--out", required=True, metavar="DIR", help="folder to make, or the URL of one (s3://...)"
    )
    command.add_argument(
        "--recipe",
        nargs="+",
        type=Path,
        metavar="FILE",
        default=[],
        help="build these recipes, of a built-in dataset or of any rows",
    )
    command.add_argument(
        "--prose", type=Path, metavar="FILE", help="with --recipe: texts for the card, TOML"
    )
    where = command.add_mutually_exclusive_group()
    where.add_argument(
        "--source",
        metavar="DIR",
        help="folder of the source files; for any rows a file, a folder or a Hub id",
    )
    where.add_argument("--sample", action="store_true", help="built-in synthetic sample, offline")
    command.add_argument("--overwrite", action="store_true", help="replace an earlier build")
    command.add_argument(
        "--allow-missing", action="store_true", help="accept a source that lacks some clients"
    )
    command.add_argument("--clients", nargs="+", default=[], metavar="ID", help="only these")
    command.add_argument(
        "--control", choices=("none", "homogeneous"), default="", help="unbiased or homogeneous"
    )
    command.add_argument(
        "--workers",
        type=int,
        default=default_workers(),
        help="processes (default here: %(default)s); the bytes are the same",
    )
    command.add_argument(
        "--engine", choices=("local", "ray"), default="local", help="where they run"
    )
    command.add_argument("--show", action="store_true", help="load one config and print it")
    command.add_argument("--debug", action="store_true", help="show tracebacks")
    own = command.add_argument_group("recipes of your own")
    own.add_argument("--source-config", metavar="NAME", help="config of a Hub source")
    own.add_argument("--source-split", metavar="NAME", help="split of a Hub source")
    acs = command.add_argument_group("acs")
    acs.add_argument("--year", type=int, help="survey year (default 2018)")
    acs.add_argument("--horizon", choices=("1-Year", "5-Year"), help="default 1-Year")
    acs.add_argument("--states", nargs="+", metavar="ST", help="postal codes, e.g. WY VT")
    celeba = command.add_argument_group("celeba")
    celeba.add_argument(
        "--images", choices=("embed", "none"), help="default: where they are there"
    )
    celeba.add_argument(
        "--form",
        choices=("full", "index"),
        default="full",
        help="index: image_id, client_id, split and nothing else, which may be published",
    )
    return command


def main(argv: Sequence[str] | None = None) -> None:
    """Build what the command line names."""
    args = parser().parse_intermixed_args(argv)
    if args.workers < 1:
        raise RecipeError(f"--workers {args.workers}: at least one process is needed.")
    dataset, recipes = chosen(args)
    source = opened(args, dataset, recipes)
    manifest = build(
        dataset,
        recipes,
        source,
        args.out,
        clients=args.clients,
        overwrite=args.overwrite,
        workers=args.workers,
        engine=args.engine,
        form=args.form,
        notes=_notes(args, dataset, recipes),
    )
    report(args.out, manifest)
    if args.show:
        show(args.out, manifest)


def chosen(args: argparse.Namespace) -> tuple[Dataset, tuple[Recipe, ...]]:
    """Return what is to be built: configs of a built-in dataset, or recipes from files."""
    if not args.recipe:
        if args.dataset is None:
            raise RecipeError("nothing to build: name a dataset, or recipes with --recipe.")
        if args.prose is not None:
            raise RecipeError("--prose: texts of your own go with --recipe.")
        dataset: Dataset = import_module(f"feda4fair_{args.dataset}").DATASET
        return dataset, dataset.choose(args.configs, control=args.control)
    if args.dataset is not None:
        raise RecipeError(f"--recipe: the recipe names the dataset; leave out {args.dataset}.")
    recipes = tuple(Recipe.from_json(path) for path in args.recipe)
    names = sorted({recipe.dataset for recipe in recipes})
    configs = [recipe.name for recipe in recipes]
    if len(names) > 1 or len(set(configs)) < len(configs):
        raise RecipeError(
            f"--recipe: configs {', '.join(configs)} of {', '.join(names)}; name different "
            "configs of one dataset."
        )
    if args.control:
        recipes = tuple(recipe.with_control(args.control) for recipe in recipes)
    if names[0] in BUILT_IN:
        return import_module(f"feda4fair_{names[0]}").DATASET, recipes
    return own_dataset(recipes, read_prose(args.prose)), recipes


def opened(args: argparse.Namespace, dataset: Dataset, recipes: Sequence[Recipe]) -> Source:
    """Return the source of the rows."""
    if dataset.folder is not None:
        return dataset.open_source(
            None if args.source is None else Path(args.source),
            recipes=recipes,
            clients=args.clients,
            sample=args.sample,
            allow_missing=args.allow_missing,
            **_options(args, dataset.name),
        )
    _options(args, "")
    if args.source is None or args.form == "index":
        raise RecipeError(
            f"{dataset.name}: name its rows with --source, in full form; only the built-in "
            "datasets have a download, a sample and an index."
        )
    return TableSource(data=args.source, config=args.source_config, split=args.source_split)


BUILT_IN = ("acs", "dutch", "celeba")
OPTIONS = {
    "acs": ("year", "horizon", "states"),
    "dutch": (),
    "celeba": ("images",),
    "": ("source_config", "source_split"),
}


def _options(args: argparse.Namespace, dataset: str) -> dict[str, Any]:
    """Return the options that belong to one dataset, refusing those of another."""
    own = OPTIONS[dataset]
    every = [name for names in OPTIONS.values() for name in names]
    given = {name: getattr(args, name) for name in every if getattr(args, name) is not None}
    foreign = sorted(set(given) - set(own))
    if foreign:
        raise RecipeError(
            f"--{', --'.join(foreign).replace('_', '-')}: not an option of "
            f"{dataset or 'a recipe of your own'}; see build.py --help."
        )
    if args.form == "index" and "images" in own:
        if given.get("images") == "embed":
            raise RecipeError("--images embed: an index holds no images; use --form full.")
        given |= {"images": "none"}
    return given


def _notes(args: argparse.Namespace, dataset: Dataset, recipes: Sequence[Recipe]) -> list[str]:
    """Say in sentences how this build differs from the published one."""
    published = {recipe.with_control(args.control) for recipe in dataset.recipes}
    notes = [
        f"{recipe.name} follows a recipe of its own."
        for recipe in recipes
        if recipe not in published
    ]
    if args.clients:
        notes.append(f"only the clients {', '.join(sorted(args.clients))}.")
    if args.control:
        notes.append(f"a control with {args.control} bias.")
    return notes


def report(out: str, manifest: Manifest) -> None:
    """Print one line for each config."""
    print(f"{out}: {manifest['dataset']} {manifest['version']}", end="")
    print(" (synthetic sample)" if manifest["synthetic"] else "")
    for name, config in manifest["configs"].items():
        splits = ", ".join(f"{split} {part['rows']:,}" for split, part in config["splits"].items())
        print(
            f"  {name:<17} {config['clients']:>4} clients  {config['rows']:>9,} rows ({splits}); "
            f"dropped {config['dropped']:,}, flipped {config['flipped']:,}"
        )
        noted = [entry for entry in config["ledger"] if entry["note"]]
        for entry in noted[:3]:
            print(f"    note: {entry['client']}, {entry['rule']}: {entry['note']}")
        if noted[3:]:
            print(f"    and {len(noted) - 3} more such notes; the card lists them")


def show(out: str, manifest: Manifest) -> None:
    """Load one config as a user would and print what a person wants to see."""
    from datasets import load_dataset

    name = next(
        (n for n in manifest["configs"] if n == "value-device"), next(iter(manifest["configs"]))
    )
    loaded = load_dataset(out, name)
    example = manifest["configs"][name]["example"]
    print(f'\nload_dataset("{out}", "{name}")\n{loaded}')
    client = loaded[example["split"]].filter(
        lambda ids: [value == example["client"] for value in ids],
        batched=True,
        input_columns="client_id",
    )
    print(f"\nclient {example['client']}, first rows:")
    print(client.select(range(min(5, len(client)))).to_pandas().to_string(index=False))


if __name__ == "__main__":
    sys.exit(run(main))
