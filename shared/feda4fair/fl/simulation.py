"""Flower's own simulation on Ray, for those who have it: the same apps, the same figures."""

from __future__ import annotations

import logging
import os
from importlib.util import find_spec
from typing import Any

from flwr.simulation import run_simulation

from feda4fair.errors import MissingExtraError
from feda4fair.fl.client_app import client_app
from feda4fair.fl.rows import load_rows
from feda4fair.fl.server_app import Finish, server_app

__all__ = ["run_ray"]


def run_ray(clients: int, run_config: dict[str, Any], *, finish: Finish) -> None:
    """Run server and clients in Flower's simulation, one core for each client at a time.

    Parameters
    ----------
    clients : int
        Number of clients.
    run_config : dict
        See :func:`feda4fair.fl.server_app.server_app`.
    finish : callable
        Called with the history after each round.

    Raises
    ------
    MissingExtraError
        If Ray is not installed.
    """
    if find_spec("ray") is None:
        raise MissingExtraError(
            "ray is not installed; install the extra that brings it: pip install 'feda4fair[ray]'."
        )
    # No report to Ray's maker, and no advice about accelerators, of which none is used.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    logger = logging.getLogger("flwr")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        run_simulation(
            server_app=server_app(load_rows, finish, run_config),
            client_app=client_app(load_rows),
            num_supernodes=clients,
            backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
        )
    finally:
        logger.setLevel(before)
