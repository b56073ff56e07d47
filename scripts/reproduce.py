"""Run the paper's experiments on built folders and report what holds: tables, figures, claims."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm import tqdm

from _claims import CLAIMS, RULE, Evidence, Pair, ask_all, overall
from _command import run
from feda4fair.errors import MissingExtraError, OutputError
from feda4fair.evaluate import MODELS, Model
from feda4fair.manifest import read_manifest
from feda4fair.measurement import measure
from feda4fair.readback import read_federation
from feda4fair.score import Score

try:
    from _experiment import Run, Study, comparison, paired
    from feda4fair import plots
except MissingExtraError as error:
    sys.exit(f"error: {error}")

EXAMPLES = """examples:
  reproduce.py --acs build/acs --dutch build/dutch --celeba build/celeba --out build/paper
  reproduce.py --acs build/acs --quick --out build/quick
  reproduce.py --acs build/acs --dutch build/dutch --out build/paper --resume

OUT/report.md is the report. A stopped run goes on with --resume.
"""

METHODS = ("fedavg", "puffle", "reweighing")
QUICK: dict[str, Any] = {"rounds": 2}


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    command = argparse.ArgumentParser(
        prog="reproduce.py",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name, what in (
        ("acs", "ACS Income: tables 3 to 6, figures 7 to 9 and 14 to 22"),
        ("dutch", "Dutch Census: figures 23 to 30"),
        ("celeba", "CelebA: label statistics, figures 31 and 32"),
    ):
        command.add_argument(f"--{name}", type=Path, metavar="DIR", help=what)
    command.add_argument("--out", type=Path, required=True, metavar="DIR", help="results folder")
    command.add_argument("--configs", nargs="+", metavar="CONFIG", help="only these")
    command.add_argument("--resume", action="store_true", help="go on with what OUT holds")
    command.add_argument(
        "--quick", action="store_true", help="two rounds, logistic regression, few figures"
    )
    command.add_argument("--no-control", action="store_true", help="train no no-rules control")
    command.add_argument("--seed", type=int, default=0, metavar="N", help="training seed")
    command.add_argument("--workers", type=int, default=1, help="processes (default 1)")
    command.add_argument("--debug", action="store_true", help="show tracebacks")
    return command


def main(argv: Sequence[str] | None = None) -> None:
    """Run the paper's grid."""
    command = parser()
    args = command.parse_args(argv)
    if not (args.acs or args.dutch or args.celeba):
        command.error("name at least one of --acs, --dutch and --celeba")
    if args.out.exists() and any(args.out.iterdir()) and not args.resume:
        raise OutputError(f"{args.out}: is not empty; --resume goes on with it, or name another.")
    configs = {
        name: [c for c in read_manifest(folder)["configs"] if c in (args.configs or [c])]
        for name in ("acs", "dutch", "celeba")
        if (folder := getattr(args, name))
    }
    models: list[Model] = ["lr"] if args.quick else [*MODELS]
    (args.out / "figures").mkdir(parents=True, exist_ok=True)
    sections, pairs = [], []
    for name in ("acs", "dutch"):
        for config in configs.get(name, []):
            study = Study(
                build=getattr(args, name),
                config=config,
                out=args.out / name / config,
                changes={"seed": args.seed, **(QUICK if args.quick else {})},
                controls=not args.no_control,
                workers=args.workers,
            )
            scores = study.scores(METHODS, models)
            found = [*_pairs(study, scores, models)]
            pairs += found
            sections.append(_section(study, scores, models, found, args.out, quick=args.quick))
    for config in configs.get("celeba", []):
        sections.append(_labels(args.celeba, config, args.out))
    text = "\n".join([*_head(args, configs), *_claims(pairs), *sections, *_evidence(pairs)])
    (args.out / "report.md").write_text(text, "utf-8")
    print(*_short(pairs), f"\nreport: {args.out / 'report.md'}", sep="\n")


def _pairs(study: Study, scores: dict[Run, Score], models: Sequence[Model]) -> Iterator[Pair]:
    """Yield every federated method beside every local model, under both protocols."""
    for model in models:
        for method in METHODS:
            files = {
                "local": study.out / f"local-{model}.parquet",
                "reached": study.folder(method, "") / "predictions.parquet",
                "baseline": study.folder("fedavg", "") / "predictions.parquet",
            }
            for protocol, reports in paired(study.federation, files).items():
                harms = [
                    replace(harm, reference="local")
                    for harm in scores[method, ""].marks(protocol).harms
                    if harm.reference == MODELS[model]
                ]
                yield Pair(
                    config=f"{study.federation.recipe.dataset} {study.config}",
                    method=method,
                    model=model,
                    protocol=protocol,
                    mitigated=str(scores[method, ""].mitigated),
                    harms=tuple(harms),
                    **reports,
                )


def _head(args: argparse.Namespace, configs: dict[str, list[str]]) -> list[str]:
    lines = ["# The paper's experiments, run again", ""]
    if args.quick:
        lines += ["**A quick run: two rounds, which say nothing of the methods.**", ""]
    for name, chosen in configs.items():
        manifest = read_manifest(getattr(args, name))
        sample = ["**Made of the synthetic sample.**"] if manifest["synthetic"] else []
        notes = " ".join([*sample, *manifest["notes"]])
        lines.append(f"- {name} {manifest['version']}: {', '.join(chosen)}. {notes}".rstrip())
    return [*lines, f"- Training seed {args.seed}.", ""]


def _claims(pairs: Sequence[Pair]) -> list[str]:
    """Return what the claims come to, under the injected protocol and the restored one."""
    if not pairs:
        return []
    rows = [
        {"claim": claim.name, "paper": claim.source}
        | {protocol: _said(found, protocol) for protocol in ("injected", "restored")}
        for claim, found in zip(CLAIMS, ask_all(pairs).values(), strict=True)
    ]
    return ["## What holds", "", _markdown(pd.DataFrame(rows)), "", RULE, ""]


def _said(found: Sequence[tuple[Pair, Evidence]], protocol: str) -> str:
    verdicts = [each.verdict for pair, each in found if pair.protocol == protocol]
    counts = Counter(verdicts).most_common()
    listed = ", ".join(f"{count} {verdict}" for verdict, count in counts)
    return f"{overall(verdicts)} ({listed or 'no run'})"


def _evidence(pairs: Sequence[Pair]) -> list[str]:
    """Return the figures and intervals behind every claim."""
    lines = []
    for claim, found in zip(CLAIMS, ask_all(pairs).values(), strict=True):
        lines += [f"## Evidence: {claim.name}", "", claim.asked, ""]
        table = pd.DataFrame(_row(pair, each) for pair, each in found)
        lines += [_markdown(table) if len(table) else "No run speaks of it.", ""]
    return lines


def _row(pair: Pair, found: Evidence) -> dict[str, object]:
    return {
        "config": pair.config,
        "method": pair.method,
        "local": pair.model,
        "scored": pair.protocol,
        "figure": found.what,
        "value": f"{found.value:.3f} ({found.low:.3f} to {found.high:.3f})",
        "verdict": found.verdict,
    }


def _short(pairs: Sequence[Pair]) -> Iterator[str]:
    for claim, found in ask_all(pairs).items():
        yield f"{claim}: {_said(found, 'injected')}"


def _section(
    study: Study,
    scores: dict[Run, Score],
    models: Sequence[Model],
    pairs: Sequence[Pair],
    out: Path,
    *,
    quick: bool,
) -> str:
    """Return one config's part of the report, and draw its figures."""
    name = f"{study.federation.recipe.dataset} {study.config}"
    lines = [f"## {name}", "", _markdown(comparison(scores)), ""]
    if study.federation.recipe.dataset == "acs":
        lines += _printed(study, scores, models)
    shown = [p for p in pairs if p.protocol == "injected" and not (quick and p.method != "puffle")]
    for pair in tqdm(shown, f"drawing {name}", disable=None):
        for kind, figure in _figures(pair).items():
            file = f"{name.replace(' ', '-')}-{pair.model}-{pair.method}-{kind}.png"
            plots.save(figure, out / "figures" / file)
            said = f"{name}: {MODELS[pair.model]} against {pair.method}, {kind}"
            lines += [f"![{said}](figures/{file})", ""]
    return "\n".join([*lines, ""])


def _figures(pair: Pair) -> dict[str, Any]:
    """Return figures 7 and 8 where attributes compete, 9 and 21 where values do."""
    names = (f"local {pair.model}", pair.method)
    drawn: dict[str, Any] = {
        "differences": plots.differences(pair.local, pair.reached, names=names)
    }
    if pair.mitigated in pair.reached.contenders:
        drawn["parity"] = plots.local_against_global(pair.local, pair.reached, names=names)
    else:
        for attribute in pair.others:
            drawn["movement"] = plots.movement(pair.local, pair.reached, attribute, names=names)
    return drawn


def _printed(study: Study, scores: dict[Run, Score], models: Sequence[Model]) -> list[str]:
    """Return the paper's table of a config, printed against recomputed."""
    from feda4fair_acs.published import TABLES, winners

    if study.config not in TABLES:
        return []
    number, printed = TABLES[study.config]
    found = winners(study.config, [scores[model, ""].injected.report for model in models])
    rows = []
    for value in dict.fromkeys([*printed.values(), *(w.found[0] for w in found)]):
        rows.append(
            {
                "largest DD": value,
                "printed": " ".join(w.client for w in found if w.printed == value),
                "recomputed": " ".join(w.client for w in found if w.found[0] == value),
            }
        )
    agree = sum(winner.agrees for winner in found)
    absent = sorted(set(printed) - {winner.client for winner in found})
    return [
        f"Table {number}, demographic disparity between groups of {len(models)} local model(s), "
        f"without the leaked column: {agree} of {len(found)} clients agree"
        + (f"; not built: {', '.join(absent)}." if absent else "."),
        "",
        _markdown(pd.DataFrame(rows)),
        "",
    ]


def _labels(folder: Path, config: str, out: Path) -> str:
    """Return the label statistics of a CelebA config, and draw them."""
    report = measure(read_federation(folder, config, features=False))
    by_value = len(report.contenders) == 1
    figure = plots.dots(report, report.contenders[0]) if by_value else plots.dots(report)
    file = f"celeba-{config}-labels.png"
    plots.save(figure, out / "figures" / file)
    table = report.summary()
    return "\n".join(
        [f"## celeba {config}", "", _markdown(table), "", f"![Labels](figures/{file})", ""]
    )


def _markdown(table: pd.DataFrame) -> str:
    """Return a table as Markdown, numbers with three digits."""

    def text(value: object) -> str:
        if isinstance(value, float):
            return "-" if pd.isna(value) else f"{value:.3f}"
        return str(value).replace("|", "/")

    lines = [[str(name) for name in table.columns], ["---"] * len(table.columns)]
    lines += [[text(value) for value in row] for row in table.itertuples(index=False)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


if __name__ == "__main__":
    sys.exit(run(main, stopped="stopped; --resume goes on with what is there."))
