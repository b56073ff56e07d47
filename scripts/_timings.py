"""Timings within one process, both sides in turn, run as a process of its own by benchmark.py.

Every function checks that both sides give equal results, then prints the median seconds of ours
and of the other.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa


def in_turn(ours: Callable[[int], Any], theirs: Callable[[int], Any], rounds: int) -> None:
    """Run both sides in turn and print the median seconds of each."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for turn in range(rounds):
        for side, kept in zip((ours, theirs), seconds, strict=True):
            start = time.perf_counter()
            side(turn)
            kept.append(time.perf_counter() - start)
    print(*(median(kept) for kept in seconds))


def rebuild(source: Path, out: Path, states: list[str], year: int) -> None:
    """Time a rebuild of one config from the cached source, and the writing of its Parquet."""
    from feda4fair.build import build, federations
    from feda4fair.parquet import ConfigWriter, arrow_schema, complete
    from feda4fair_acs import DATASET

    (recipe,) = DATASET.choose(["attribute-silo"])
    found = DATASET.open_source(source, recipes=[recipe], states=states, year=year)
    schema = arrow_schema(recipe.schema)
    tables = [
        (complete(rows.filter(federation.split_of(client) == code), schema, found.attach), split)
        for federation in federations(recipe, found)
        for client, rows in federation
        for code, split in enumerate(("train", "validation", "test"))
    ]

    def parquet(turn: int) -> None:
        with ConfigWriter(out / f"parquet-{turn}", recipe, attach=found.attach) as writer:
            for table, split in tables:
                writer.shards[split].write(table)

    in_turn(lambda turn: build(DATASET, [recipe], found, out / f"rebuild-{turn}"), parquet, 7)


def inject(rows: int, rounds: int) -> None:
    """Time injection of 51 clients on codes, and on pandas frames, one for each client."""
    import pandas as pd

    from feda4fair import BiasRule, ClientGroup, Coding, Column, Natural, Recipe, Schema
    from feda4fair.bias import inject as inject_rows
    from feda4fair.bias import released_sampler

    state = np.random.RandomState(0)
    sex, label = (
        state.randint(1, 3, rows).astype(np.int8),
        state.randint(0, 2, rows).astype("int8"),
    )
    others = {f"x{i}": state.randint(0, 100, rows).astype(float) for i in range(9)}
    bounds = np.linspace(0, rows, 52).astype(int)
    rule = BiasRule(where=(("SEX", "Female"),), drop=0.3, flip=0.1)
    coding = Coding(names=((1, "Male"), (2, "Female")))
    recipe = Recipe(
        dataset="bench",
        name="inject",
        schema=Schema(
            columns=(Column(name="SEX", dtype="int8", role="sensitive", coding=coding),)
        ),
        partition=Natural(column="client"),
        groups=(ClientGroup(name="all", rules=(rule,)),),
        sampler="released",
    )
    frames = [
        pd.DataFrame(
            {**{k: v[a:b] for k, v in others.items()}, "SEX": sex[a:b], "label": label[a:b] == 1}
        )
        for a, b in pairwise(bounds)
    ]
    results: dict[str, list[tuple[int, int]]] = {}

    def ours(_: int) -> None:
        results["ours"] = []
        for a, b in pairwise(bounds):
            done = inject_rows(
                "c", {"SEX": sex[a:b]}, label[a:b], (rule,), recipe, released_sampler(42)
            )
            kept = done.rule < 0
            positives = int((label[a:b] ^ done.flipped)[kept].sum())
            results["ours"].append((int(kept.sum()), positives))

    def theirs(_: int) -> None:
        results["theirs"] = []
        for frame in frames:
            changed = frame.copy()
            for operation, rate in (("drop", 0.3), ("flip", 0.1)):
                group = changed[(changed["SEX"] == 2) & changed["label"]]
                count = int(len(group) * rate)
                chosen = np.random.RandomState(42).choice(len(group), count, replace=False)
                if operation == "drop":
                    changed = changed.drop(group.index[chosen])
                else:
                    changed.loc[group.index[chosen], "label"] = False
            results["theirs"].append((len(changed), int(changed["label"].sum())))

    in_turn(ours, theirs, rounds)
    if results["ours"] != results["theirs"]:
        raise SystemExit("inject: the results differ")


def client(rows: int, rounds: int) -> None:
    """Time loading one client of 150 by the index, and by reading all and filtering.

    The other side finds its dataset cached; only the first call of a user pays for that.
    """
    import datasets

    from _scale import block
    from feda4fair import Natural, federate, load_client, write

    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory(prefix="feda4fair-client-") as place:
        folder = Path(place) / "rows"
        write(federate(block(0, rows, 150), partition=Natural("site")), folder)
        results: dict[str, list[int]] = {}

        def ids_of(own: Any) -> list[int]:
            ids: list[int] = own.with_format("arrow")[:]["row_id"].to_pylist()
            return ids

        def ours(_: int) -> None:
            own = load_client(str(folder), "default", "123", split="train")
            results["ours"] = ids_of(own)

        def theirs(_: int) -> None:
            every = datasets.load_dataset(str(folder), "default", split="train")
            own = every.filter(
                lambda ids: [name == "123" for name in ids],
                batched=True,
                input_columns="client_id",
                keep_in_memory=True,
                load_from_cache_file=False,
            )
            results["theirs"] = ids_of(own)

        theirs(0)
        in_turn(ours, theirs, rounds)
    if not results["ours"] or results["ours"] != results["theirs"]:
        raise SystemExit("client: the rows differ")


def partition(kind: str, clients: int, rows: int, rounds: int) -> None:
    """Time the partition of a table and its first client, ours and flwr-datasets'."""
    import datasets
    import pyarrow as pa
    from flwr_datasets.partitioner import DirichletPartitioner, NaturalIdPartitioner

    from feda4fair import Dirichlet, Natural
    from feda4fair.assign import assign

    datasets.disable_progress_bars()
    state = np.random.RandomState(0)
    columns = {f"x{i}": state.randint(0, 100, rows).astype("int16") for i in range(10)}
    label = state.randint(0, 2, rows)
    names = np.array([f"c{i:03d}" for i in range(clients)])[state.randint(0, clients, rows)]
    table = pa.table(
        {**columns, "row": np.arange(rows), "client": pa.array(names), "label": label}
    )
    results: dict[str, list[int]] = {}

    def ours(_: int) -> None:
        chosen = Natural("client") if kind == "natural" else Dirichlet(clients, alpha=0.5)
        codes = assign(table, chosen, seed=7, scope="bench", strata=label)[1]
        first = table.take(pa.array(np.flatnonzero(codes == 0)))
        results["ours"] = first["row"].to_pylist()

    def theirs(_: int) -> None:
        partitioner = (
            NaturalIdPartitioner("client")
            if kind == "natural"
            else DirichletPartitioner(
                clients, partition_by="label", alpha=0.5, min_partition_size=1, seed=7
            )
        )
        partitioner.dataset = datasets.Dataset(table)
        results["theirs"] = sorted(partitioner.load_partition(0)["row"])

    in_turn(ours, theirs, rounds)
    if kind == "natural" and results["ours"] != results["theirs"]:
        raise SystemExit("partition: the first clients differ")
    if not all(results.values()):
        raise SystemExit("partition: a first client is empty")


def fairness(clients: int, rows: int, rounds: int) -> None:
    """Time DD and EOD of all clients from one cube, and with MetricFrame per client."""
    from fairlearn.metrics import (
        MetricFrame,
        false_positive_rate,
        selection_rate,
        true_positive_rate,
    )

    from feda4fair.cube import Cube
    from feda4fair.rates import rates

    state = np.random.RandomState(0)
    client = np.sort(state.randint(0, clients, rows))
    columns = {
        "SEX": state.randint(1, 3, rows),
        "MAR": state.randint(1, 3, rows),
        "RAC1P": state.randint(1, 6, rows),
    }
    truth, predicted = state.randint(0, 2, rows), state.randint(0, 2, rows)
    names = [f"c{i:03d}" for i in range(clients)]
    values = {"SEX": range(1, 3), "MAR": range(1, 3), "RAC1P": range(1, 6)}
    bounds = np.searchsorted(client, np.arange(clients + 1))
    results: dict[str, Any] = {}

    def ours(_: int) -> None:
        cube = Cube.count(
            clients=client,
            client_names=names,
            attributes={n: (c, {v: str(v) for v in values[n]}) for n, c in columns.items()},
            y_true=truth,
            y_pred=predicted,
        )
        spread = {}
        for name in columns:
            part = cube.on(name)
            for metric in ("DD", "TPR", "FPR"):
                rate = rates(part, metric).rate()
                spread[name, metric] = np.nanmax(rate, axis=1) - np.nanmin(rate, axis=1)
        results["ours"] = spread

    def theirs(_: int) -> None:
        metrics = {"DD": selection_rate, "TPR": true_positive_rate, "FPR": false_positive_rate}
        spread = {(n, m): np.empty(clients) for n in columns for m in metrics}
        for k, (a, b) in enumerate(pairwise(bounds)):
            for name, codes in columns.items():
                frame = MetricFrame(
                    metrics=metrics,
                    y_true=truth[a:b],
                    y_pred=predicted[a:b],
                    sensitive_features=codes[a:b],
                )
                difference = frame.difference(method="between_groups")
                for metric in metrics:
                    spread[name, metric][k] = difference[metric]
        results["theirs"] = spread

    in_turn(ours, theirs, rounds)
    for key, spread in results["ours"].items():
        if not np.allclose(spread, results["theirs"][key], atol=1e-12):
            raise SystemExit(f"fairness: {key} differs")


def images(count: int, rounds: int) -> None:
    """Time packaging JPEGs of CelebA's size as they are, and decoding and encoding them again."""
    import pyarrow.parquet as pq
    from PIL import Image

    from feda4fair.shards import write_parquet
    from feda4fair_celeba.images import IMAGE_TYPE, FolderImages, attach_images
    from feda4fair_celeba.source import open_source

    source = open_source(sample=True, images="embed")
    table = source.read().slice(0, count).select(["image_id"])
    names = table["image_id"].to_pylist()
    folder = Path(tempfile.mkdtemp(prefix="feda4fair-images-"))
    for row in source.attach(table)["image"].to_pylist():
        (folder / row["path"]).write_bytes(row["bytes"])
    images = FolderImages(folder=folder)

    def ours(_: int) -> None:
        write_parquet(attach_images(table, images), folder / "ours.parquet")

    def theirs(_: int) -> None:
        rows = []
        for name in names:
            buffer = io.BytesIO()
            with Image.open(folder / name) as picture:
                picture.convert("RGB").save(buffer, "JPEG", quality=95)
            rows.append({"bytes": buffer.getvalue(), "path": name})
        packed = table.append_column("image", pa.array(rows, IMAGE_TYPE))
        pq.write_table(packed, folder / "theirs.parquet")

    in_turn(ours, theirs, rounds)
    for row in pq.read_table(folder / "ours.parquet")["image"].to_pylist():
        if row["bytes"] != (folder / row["path"]).read_bytes():
            raise SystemExit(f"images: {row['path']} differs from its file")
    shutil.rmtree(folder)


def main() -> None:
    """Run one timing: its name, then its arguments."""
    match sys.argv[1:]:
        case ["rebuild", source, out, year, *states]:
            rebuild(Path(source), Path(out), states, int(year))
        case ["inject", rows, rounds]:
            inject(int(rows), int(rounds))
        case ["client", rows, rounds]:
            client(int(rows), int(rounds))
        case ["partition", kind, clients, rows, rounds]:
            partition(kind, int(clients), int(rows), int(rounds))
        case ["fairness", clients, rows, rounds]:
            fairness(int(clients), int(rows), int(rounds))
        case ["images", count, rounds]:
            images(int(count), int(rounds))
        case other:
            raise SystemExit(f"no such timing: {other}")


if __name__ == "__main__":
    main()
