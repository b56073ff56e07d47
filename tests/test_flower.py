"""Federations for Flower: the same clients by number, by name, and through plain Flower."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pytest
from small_release import DEVICES, SILOS, small_release

from feda4fair import Federation, Recipe, federate
from feda4fair.build import federations
from feda4fair.errors import MissingExtraError, OutputError, RecipeError, SchemaError
from feda4fair.federation import concat
from feda4fair_acs import DATASET as ACS

flwr_datasets = pytest.importorskip("flwr_datasets", reason="extra flower")

from flwr_datasets import FederatedDataset  # noqa: E402
from flwr_datasets.partitioner import NaturalIdPartitioner  # noqa: E402

from feda4fair.flower import ClientPartitioner, FromFlower, to_flower  # noqa: E402

CONFIGS = {"attribute-silo": SILOS, "value-device": DEVICES}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("flower")
    return {config: small_release(base / config, [config]) for config in CONFIGS}


def in_memory(config: str) -> Federation:
    recipe = ACS.recipe(config)
    clients = CONFIGS[config]
    source = ACS.open_source(None, recipes=[recipe], clients=clients, sample=True)
    return concat(federations(recipe, source, clients))


@pytest.fixture(autouse=True)
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep Flower from reporting its use, and from leaving a file in the home folder."""
    monkeypatch.setattr("flwr_datasets.federated_dataset.event", lambda *_, **__: None)


@pytest.mark.parametrize("config", CONFIGS)
def test_plain_flower_gives_the_same_clients(folders: dict[str, Path], config: str) -> None:
    federation = in_memory(config)
    for split in sorted({part for part in ("train", "test") if (federation.split == 2).any()}):
        plain = FederatedDataset(
            dataset=str(folders[config]),
            subset=config,
            partitioners={split: NaturalIdPartitioner("client_id")},
            shuffle=False,
        )
        present = [c.name for c in federation.clients if federation.client(c.name, split).num_rows]
        for number, name in enumerate(present):
            partition = plain.load_partition(number)
            expected = federation.client(name, split)
            assert partition.data.table.column_names == expected.column_names
            for column in expected.column_names:
                assert partition[column][:] == expected[column].to_pylist()
        assert plain.partitioners[split].num_partitions == len(present)


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("form", ["memory", "folder"])
def test_clients_by_number_and_by_name(folders: dict[str, Path], config: str, form: str) -> None:
    federation = in_memory(config)
    flower = to_flower(federation) if form == "memory" else to_flower(folders[config], config)
    for split in flower.partitioners:
        clients = flower.clients(split)
        assert flower.partitioners[split].num_partitions == len(clients)
        for number, name in enumerate(clients):
            rows = flower.load_partition(number, split)
            expected = federation.client(name, split)
            assert rows["row_id"][:] == expected["row_id"].to_pylist()
            assert rows["client_id"][:] == [name] * len(rows)
            assert flower.load_partition(name, split)[:] == rows[:]
            assert len(rows)
        whole = flower.load_split(split)
        assert len(whole) == sum(len(flower.load_partition(n, split)) for n in clients)


def test_silo_clients_keep_their_number_and_devices_are_numbered_by_split() -> None:
    silo, device = to_flower(in_memory("attribute-silo")), to_flower(in_memory("value-device"))
    assert silo.clients("train") == silo.clients("test") == ("VT", "WY")
    assert device.clients("train") == ("AK_0",)
    assert device.clients("test") == ("AL_0", "TX_0")


def test_a_flower_partitioner_of_ours_goes_where_flowers_go(folders: dict[str, Path]) -> None:
    clients = ["UT", "VT", "WY"]
    federated = FederatedDataset(
        dataset=str(folders["attribute-silo"]),
        subset="attribute-silo",
        partitioners={"train": ClientPartitioner(clients), "test": ClientPartitioner(clients)},
        shuffle=True,
        seed=3,
    )
    federation = in_memory("attribute-silo")
    for split in ("train", "test"):
        assert len(federated.load_partition(0, split)) == 0
        for number in (1, 2):
            rows = federated.load_partition(number, split)
            expected = federation.client(clients[number], split)["row_id"].to_pylist()
            assert rows["row_id"][:] != expected  # Flower shuffled them
            assert sorted(rows["row_id"][:]) == sorted(expected)
            assert set(rows["client_id"][:]) == {clients[number]}


def rows_of(clients: list[Any], **more: Any) -> datasets.Dataset:
    return datasets.Dataset.from_dict(
        {"client_id": clients, "x": list(range(len(clients)))} | more
    )


@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_rows_is_partitioned_whole(seed: int) -> None:
    rng = np.random.RandomState(seed)
    clients = rng.choice(["a", "b", "c", "d"], 200)
    ours, theirs = ClientPartitioner(), NaturalIdPartitioner("client_id")
    ours.dataset, theirs.dataset = rows_of(clients.tolist()), rows_of(clients.tolist())
    assert ours.clients == ("a", "b", "c", "d")
    for number in range(4):
        assert ours.load_partition(number)["x"][:] == theirs.load_partition(number)["x"][:]
    seen = [x for number in range(4) for x in ours.load_partition(number)["x"][:]]
    assert sorted(seen) == list(range(200))


def test_rows_side_by_side_are_a_slice_without_indices() -> None:
    ours = ClientPartitioner()
    ours.dataset = rows_of(["b"] * 3 + ["a"] * 2)
    assert ours.load_partition("b")._indices is None
    assert ours.load_partition(0)["x"][:] == [3, 4]
    numbers = ClientPartitioner(column="x")
    numbers.dataset = rows_of(["b", "b"])
    assert numbers.load_partition("1")["x"][:] == [1]


@pytest.mark.parametrize(
    ("clients", "wanted", "said"),
    [
        (["a", "b"], 2, "partition 2: there are 2, numbered from 0"),
        (["a", "b"], -1, "partition -1: there are 2"),
        (["a", "b"], 0.5, "partition 0.5: there are 2"),
        (["a", "b"], None, "partition None: there are 2"),
        ([], 0, "partition 0: there are 0"),
        (["a", "b"], "c", "client 'c': none of 2, a to b"),
    ],
)
def test_a_foreign_client_is_refused(clients: list[str], wanted: Any, said: str) -> None:
    ours = ClientPartitioner()
    ours.dataset = rows_of(clients)
    with pytest.raises(RecipeError, match=said):
        ours.load_partition(wanted)


def test_datasets_that_do_not_fit_are_refused() -> None:
    ours = ClientPartitioner(["a"])
    ours.dataset = rows_of(["a", "b"])
    with pytest.raises(RecipeError, match="the dataset holds b, which is not among the 1"):
        ours.load_partition(0)
    ours = ClientPartitioner(column="who")
    ours.dataset = rows_of(["a"])
    with pytest.raises(SchemaError, match="no column 'who' among client_id, x"):
        ours.num_partitions  # noqa: B018
    ours = ClientPartitioner()
    ours.dataset = rows_of(["a", None])
    with pytest.raises(SchemaError, match="1 rows name no client in client_id"):
        ours.load_partition(0)


def test_provenance_can_be_left_out() -> None:
    bare = to_flower(in_memory("attribute-silo"), provenance=False)
    for rows in (bare.load_partition("WY"), bare.load_split("test")):
        assert rows.column_names[0] == "AGEP"
        assert rows.column_names[-1] == "label"


def test_what_cannot_be_opened_is_said_in_one_sentence(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    federation = in_memory("attribute-silo")
    folder = folders["attribute-silo"]
    with pytest.raises(RecipeError, match="a federation is one config"):
        to_flower(federation, "attribute-silo")
    with pytest.raises(RecipeError, match="name one of its configs"):
        to_flower(folder)
    with pytest.raises(OutputError, match="nonsense cannot be loaded") as caught:
        to_flower(folder, "nonsense")
    assert "\n" not in str(caught.value)
    with pytest.raises(OutputError, match="value-silo cannot be loaded"):
        to_flower(tmp_path, "value-silo")
    with pytest.raises(RecipeError, match="split 'dev': there are train, validation, test"):
        to_flower(federation).load_partition(0, "dev")


def test_flowers_plots_take_our_partitioners() -> None:
    from flwr_datasets.metrics import compute_counts

    flower = to_flower(in_memory("attribute-silo"))
    counts = compute_counts(flower.partitioners["train"], column_name="label")
    federation = in_memory("attribute-silo")
    expected = [
        np.bincount(federation.client(name, "train")["label"].to_numpy()).tolist()
        for name in ("VT", "WY")
    ]
    assert counts.to_numpy().tolist() == expected


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("flwr_datasets", "flwr_datasets.partitioner"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "feda4fair.flower")
    with pytest.raises(MissingExtraError, match=r"pip install 'feda4fair\[flower\]'"):
        import_module("feda4fair.flower")


# Flower's partitioners as partitions


@pytest.mark.filterwarnings("ignore:Specifying null_placement:FutureWarning")  # of datasets
@pytest.mark.parametrize("kind", ["dirichlet", "natural", "linear", "shards"])
def test_any_partitioner_of_flower_is_kept_as_its_assignment(kind: str, tmp_path: Path) -> None:
    from flwr_datasets import partitioner as flower

    rows = pa.table(
        {
            "town": np.array(["x", "y", "z"])[np.arange(300) % 3],
            "sex": np.array(["f", "m"])[np.arange(300) // 3 % 2],
            "label": np.arange(300) // 7 % 2,
        }
    )
    made = {
        "dirichlet": lambda: flower.DirichletPartitioner(4, "label", 1.0, min_partition_size=5),
        "natural": lambda: flower.NaturalIdPartitioner("town"),
        "linear": lambda: flower.LinearPartitioner(3),
        "shards": lambda: flower.ShardPartitioner(5, "label", num_shards_per_partition=2),
    }[kind]
    federation = federate(rows, partition=FromFlower(made()))
    assert federate(rows, recipe=Recipe.from_json(federation.recipe.to_json())).table.equals(
        federation.table
    )
    theirs = made()
    theirs.dataset = datasets.Dataset(rows.append_column("row", pa.array(np.arange(300))))
    for number, client in enumerate(federation.clients):
        expected = sorted(theirs.load_partition(number)["row"])
        assert sorted(federation.client(client.name)["row_id"].to_pylist()) == expected


def test_a_partitioner_of_flower_serves_again() -> None:
    from flwr_datasets import partitioner as flower

    rows = pa.table({"sex": ["f", "m"] * 100, "label": [1] * 100 + [0] * 100})
    partition = FromFlower(flower.DirichletPartitioner(4, "label", 1.0, seed=3))
    first, again = (federate(rows, partition=partition, seed=seed).recipe for seed in (1, 2))
    assert first.partition == again.partition


def test_partitions_of_flower_that_cannot_be_clients_are_refused() -> None:
    from flwr_datasets import partitioner as flower

    rows = pa.table({"sex": ["f", "m"] * 100, "label": [1] * 190 + [0] * 10})
    skewed = flower.DirichletPartitioner(20, "label", 0.01, min_partition_size=0)
    with pytest.raises(RecipeError, match="of 20 partitions are empty"):
        federate(rows, partition=FromFlower(skewed))
    with pytest.raises(RecipeError, match="int is no partitioner of flwr_datasets"):
        federate(rows, partition=FromFlower(3))  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match="cannot part these rows"):
        federate(rows, partition=FromFlower(flower.NaturalIdPartitioner("town")))
