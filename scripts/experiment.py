"""Train federated methods on one config of a built folder, and compare them client by client."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from _command import run
from feda4fair.errors import MissingExtraError, OutputError, RecipeError
from feda4fair.evaluate import MODELS

try:
    from _experiment import DEFAULT_LOCAL, Study, comparison
    from feda4fair.fl.experiment import BACKENDS
    from feda4fair.fl.methods import Option, method_names, parse_option
    from feda4fair.fl.steps import OPTIMIZERS
except MissingExtraError as error:
    sys.exit(f"error: {error}")

EXAMPLES = """examples:
  experiment.py build/acs attribute-silo --method fedavg puffle reweighing --out build/silo
  experiment.py build/acs attribute-silo --method puffle --set weight=tunable --out build/tunable
  experiment.py build/dutch value-device --method puffle --tune --out build/tuned
  experiment.py build/dutch value-device --method puffle --tune --out build/tuned --resume

Every method is trained twice, on the config and on its no-rules control, and scored on the test
rows as they are (injected) and as they were (restored). FedAvg is trained for comparison where it
is not among the methods. OUT/METHOD and OUT/METHOD-no-rules hold the results of each run.
"""


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    command = argparse.ArgumentParser(
        prog="experiment.py",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("dir", type=Path, metavar="DIR", help="folder that build.py wrote")
    command.add_argument("config", metavar="CONFIG", help="e.g. attribute-silo")
    command.add_argument("--method", nargs="+", choices=method_names(), required=True)
    command.add_argument("--out", type=Path, required=True, metavar="DIR", help="results folder")
    command.add_argument("--resume", action="store_true", help="go on with what DIR holds")
    command.add_argument(
        "--mitigate", metavar="ATTRIBUTE", help="what to be fair to (default: sex)"
    )
    command.add_argument(
        "--local",
        nargs="*",
        choices=tuple(MODELS),
        default=[DEFAULT_LOCAL],
        help=f"local models to compare with (default {DEFAULT_LOCAL}; none: --local)",
    )
    command.add_argument("--no-control", action="store_true", help="train no no-rules control")
    training = command.add_argument_group("training")
    training.add_argument(
        "--set",
        nargs="+",
        default=[],
        type=_option,
        metavar="NAME=VALUE",
        help="options of the methods: weight=0.6, weight=tunable, target=0.05, scope=global, or "
        "METHOD.NAME=VALUE",
    )
    training.add_argument("--rounds", type=int, help="default 10, of pictures 40")
    training.add_argument("--epochs", type=int, help="passes of a client in a round (default 1)")
    training.add_argument("--batch", type=int, help="rows of a batch")
    training.add_argument("--rate", type=float, help="learning rate")
    training.add_argument("--optimizer", choices=OPTIMIZERS)
    training.add_argument("--seed", type=int, metavar="N", help="training seed (default 0)")
    tuning = command.add_argument_group("tuning")
    tuning.add_argument("--tune", action="store_true", help="search the settings first")
    tuning.add_argument("--trials", type=int, default=20, help="trials of a study (default 20)")
    running = command.add_argument_group("running")
    running.add_argument("--backend", choices=BACKENDS, default="local")
    running.add_argument("--workers", type=int, default=1, help="processes (default 1)")
    running.add_argument("--debug", action="store_true", help="show tracebacks")
    return command


def main(argv: Sequence[str] | None = None) -> None:
    """Run the experiment that the command line names."""
    command = parser()
    args = command.parse_args(argv)
    for name in ("workers", "trials"):
        if getattr(args, name) < 1:
            command.error(f"--{name} {getattr(args, name)}: at least 1")
    if args.out.exists() and any(args.out.iterdir()) and not args.resume:
        raise OutputError(f"{args.out}: is not empty; --resume goes on with it, or name another.")
    names = ("rounds", "epochs", "batch", "rate", "optimizer", "seed")
    study = Study(
        build=args.dir,
        config=args.config,
        out=args.out,
        mitigate=args.mitigate,
        changes={name: getattr(args, name) for name in names if getattr(args, name) is not None},
        options=dict(args.set),
        trials=args.trials if args.tune else 0,
        controls=not args.no_control,
        backend=args.backend,
        workers=args.workers,
    )
    methods = list(dict.fromkeys(["fedavg", *args.method]))
    scores = study.scores(methods, list(dict.fromkeys(args.local)))
    table = comparison(scores)
    table.to_csv(args.out / "comparison.csv", index=False)
    print(table.to_string(index=False, float_format="{:.4f}".format, na_rep="-"))
    print(f"\nresults: {args.out}")


def _option(text: str) -> tuple[str, Option]:
    try:
        return parse_option(text)
    except RecipeError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


if __name__ == "__main__":
    sys.exit(run(main, stopped="stopped; --resume goes on with what is there."))
