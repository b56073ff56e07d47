"""The apps that ``flwr run`` starts; its settings are those of ``[tool.flwr.app.config]``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from feda4fair.fl.client_app import client_app
from feda4fair.fl.experiment import Place, write_results
from feda4fair.fl.history import History
from feda4fair.fl.rows import load_rows
from feda4fair.fl.server_app import server_app
from feda4fair.fl.settings import Settings

__all__ = ["client", "server"]

client = client_app(load_rows)

server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Train, and write the results folder that the run config names."""
    config: dict[str, Any] = dict(context.run_config)
    finished: list[History] = []
    server_app(load_rows, lambda history: finished.__setitem__(slice(None), [history]))(
        grid, context
    )
    place = Place(build=Path(config["build"]), config=config["config"], control=config["control"])
    write_results(place, Settings.from_flat(config), finished[0], Path(config["out"]))
