"""Evaluate predictions, or each client's own local model, on one config of a built folder."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from _command import run
from _models import own_split
from feda4fair.errors import MeasureError, OutputError
from feda4fair.evaluate import (
    MODELS,
    LocalModels,
    Model,
    leak_changes,
    leaky_clients,
    local_models,
)
from feda4fair.federation import Federation
from feda4fair.heldout import read_predictions, write_predictions
from feda4fair.readback import recipe_sha256
from feda4fair.score import Score, open_config, score, score_rows

EXAMPLES = """examples:
  evaluate.py build/acs value-silo --model xgb --save-predictions local.parquet
  evaluate.py build/acs attribute-silo --model lr xgb --paper-compat --workers 2
  evaluate.py build/acs value-silo --predictions mine.parquet --local local.parquet \\
      --baseline fedavg.parquet --mitigated SEX --out mine.json

A prediction file (Parquet or CSV) has the columns client_id, row_id and prediction (0 or 1): one
row for each row of the test split and, for the restored protocol, for each row of
dropped/CONFIG.parquet whose split is test.
"""


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    command = argparse.ArgumentParser(
        prog="evaluate.py",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("dir", type=Path, metavar="DIR", help="folder that build.py wrote")
    command.add_argument("config", metavar="CONFIG", help="e.g. value-silo")
    what = command.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--model", nargs="+", choices=tuple(MODELS), help="train local models: lr, xgb or both"
    )
    what.add_argument("--predictions", type=Path, metavar="FILE", help="score these")
    command.add_argument(
        "--against",
        choices=("rest", "pairs"),
        help="definition of the disparities (default rest; with --paper-compat pairs)",
    )
    command.add_argument("--local", type=Path, metavar="FILE", help="local models' predictions")
    command.add_argument("--baseline", type=Path, metavar="FILE", help="e.g. FedAvg's predictions")
    command.add_argument("--mitigated", metavar="ATTRIBUTE", help="what the method was fair to")
    command.add_argument("--method", default="predictions", help="name of the method, for results")
    command.add_argument("--seed", type=int, metavar="N", help="training seed, for the record")
    command.add_argument("--out", type=Path, metavar="FILE", help="write results: .json or .csv")
    models = command.add_argument_group("local models")
    models.add_argument(
        "--paper-compat", action="store_true", help="add the leaked column of the published models"
    )
    models.add_argument("--clients", nargs="+", metavar="ID", default=[], help="only these")
    models.add_argument("--workers", type=int, default=1, help="processes (default 1)")
    models.add_argument("--save-predictions", type=Path, metavar="FILE", help="as Parquet")
    command.add_argument("--debug", action="store_true", help="show tracebacks")
    return command


def main(argv: Sequence[str] | None = None) -> None:
    """Evaluate what the command line names."""
    command = parser()
    args = command.parse_args(argv)
    _check(command, args)
    for path in (args.out, args.save_predictions):
        if path and not path.parent.is_dir():
            raise OutputError(f"{path}: its folder does not exist; make it or name another.")
    scores = _models(args) if args.model else [_predictions(args)]
    if args.out:
        _write(args.out, scores)


def _check(command: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Leave with code 2 where options do not fit together."""
    only_models = ("paper_compat", "clients", "save_predictions")
    given = [name for name in only_models if getattr(args, name)]
    if args.predictions and given:
        command.error(f"--{given[0].replace('_', '-')} goes with --model, not --predictions")
    if args.workers < 1:
        command.error(f"--workers {args.workers}: at least one process is needed")
    if args.out and args.out.suffix not in (".json", ".csv"):
        command.error(f"--out {args.out}: end the name in .json or .csv")
    if args.model:
        args.model = list(dict.fromkeys(args.model))
    several = args.model and len(args.model) > 1
    if several and (args.save_predictions or (args.out and args.out.suffix == ".json")):
        command.error("one file holds one model's result: name one model, or --out a .csv")


def _predictions(args: argparse.Namespace) -> Score:
    result = score(
        args.predictions,
        args.dir,
        args.config,
        local=args.local,
        baseline=args.baseline,
        against=args.against or "rest",
        method=args.method,
        mitigated=args.mitigated,
        training_seed=args.seed,
    )
    print(result)
    return result


def _models(args: argparse.Namespace) -> list[Score]:
    federation = open_config(args.dir, args.config, features=True)
    if args.clients:
        for name in args.clients:
            federation.find(name)
        federation = federation.only(args.clients)
    _read_references(args, federation)
    scores = []
    for model in args.model:
        local, result = _score(args, federation, model, leak=args.paper_compat)
        scores.append(result)
        print(result, *local.notes, sep="\n")
        print()
        if args.save_predictions:
            sha256 = result.recipe_sha256
            write_predictions(local.predictions, args.save_predictions, recipe_sha256=sha256)
        if not args.paper_compat:
            _leak(args, federation, model, result)
    _show_winners(scores, args.config, federation)
    return scores


def _read_references(args: argparse.Namespace, federation: Federation) -> None:
    """Read what models are compared with before any is trained."""
    known = federation.recipe.schema.sensitive
    if args.mitigated and args.mitigated not in known:
        raise MeasureError(f"--mitigated {args.mitigated}: the config has {', '.join(known)}.")
    sha256 = recipe_sha256(federation.recipe)
    for name in ("local", "baseline"):
        if path := getattr(args, name):
            setattr(args, name, read_predictions(path, name, recipe_sha256=sha256))


def _score(
    args: argparse.Namespace, federation: Federation, model: Model, *, leak: bool
) -> tuple[LocalModels, Score]:
    local = local_models(
        federation,
        model=model,
        leak=leak,
        split=own_split(federation.recipe),
        workers=args.workers,
    )
    result = score_rows(
        local.predictions,
        local.rows,
        references={"local": args.local, "baseline": args.baseline},
        against=args.against or ("pairs" if args.paper_compat else "rest"),
        method=local.method,
        mitigated=args.mitigated,
    )
    return local, result


def _leak(args: argparse.Namespace, federation: Federation, model: Model, plain: Score) -> None:
    """Train again with the leaked column, where the published models had it, and show changes."""
    recipe = federation.recipe
    leaky = leaky_clients(federation)
    if recipe.sampler != "released" or recipe.control or not leaky:
        return
    local = local_models(
        federation.only(leaky),
        model=model,
        leak=True,
        split=own_split(federation.recipe),
        workers=args.workers,
    )
    leaked = score_rows(
        local.predictions, local.rows, against=plain.injected.report.against, method=local.method
    )
    changes = leak_changes(plain, leaked)
    print(
        f"What the column that leaked into the published {MODELS[model]} models changed: with it "
        f"minus without it, {len(changes)} clients with dropped rows\n"
    )
    print(changes.to_string(float_format="{:+.3f}".format))
    disparities = changes.drop(columns="accuracy")
    sizes = disparities.abs().fillna(0.0).to_numpy()
    row, column = divmod(int(sizes.argmax()), sizes.shape[1])
    print(
        f"\nlargest change of a disparity: {disparities.columns[column]} of "
        f"{disparities.index[row]}, {disparities.iloc[row, column]:+.4f}\n"
    )


def _show_winners(scores: Sequence[Score], config: str, federation: Federation) -> None:
    """Compare with the paper's tables, which take the worse of both models."""
    if federation.recipe.dataset != "acs" or len(scores) < len(MODELS):
        return
    from feda4fair_acs.published import PRINTED_COUNTS_3, TABLES, winners

    if config not in TABLES:
        return
    number = TABLES[config][0]
    found = winners(config, [score.injected.report for score in scores])
    agree = sum(winner.agrees for winner in found)
    print(f"Table {number} of the paper (DD columns): {agree} of {len(found)} clients agree")
    for winner in found:
        if not winner.agrees or len(winner.found) > 1:
            said = "ties" if winner.agrees else "differs"
            print(f"  {winner.client} {said}: {winner.printed} printed, {', '.join(winner.found)}")
    if number == 3:
        listed = sum(name == "Sex" for name in TABLES[config][1].values())
        print(f"  the table counts {PRINTED_COUNTS_3['Sex']} clients for Sex and lists {listed}")


def _write(path: Path, scores: Sequence[Score]) -> None:
    """Write results: one score as JSON, or the figures of all as CSV; never half a file."""
    if path.suffix == ".json":
        text = scores[0].to_json()
    else:
        text = pd.concat([score.figures() for score in scores]).to_csv(index=False)
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written ({error.strerror}); name another.") from None
    finally:
        part.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(run(main))
