"""The ClientApp: trains and counts on the rows of one client.

The server says with every message which federation and which settings a round belongs to, so that
one app serves every run. A client keeps nothing from one message to the next.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from feda4fair.fl.rows import Rows
from feda4fair.fl.settings import Settings
from feda4fair.fl.training import count, train

__all__ = ["Load", "client_app"]

Load = Callable[[str, str, str], Rows]
"""Rows of a folder, a config and a control."""


def client_app(load: Load) -> ClientApp:
    """Return the app of all clients.

    Parameters
    ----------
    load : callable
        Gives the rows; called with every message, so it remembers them.

    Returns
    -------
    ClientApp
        Answers ``train`` and ``evaluate``. The client is the Flower partition ``partition-id``.
        A reply has one MetricRecord with ``num-examples`` and ``partition-id``; after training
        also the parameters and what the objective reports, after evaluation the counts of every
        view as flat lists.
    """
    made = ClientApp()

    @made.train()
    def on_train(message: Message, context: Context) -> Message:
        config = message.content["config"]
        rows, client = _mine(load, message, context)
        arrays, report = train(
            rows,
            client,
            message.content["arrays"].to_numpy_ndarrays(),
            Settings.from_flat(config),
            round_number=int(config["round"]),
            pooled=np.array(config["pooled"], dtype=np.int64).reshape(rows.groups, 2, 2),
        )
        metrics = MetricRecord(
            {
                "num-examples": int(rows.count("train")[client]),
                "partition-id": client,
                **{f"report.{name}": value for name, value in report.items()},
            }
        )
        content = RecordDict({"arrays": ArrayRecord(arrays), "metrics": metrics})
        return Message(content, reply_to=message)

    @made.evaluate()
    def on_evaluate(message: Message, context: Context) -> Message:
        rows, client = _mine(load, message, context)
        counted = count(rows, client, message.content["arrays"].to_numpy_ndarrays())
        metrics = MetricRecord(
            {
                "num-examples": int(sum(table.sum() for table in counted.values())),
                "partition-id": client,
                **{view: table.ravel().tolist() for view, table in counted.items()},
            }
        )
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return made


def _mine(load: Load, message: Message, context: Context) -> tuple[Rows, int]:
    config = message.content["config"]
    rows = load(str(config["build"]), str(config["config"]), str(config["control"]))
    return rows, int(context.node_config["partition-id"])
