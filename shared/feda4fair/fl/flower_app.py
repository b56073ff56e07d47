"""The apps that ``flwr run`` starts; its settings are those of ``[tool.flwr.app.config]``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from feda4fair.fl.client_app import client_app
from feda4fair.fl.experiment import Place, write_results
from feda4fair.fl.history import History
from feda4fair.fl.methods import parse_option
from feda4fair.fl.rows import load_rows
from feda4fair.fl.server_app import server_app
from feda4fair.fl.settings import Settings

__all__ = ["client", "run_config", "server"]

client = client_app(load_rows)

server = ServerApp()


def run_config(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run config with the text ``options`` taken apart: Flower knows no open keys.

    Examples
    --------
    >>> run_config({"method": "puffle", "options": "weight=0.5 target=0.1"})
    {'method': 'puffle', 'option.weight': 0.5, 'option.target': 0.1}
    """
    config = dict(given)
    for text in str(config.pop("options", "")).split():
        name, value = parse_option(text)
        config[f"option.{name}"] = value
    return config


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Train, and write the results folder that the run config names."""
    config = run_config(context.run_config)
    finished: list[History] = []
    server_app(load_rows, finished.append, config)(grid, context)
    place = Place(build=Path(config["build"]), config=config["config"], control=config["control"])
    write_results(place, Settings.from_flat(config), finished[-1], Path(config["out"]))
