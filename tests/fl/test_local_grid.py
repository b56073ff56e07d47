"""The Grid without servers against Flower's own, and against any number of workers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed (extra fl)")
flwr = pytest.importorskip("flwr", reason="flwr is not installed (extra fl)")

from flwr.app import Context, Message, RecordDict  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.serverapp import Grid  # noqa: E402
from flwr.supercore.run import Run  # noqa: E402

from feda4fair.errors import MeasureError  # noqa: E402
from feda4fair.fl.experiment import Place, train_rounds  # noqa: E402
from feda4fair.fl.history import History  # noqa: E402
from feda4fair.fl.local_grid import RUN, SERVER, LocalGrid, _identify, run_local  # noqa: E402
from feda4fair.fl.rows import load_rows  # noqa: E402
from feda4fair.fl.settings import Settings  # noqa: E402

SCRIPT = Path(__file__).resolve().parent.parent.parent / "scripts" / "experiment.py"


def echo() -> ClientApp:
    app = ClientApp()

    @app.query()
    def query(message: Message, context: Context) -> Message:
        return Message(RecordDict(), reply_to=message)

    return app


def test_every_abstract_part_of_flowers_grid_is_there() -> None:
    assert not LocalGrid.__abstractmethods__
    assert Grid.__abstractmethods__ <= vars(LocalGrid).keys()


def test_messages_have_the_identity_that_flower_gives_them() -> None:
    _identify()
    grid = LocalGrid(echo(), 3)
    assert [*grid.get_node_ids()] == [2, 3, 4]
    sent = [Message(RecordDict(), node, "query") for node in grid.get_node_ids()]
    ids = [*grid.push_messages(sent)]
    assert len(set(ids)) == 3
    assert [message.metadata.message_id for message in sent] == ids
    replies = [*grid.pull_messages(ids)]
    assert [*grid.pull_messages(ids)] == []
    for message, reply in zip(sent, replies, strict=True):
        assert (message.metadata.src_node_id, message.metadata.run_id) == (SERVER, RUN)
        assert reply.metadata.reply_to_message_id == message.metadata.message_id
        assert reply.metadata.src_node_id == message.metadata.dst_node_id
        assert reply.metadata.dst_node_id == SERVER
        assert not reply.has_error()
    other = Run.create_empty(7)
    grid.set_run(other)
    assert grid.run is other
    assert [node.node_id for node in grid.get_nodes()] == [2, 3, 4]


def test_a_message_without_sender_is_refused_by_flower(monkeypatch: pytest.MonkeyPatch) -> None:
    # The reason why the Grid says who sends; if flwr stops asking, that private touch can go.
    from flwr.supercore.task_identity import TaskIdentity

    monkeypatch.setattr(TaskIdentity, "_run_id", None)
    with pytest.raises(RuntimeError, match="run_id"):
        Message(RecordDict(), 2, "query")


def settings(**changes: Any) -> Settings:
    return Settings(**{"method": "puffle", "mitigate": "sex", "rounds": 2, "batch": 32, **changes})


def equal(one: History, other: History) -> bool:
    return (
        all(map(np.array_equal, one.arrays, other.arrays))
        and len(one.counts) == len(other.counts)
        and all(
            np.array_equal(here[view], there[view])
            for here, there in zip(one.counts, other.counts, strict=True)
            for view in here
        )
    )


def test_one_and_two_workers_give_the_same_figures(built: Path) -> None:
    place = Place(build=built, config="attribute-device")
    one = train_rounds(place, settings(), None)
    two = train_rounds(place, settings(), None, workers=2)
    assert equal(one, two)
    assert one.table().equals(two.table())


def test_no_worker_is_refused(built: Path) -> None:
    with pytest.raises(MeasureError, match="at least one process"):
        run_local(load_rows, 6, {}, finish=lambda history: None, workers=0)


@pytest.mark.usefixtures("untouched_random")
def test_the_average_weighs_clients_by_their_rows(built: Path) -> None:
    import torch

    from feda4fair.fl.models import arrays, build
    from feda4fair.fl.training import count, train

    before = torch.get_rng_state()
    place = Place(build=built, config="attribute-silo")
    rows, chosen = place.rows(), settings(rounds=1)
    start = arrays(build(rows, 0))
    clients = range(len(rows.clients))
    pooled = sum(count(rows, client, start)["train"] for client in clients)
    trained = [
        train(rows, client, start, chosen, round_number=1, pooled=np.asarray(pooled))[0]
        for client in clients
    ]
    weight = rows.count("train") / rows.count("train").sum()
    by_hand = [
        np.tensordot(weight, np.stack([each[i] for each in trained]).astype(np.float64), 1)
        for i in range(len(start))
    ]
    history = train_rounds(place, chosen, None)
    assert all(
        np.allclose(found, wanted, rtol=1e-6, atol=1e-9)
        for found, wanted in zip(history.arrays, by_hand, strict=True)
    )
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.slow
def test_ray_gives_the_figures_of_this_process_to_the_last_digit(
    built: Path, tmp_path: Path
) -> None:
    pytest.importorskip("ray", reason="ray is not installed (extra ray)")
    arguments = ["attribute-silo", "--method", "fedavg", "--local", "--no-control", "--rounds", 3]
    for backend in ("local", "ray"):  # Ray warns, and leaves threads: not in this process
        command = [sys.executable, SCRIPT, built, *arguments, "--backend", backend, "--out"]
        subprocess.run([*map(str, command), tmp_path / backend], check=True)
    for name in ("rounds.npz", "rounds.parquet", "predictions.parquet", "score.json"):
        one, other = (tmp_path / each / "fedavg" / name for each in ("local", "ray"))
        assert one.read_bytes() == other.read_bytes()
