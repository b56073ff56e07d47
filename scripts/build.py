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
from feda4fair.dataset import Dataset
from feda4fair.errors import RecipeError
from feda4fair.manifest import Manifest

EXAMPLES = """examples:
  build.py acs --sample --out build/acs              all four configs, synthetic, offline
  build.py acs --source DIR --out build/acs          DIR/2018/1-Year/{csv_pxx.zip|psam_pNN.csv}
  build.py acs value-device --out build/acs          one config, source downloaded and cached
  build.py acs value-device --clients TX_0 --sample --out build/tx
"""


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    command = argparse.ArgumentParser(
        prog="build.py",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("dataset", choices=("acs", "dutch", "celeba"))
    command.add_argument("configs", nargs="*", metavar="CONFIG", help="default: all four")
    command.add_argument("--out", type=Path, required=True, help="folder to make")
    where = command.add_mutually_exclusive_group()
    where.add_argument("--source", type=Path, metavar="DIR", help="folder of the source files")
    where.add_argument("--sample", action="store_true", help="built-in synthetic sample, offline")
    command.add_argument("--overwrite", action="store_true", help="replace an earlier build")
    command.add_argument(
        "--allow-missing", action="store_true", help="accept a source that lacks some clients"
    )
    command.add_argument("--clients", nargs="+", default=[], metavar="ID", help="only these")
    command.add_argument(
        "--control", choices=("none", "homogeneous"), default="", help="unbiased or homogeneous"
    )
    command.add_argument("--workers", type=int, default=1, help="processes (default 1)")
    command.add_argument("--show", action="store_true", help="load one config and print it")
    command.add_argument("--debug", action="store_true", help="show tracebacks")
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
    dataset: Dataset = import_module(f"feda4fair_{args.dataset}").DATASET
    recipes = dataset.choose(args.configs, control=args.control)
    source = dataset.open_source(
        args.source,
        recipes=recipes,
        clients=args.clients,
        sample=args.sample,
        allow_missing=args.allow_missing,
        **_options(args),
    )
    manifest = build(
        dataset,
        recipes,
        source,
        args.out,
        clients=args.clients,
        overwrite=args.overwrite,
        workers=args.workers,
        form=args.form,
        notes=_notes(args),
    )
    report(args.out, manifest)
    if args.show:
        show(args.out, manifest)


OPTIONS = {"acs": ("year", "horizon", "states"), "dutch": (), "celeba": ("images",)}


def _options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options that belong to one dataset, refusing those of another."""
    own = OPTIONS[args.dataset]
    every = [name for names in OPTIONS.values() for name in names]
    given = {name: getattr(args, name) for name in every if getattr(args, name) is not None}
    foreign = sorted(set(given) - set(own))
    if foreign:
        raise RecipeError(
            f"--{', --'.join(foreign)}: not an option of {args.dataset}; see build.py --help."
        )
    if args.form == "index" and "images" in own:
        if given.get("images") == "embed":
            raise RecipeError("--images embed: an index holds no images; use --form full.")
        given |= {"images": "none"}
    return given


def _notes(args: argparse.Namespace) -> list[str]:
    """Say in sentences how this build differs from the published one."""
    notes = []
    if args.clients:
        notes.append(f"only the clients {', '.join(sorted(args.clients))}.")
    if args.control:
        notes.append(f"a control with {args.control} bias.")
    return notes


def report(out: Path, manifest: Manifest) -> None:
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


def show(out: Path, manifest: Manifest) -> None:
    """Load one config as a user would and print what a person wants to see."""
    from datasets import load_dataset

    name = next(
        (n for n in manifest["configs"] if n == "value-device"), next(iter(manifest["configs"]))
    )
    loaded = load_dataset(str(out), name)
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
