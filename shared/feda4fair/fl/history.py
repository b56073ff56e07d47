"""What a run knows after each round: the model, and the counts of every client.

The counts are all that clients say about their rows. Kept for every round, they give pooled and
per-client figures long after the run, and a stopped run goes on from them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from feda4fair.cube import Attribute, Cube
from feda4fair.errors import OutputError
from feda4fair.fl.training import VIEWS
from feda4fair.harm import figures
from feda4fair.rates import Against

__all__ = ["History"]

Ints = NDArray[np.int64]

FORMAT = 1


@dataclass(kw_only=True)
class History:
    """The course of a run; grows by one round at a time.

    Parameters
    ----------
    run : mapping
        What the run is: equal for the same run alone.
    clients : tuple of str
        K names.
    attributes : tuple of Attribute
        Sensitive attributes.
    arrays : list of ndarray
        The global model after the last round.
    counts : list of dict of str to ndarray of int64, shape (K, joint groups, 2, 2)
        After each round, the first before any training: rows by view, client, joint group, label
        and prediction.
    reports : list of dict of str to ndarray of float64, shape (K,)
        What objectives reported in each round of training; NaN for clients that did not train.
    """

    run: Mapping[str, Any]
    clients: tuple[str, ...]
    attributes: tuple[Attribute, ...]
    arrays: list[NDArray[Any]] = field(default_factory=list)
    counts: list[dict[str, Ints]] = field(default_factory=list)
    reports: list[dict[str, NDArray[np.float64]]] = field(default_factory=list)

    @property
    def rounds(self) -> int:
        """Number of rounds of training that are done."""
        return len(self.counts) - 1

    @property
    def pooled(self) -> Ints:
        """Counts of all clients' training rows under the global model."""
        total: Ints = self.counts[-1]["train"].sum(axis=0)
        return total

    def cube(self, view: str, round_number: int = -1) -> Cube:
        """Return the counts of a view after a round, of clients that have such rows.

        Raises
        ------
        OutputError
            If no client has.
        """
        counts = self.counts[round_number][view]
        present = counts.sum(axis=(1, 2, 3)) > 0
        if not present.any():
            raise OutputError(f"no client has {view} rows to count.")
        names = tuple(name for name, here in zip(self.clients, present, strict=True) if here)
        return Cube(clients=names, attributes=self.attributes, counts=counts[present])

    def table(self, against: Against = "rest") -> pd.DataFrame:
        """Return every figure of every round in long form.

        Returns
        -------
        pandas.DataFrame
            ``round, view, client_id, figure, attribute, value``; ``client_id`` is "pooled" for
            all clients together; what objectives report stands under the view "report".
        """
        blocks = [*self._measured(against), *self._reported()]
        lengths = [len(block["value"]) for block in blocks]
        columns: dict[str, Any] = {
            name: np.repeat(np.array([block[name] for block in blocks], dtype=kind), lengths)
            for name, kind in (("round", np.int64), ("view", object))
        }
        clients = [name for block in blocks for name in block["client_id"]]
        columns["client_id"] = np.array(clients, dtype=object)
        for name in ("figure", "attribute"):
            names = np.array([block[name] for block in blocks], dtype=object)
            columns[name] = np.repeat(names, lengths)
        columns["value"] = np.concatenate([block["value"] for block in blocks])
        return pd.DataFrame(columns)

    def _measured(self, against: Against) -> Iterator[dict[str, Any]]:
        for round_number, counts in enumerate(self.counts):
            for view in VIEWS:
                if not counts[view].any():
                    continue
                cube = self.cube(view, round_number)
                for one in (cube, cube.pooled()):
                    for (figure, attribute), values in figures(one, against).items():
                        yield {
                            "round": round_number,
                            "view": view,
                            "client_id": one.clients,
                            "figure": figure,
                            "attribute": attribute,
                            "value": values,
                        }

    def _reported(self) -> Iterator[dict[str, Any]]:
        for round_number, report in enumerate(self.reports, start=1):
            for name, values in report.items():
                yield {
                    "round": round_number,
                    "view": "report",
                    "client_id": self.clients,
                    "figure": name,
                    "attribute": "",
                    "value": values,
                }

    def save(self, path: Path) -> None:
        """Write the history; a run that is killed while it does leaves the last one.

        Raises
        ------
        OutputError
            If it cannot be written.
        """
        stored: dict[str, Any] = {
            "facts": np.array(json.dumps({"format": FORMAT, "run": dict(self.run)})),
            **{f"array.{i}": array for i, array in enumerate(self.arrays)},
            **{f"count.{view}": self._stack(self.counts, view) for view in VIEWS},
        }
        for name in sorted({name for report in self.reports for name in report}):
            stored[f"report.{name}"] = np.stack(
                [report.get(name, np.full(len(self.clients), np.nan)) for report in self.reports]
            )
        part = path.with_name(f".{path.name}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with part.open("wb") as stream:
                np.savez_compressed(stream, **stored)
            part.replace(path)
        except OSError as error:
            raise OutputError(
                f"{path}: cannot be written ({error.strerror}); name another folder."
            ) from None
        finally:
            part.unlink(missing_ok=True)

    @staticmethod
    def _stack(counts: Sequence[Mapping[str, Ints]], view: str) -> Ints:
        return np.stack([each[view] for each in counts])

    def restore(self, path: Path) -> None:
        """Take over the rounds that a file holds.

        Raises
        ------
        OutputError
            If the file is damaged or belongs to another run.
        """
        try:
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
                read = {name: stored[name] for name in stored.files}
            facts = json.loads(str(read["facts"]))
            counts = {view: read[f"count.{view}"] for view in VIEWS}
        except (OSError, KeyError, ValueError, EOFError, BadZipFile) as error:
            raise OutputError(
                f"{path}: no checkpoint ({type(error).__name__}); begin without --resume."
            ) from None
        now = json.loads(json.dumps(dict(self.run)))
        if facts.get("format") != FORMAT or facts.get("run") != now:
            old = facts.get("run", {})
            changed = sorted(k for k in {*old, *now} if old.get(k) != now.get(k))
            raise OutputError(
                f"{path}: belongs to another run ({', '.join(changed)} differ); name another "
                "folder, or begin without --resume."
            )
        self.arrays = [
            read[f"array.{i}"] for i in range(sum(n.startswith("array.") for n in read))
        ]
        self.counts = [
            {view: counts[view][i] for view in VIEWS} for i in range(len(counts["train"]))
        ]
        names = [name.removeprefix("report.") for name in read if name.startswith("report.")]
        self.reports = [
            {name: read[f"report.{name}"][i] for name in names} for i in range(self.rounds)
        ]
