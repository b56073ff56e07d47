"""Flower without servers: a Grid that calls the ClientApp directly, in this process or a few.

A Grid is a public, abstract class, but messages get their identity from private places of flwr.
All touches of those are here, and a test holds them to what flwr does.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from feda4fair.errors import MeasureError
from feda4fair.fl.client_app import Load, client_app
from feda4fair.fl.server_app import Finish, server_app

__all__ = ["LocalGrid", "run_local"]

Place = tuple[str, str, str]

SERVER = 1
RUN = 1


class LocalGrid(Grid):
    """A Grid whose nodes are the partitions 0 to K - 1 of one ClientApp.

    Parameters
    ----------
    app : ClientApp
        Answers in this process; not used where there is a pool.
    clients : int
        K.
    pool : ProcessPoolExecutor, optional
        Processes that were begun with :func:`_begin`.
    """

    def __init__(
        self, app: ClientApp, clients: int, pool: ProcessPoolExecutor | None = None
    ) -> None:
        self.app = app
        self.clients = clients
        self.pool = pool
        self.replies: dict[str, Message] = {}
        self._run = Run.create_empty(RUN)
        self._sent = 0

    def set_run(self, run: Run) -> None:
        """Take another run."""
        self._run = run

    @property
    def run(self) -> Run:
        """The run."""
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Return a message."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """Return the nodes: partition plus 2, since 1 is the server."""
        return range(SERVER + 1, SERVER + 1 + self.clients)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Let the clients answer; the replies wait to be pulled."""
        pushed = list(messages)
        for message in pushed:
            self._sent += 1
            message.metadata.__dict__["_message_id"] = str(self._sent)
        answers = map(self._answer, pushed) if self.pool is None else self._spread(pushed)
        for message, reply in zip(pushed, answers, strict=True):
            self.replies[message.metadata.message_id] = reply
        return [message.metadata.message_id for message in pushed]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies to messages, each once."""
        found = [self.replies.pop(name, None) for name in message_ids]
        return [reply for reply in found if reply is not None]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Let the clients answer and return their replies in the order of the messages."""
        return self.pull_messages(self.push_messages(messages))

    def _answer(self, message: Message) -> Message:
        return self.app(message, _context(message.metadata.dst_node_id))

    def _spread(self, messages: list[Message]) -> Iterator[Message]:
        assert self.pool is not None
        return self.pool.map(_answer_there, messages)


def _context(node: int) -> Context:
    """Return a context as Flower's simulation makes it; nothing is kept in it."""
    return Context(
        run_id=RUN,
        node_id=node,
        node_config={"partition-id": node - SERVER - 1},
        state=RecordDict(),
        run_config={},
    )


_there: list[ClientApp] = []


def _begin(load: Load, place: Place) -> None:
    """Begin a worker: read the rows once."""
    _identify()
    load(*place)
    _there[:] = [client_app(load)]


def _answer_there(message: Message) -> Message:
    return _there[0](message, _context(message.metadata.dst_node_id))


def _identify() -> None:
    """Say who sends: flwr asks for it when a message is made."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = RUN, SERVER, RUN


def run_local(
    load: Load, clients: int, run_config: dict[str, Any], *, finish: Finish, workers: int = 1
) -> None:
    """Run server and clients in this process, or the clients in some others.

    Parameters
    ----------
    load : callable
        Gives the rows; can be pickled where there are workers.
    clients : int
        Number of clients.
    run_config : dict
        See :func:`feda4fair.fl.server_app.server_app`.
    finish : callable
        Called with the history after each round.
    workers : int, default 1
        Processes; any number gives the same figures.
    """
    if workers < 1:
        raise MeasureError(f"workers {workers}: at least one process is needed.")
    server = server_app(load, finish)
    context = Context(RUN, SERVER, {}, RecordDict(), run_config)
    build, config, control = (str(run_config[name]) for name in ("build", "config", "control"))
    place = (build, config, control)
    app = client_app(load)
    with _quiet():
        _identify()
        if workers == 1:
            server(LocalGrid(app, clients), context)
            return
        pool = ProcessPoolExecutor(
            workers, get_context("spawn"), initializer=partial(_begin, load, place)
        )
        with pool:
            server(LocalGrid(app, clients, pool), context)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep flwr's own account of a run off the terminal."""
    logger = logging.getLogger("flwr")
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)
