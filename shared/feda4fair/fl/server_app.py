"""The ServerApp: rounds of training and counting, a checkpoint after each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import Strategy

from feda4fair.errors import MeasureError
from feda4fair.fl.client_app import Load
from feda4fair.fl.history import History
from feda4fair.fl.models import arrays, build
from feda4fair.fl.rows import Rows
from feda4fair.fl.settings import Settings
from feda4fair.fl.training import VIEWS

__all__ = ["CHECKPOINT", "Counting", "Finish", "new_history", "server_app"]

CHECKPOINT = "rounds.npz"
"""Name of the checkpoint in the folder of a run."""

Finish = Callable[[History], object]


class Counting(Strategy):
    """Averages parameters by rows, and keeps the counts of every client.

    All clients take part in every round. Replies are put into the order of the clients before
    they are averaged, in double precision, so that no backend's timing shows in the result.

    Parameters
    ----------
    history : History
        Goes on from its last round, and grows.
    config : mapping
        Sent to the clients: what to load and the settings.
    done : callable
        Called with the history after each round.
    """

    def __init__(self, history: History, config: dict[str, Any], done: Finish) -> None:
        self.history = history
        self.config = config
        self.done = done
        self.before = max(history.rounds, 0)
        self.trains: list[int] = []

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send the model, the round and the pooled counts to every client with training rows."""
        if not self.trains:
            counted = self._count(grid, arrays)
            if not self.history.counts:
                self.history.counts.append(self._counts(counted))
            self.trains = sorted(
                reply.metadata.src_node_id for reply in counted if sum(_metrics(reply)["train"])
            )
        facts = {
            **self.config,
            "round": self.before + server_round,
            "pooled": self.history.pooled.ravel().tolist(),
        }
        return self._messages(self.trains, "train", arrays, facts)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Average the parameters; a client weighs by its training rows."""
        sorted_replies = _sorted(replies)
        rows = [int(_metrics(reply)["num-examples"]) for reply in sorted_replies]
        totals: list[Any] = []
        for weight, reply in zip(rows, sorted_replies, strict=True):
            values = reply.content["arrays"].to_numpy_ndarrays()
            totals = totals or [np.zeros(value.shape) for value in values]
            for total, value in zip(totals, values, strict=True):
                total += weight * value.astype(np.float64)
        self.history.arrays = [(total / sum(rows)).astype(np.float32) for total in totals]
        self.history.reports.append(self._reports(sorted_replies))
        return ArrayRecord(self.history.arrays), None

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send the model to every client."""
        return self._messages(sorted(grid.get_node_ids()), "evaluate", arrays, self.config)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Keep the counts of every client, and end the round."""
        self.history.counts.append(self._counts(_sorted(replies)))
        self.done(self.history)
        return None

    def summary(self) -> None:
        """Say nothing: the settings are in the results folder."""

    def _count(self, grid: Grid, arrays: ArrayRecord) -> list[Message]:
        return _sorted(
            grid.send_and_receive(
                self._messages(sorted(grid.get_node_ids()), "evaluate", arrays, self.config)
            )
        )

    def _messages(
        self, nodes: Iterable[int], kind: str, arrays: ArrayRecord, facts: dict[str, Any]
    ) -> list[Message]:
        return [
            Message(RecordDict({"arrays": arrays, "config": ConfigRecord(facts)}), node, kind)
            for node in nodes
        ]

    def _counts(self, replies: list[Message]) -> dict[str, Any]:
        """Return the counts of all clients by view, in client order."""
        groups = int(np.prod([len(each.values) for each in self.history.attributes]))
        shape = (len(self.history.clients), groups, 2, 2)
        return {
            view: np.array([_metrics(reply)[view] for reply in replies]).reshape(shape)
            for view in VIEWS
        }

    def _reports(self, replies: list[Message]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for reply in replies:
            metrics = _metrics(reply)
            for name in (key for key in metrics if key.startswith("report.")):
                empty = np.full(len(self.history.clients), np.nan)
                values = found.setdefault(name.removeprefix("report."), empty)
                values[int(metrics["partition-id"])] = metrics[name]
        return found


def new_history(rows: Rows, settings: Settings, config: dict[str, Any]) -> History:
    """Return the history of a run before its first round."""
    identity = {**config, "rows": rows.federation, "width": len(rows.label)}
    identity.pop("build")
    return History(
        run=identity,
        clients=rows.clients,
        attributes=rows.attributes,
        arrays=list(arrays(build(rows, settings.seed))),
    )


def server_app(
    load: Load,
    finish: Finish = lambda history: None,
    run_config: Mapping[str, Any] | None = None,
) -> ServerApp:
    """Return the app of the server.

    Parameters
    ----------
    load : callable
        Gives the rows; the server takes names and shapes from them.
    finish : callable
        Called with the history after each round, and at once where none is left.
    run_config : mapping, optional
        Takes the place of the run config of the context.

    Returns
    -------
    ServerApp
        Its run config names ``build``, ``config``, ``control``, the settings, and ``out``, the
        folder of the checkpoint, or nothing for none; ``resume`` goes on from the checkpoint
        that is there.
    """
    made = ServerApp()

    @made.main()
    def main(grid: Grid, context: Context) -> None:
        wanted = context.run_config if run_config is None else run_config
        settings = Settings.from_flat(wanted)
        place = {name: str(wanted[name]) for name in ("build", "config", "control")}
        rows = load(place["build"], place["config"], place["control"])
        config = {**place, **settings.flat()}
        history = new_history(rows, settings, config)
        path = Path(str(wanted["out"])) / CHECKPOINT if wanted["out"] else None
        if path and wanted.get("resume") and path.exists():
            history.restore(path)

        def done(state: History) -> None:
            if path:
                state.save(path)
            finish(state)

        left = settings.rounds - max(history.rounds, 0)
        if left > 0:
            strategy = Counting(history, config, done)
            strategy.start(grid, ArrayRecord(history.arrays), num_rounds=left)
        else:
            finish(history)

    return made


def _metrics(reply: Message) -> MetricRecord:
    return reply.content["metrics"]


def _sorted(replies: Iterable[Message]) -> list[Message]:
    """Return the replies in client order.

    Raises
    ------
    MeasureError
        If a client failed.
    """
    found = list(replies)
    failed = [reply for reply in found if reply.has_error()]
    if failed:
        reason = (failed[0].error.reason or "no reason given").strip().splitlines()[-1]
        raise MeasureError(
            f"{len(failed)} of {len(found)} clients failed, the first with: {reason}"
        )
    return sorted(found, key=lambda reply: int(_metrics(reply)["partition-id"]))
