"""Both sides of every benchmark line, each run as a process of its own by benchmark.py.

The last line of output counts rows and positives; both sides of a line must print the same.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

YEAR = 2017
"""A year without known row counts, so that made-up files of any size pass for a source."""


def widen_sample(root: Path, states: list[str], *, copies: int) -> int:
    """Write the built-in sample as 286-column person files, repeated, and return their bytes.

    The needed columns stand where the Census files of 2018 have them; the rest is filled with
    values of the kind that stands there (replicate weights, allocation flags, blanks).
    """
    from feda4fair_acs.sample import write_pums
    from feda4fair_acs.schema import FIPS

    places = {
        "RT": 0, "SERIALNO": 1, "SPORDER": 3, "ST": 6, "ADJINC": 7, "PWGTP": 8, "AGEP": 9,
        "COW": 12, "MAR": 38, "RELP": 62, "SCHL": 66, "SEX": 68, "WKHP": 72, "OCCP": 100,
        "PINCP": 103, "POBP": 104, "RAC1P": 111,
    }  # fmt: skip
    narrow = root.parent / "narrow"
    folder = root / str(YEAR) / "1-Year"
    folder.mkdir(parents=True)
    size = 0
    for path in write_pums(narrow, states):
        header, *rows = path.read_text("ascii").splitlines()
        names = header.split(",")
        order = {place: names.index(name) for name, place in places.items() if name in names}
        titles = [f"X{i}" for i in range(286)]
        for name, place in places.items():
            titles[place] = name
        wide = []
        for number, row in enumerate(rows):
            values = row.split(",")
            fill = ["", "2", "0", str(number % 97)]
            cells = [
                fill[(i * 7 + number) % 4] if i < 206 else str((i * number) % 211)
                for i in range(286)
            ]
            for place in places.values():
                cells[place] = values[order[place]] if place in order else "1"
            wide.append(",".join(cells))
        text = "\n".join(wide) + "\n"
        target = folder / f"psam_p{FIPS[path_state(path)]:02d}.csv"
        with target.open("w", encoding="ascii") as stream:
            stream.write(",".join(titles) + "\n")
            for _ in range(copies):
                stream.write(text)
        size += target.stat().st_size
    return size


def path_state(path: Path) -> str:
    """Return the postal code of a person file."""
    from feda4fair_acs.schema import FIPS

    return {code: state for state, code in FIPS.items()}[int(path.stem[-2:])]


def ours(source: Path, out: Path, configs: list[str], states: list[str]) -> None:
    """Build configs into Parquet; the cache folder comes from the environment."""
    from feda4fair.build import build
    from feda4fair_acs import DATASET

    recipes = DATASET.choose(configs)
    found = DATASET.open_source(source, recipes=recipes, states=states, year=YEAR)
    manifest = build(DATASET, recipes, found, out)
    chosen = [manifest["configs"][name] for name in configs]
    print(sum(config["rows"] for config in chosen), sum(config["positives"] for config in chosen))


def folktables(source: Path, out: Path, configs: list[str], states: list[str]) -> None:
    """Read each state with folktables, inject with pandas, write one CSV for each client."""
    import numpy as np
    from folktables import ACSDataSource, ACSIncome

    from feda4fair_acs import DATASET

    rows = positives = 0
    for recipe in DATASET.choose(configs):
        rules = {group.name: group.rules[0] for group in recipe.groups}
        (out / recipe.name).mkdir(parents=True)
        census = ACSDataSource(
            survey_year=str(YEAR), horizon="1-Year", survey="person", root_dir=str(source)
        )
        for state in states:
            raw = census.get_data(states=[state], download=False)
            features, label, _ = ACSIncome.df_to_pandas(raw)
            frame = features.assign(label=label.iloc[:, 0])
            for attribute in ("MAR", "RAC1P"):
                coding = recipe.schema[attribute].coding
                if coding is not None:
                    frame[attribute] = frame[attribute].map(dict(coding.recode))
            if state in rules:
                frame = inject_with_pandas(frame, rules[state], recipe)
            frame = frame.iloc[np.random.default_rng(42).permutation(len(frame))]
            for client, piece in pieces_with_pandas(state, frame, recipe).items():
                piece.to_csv(out / recipe.name / f"{client}.csv", index=False)
                rows += len(piece)
                positives += int(piece["label"].sum())
    print(rows, positives)


def inject_with_pandas(frame: Any, rule: Any, recipe: Any) -> Any:
    """Drop and flip as the released procedure does."""
    import numpy as np

    attribute, value = rule.where[0]
    code = recipe.schema.code(attribute, value)
    for operation, rate in (("drop", rule.drop), ("flip", rule.flip)):
        group = frame.index[(frame[attribute] == code) & frame["label"]]
        count = int(len(group) * rate)
        chosen = group[np.random.RandomState(42).choice(len(group), count, replace=False)]
        if operation == "drop":
            frame = frame.drop(index=chosen)
        else:
            frame.loc[chosen, "label"] = False
    return frame


def pieces_with_pandas(state: str, frame: Any, recipe: Any) -> dict[str, Any]:
    """Cut a state into its kept clients."""
    if recipe.subdivide is None:
        return {state: frame}
    parts = recipe.subdivide.parts
    if recipe.subdivide.cut == "floor":
        size = len(frame) // parts
        cut = [frame.iloc[i * size : (i + 1) * size] for i in range(parts)]
    else:
        sizes = [len(frame) // parts + (i < len(frame) % parts) for i in range(parts)]
        cut = [frame.iloc[sum(sizes[:i]) : sum(sizes[: i + 1])] for i in range(parts)]
    return {f"{state}_{i}": p for i, p in enumerate(cut) if f"{state}_{i}" in recipe.keep}


def main() -> None:
    """Make the source, or run one side: its name, the source, the output, configs, states."""
    match sys.argv[1:]:
        case ["widen", root, copies, *states]:
            print(widen_sample(Path(root), states, copies=int(copies)))
        case ["ours", source, out, configs, *states]:
            ours(Path(source), Path(out), configs.split(","), states)
        case ["folktables", source, out, configs, *states]:
            folktables(Path(source), Path(out), configs.split(","), states)
        case other:
            raise SystemExit(f"no such side: {other}")


if __name__ == "__main__":
    main()
