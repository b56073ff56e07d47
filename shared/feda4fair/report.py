"""The fairness of a federation in one object: three levels, tests, tables, files, pictures in text.

A report is its counts and a definition; everything else follows. So it adds up over workers, is
read back from its own file, and shows the same figures wherever it is opened.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from feda4fair.cube import Attribute, Cube
from feda4fair.disparity import PARTS, Disparity, Figure, disparity
from feda4fair.errors import MeasureError
from feda4fair.heterogeneity import Spread, heterogeneity
from feda4fair.rates import Against, Metric, rates
from feda4fair.statistics import STATISTICS, statistics_block
from feda4fair.uncertainty import Assessment, Contrast, Verdict, assess, contrast

__all__ = ["FairnessReport", "Finding", "measure_cube"]

_FORMAT = 1
_METADATA = b"feda4fair.report"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What is known of one attribute in one client.

    Parameters
    ----------
    client, attribute : str
        Where.
    disparity : Disparity
        The figure with its definition, what attains it, and the counts behind it.
    metric : {"DD", "TPR", "FPR"}
        The metric that the rest speaks of: for EOD the one that attains the maximum.
    verdict : {"toward", "disparity", "small", "undetermined", "undefined"}
        See :func:`feda4fair.uncertainty.assess`.
    toward : str or None
        The value that the client is biased toward, when that is earned.
    worst_set : tuple of str
        Values that cannot be told from the worst one.
    dominant : str or None
        The client's dominant attribute, "undecided", "undefined", or None with one attribute.
    tied_with : tuple of str
        Other attributes of exactly the same size.
    """

    client: str
    attribute: str
    disparity: Disparity
    metric: Metric
    verdict: Verdict
    toward: str | None
    worst_set: tuple[str, ...]
    dominant: str | None
    tied_with: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the finding in one sentence."""
        match self.verdict:
            case "toward":
                said = f"biased toward {self.toward}"
            case "disparity":
                said = f"disparity, worst in {{{', '.join(self.worst_set)}}}"
            case "small":
                said = "small: all gaps within 0.05"
            case "undetermined":
                said = "undetermined: not told from no bias, not shown to be small"
            case "undefined":
                said = "no figure"
        return f"{self.client}: {self.disparity}; {said}"


@dataclass(frozen=True, kw_only=True, eq=False)
class FairnessReport:
    """Disparities of every client at three levels, with tests, intervals and verdicts.

    Parameters
    ----------
    cube : Cube
        Counts of all clients.
    against : {"rest", "pairs"}
        Definition of the maxima; signed gaps of values are always against the rest.
    intersections : tuple of tuple of str
        Attributes measured together, beside each alone.

    Examples
    --------
    >>> rng = np.random.RandomState(0)
    >>> sex = rng.randint(1, 3, 2000)
    >>> report = measure_cube(Cube.count(
    ...     clients=np.arange(2000) % 2, client_names=["WY", "VT"],
    ...     attributes={"SEX": (sex, {1: "male", 2: "female"})},
    ...     y_true=rng.rand(2000) < np.where(sex == 1, 0.6, 0.4)))
    >>> report.worst("WY").toward
    'female'
    """

    cube: Cube
    against: Against = "rest"
    intersections: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        """Refuse an empty federation and a definition that does not exist."""
        if not self.cube.clients or not self.cube.attributes:
            raise MeasureError(
                f"a report needs clients and sensitive attributes; got {len(self.cube.clients)} "
                f"and {len(self.cube.attributes)}."
            )
        if self.against not in ("rest", "pairs"):
            raise MeasureError(
                f"against={self.against!r}: no such definition; use 'rest' or 'pairs'."
            )

    @property
    def clients(self) -> tuple[str, ...]:
        """Client names."""
        return self.cube.clients

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """DD of labels, or DD, TPR and FPR of predictions."""
        return ("DD", "TPR", "FPR") if self.cube.has_predictions else ("DD",)

    @cached_property
    def _parts(self) -> dict[str, Cube]:
        """One cube for each attribute and intersection, by name."""
        groups = [(a.name,) for a in self.cube.attributes] + list(self.intersections)
        parts = [self.cube.on(*group) for group in groups]
        return {part.attributes[0].name: part for part in parts}

    @cached_property
    def assessments(self) -> dict[tuple[str, Metric], Assessment]:
        """Tests and verdicts of all clients, by attribute and metric."""
        return {
            (name, metric): assess(rates(part, metric))
            for name, part in self._parts.items()
            for metric in self.metrics
        }

    @cached_property
    def contrasts(self) -> dict[Metric, Contrast]:
        """Which attribute dominates in each client, by metric; empty with one attribute."""
        if len(self.cube.attributes) < 2:
            return {}
        return {metric: contrast(self.cube, metric=metric) for metric in self.metrics}

    def attributes(self) -> tuple[Attribute, ...]:
        """Return all attributes measured, intersections last."""
        return tuple(part.attributes[0] for part in self._parts.values())

    def finding(self, client: str, attribute: str, figure: Figure = "DD") -> Finding:
        """Return what is known of one attribute in one client.

        Parameters
        ----------
        client, attribute : str
            Where; an intersection is named ``"SEX & RAC1P"``.
        figure : {"DD", "EOD"}
            EOD needs predictions.
        """
        self._check(attribute)
        row = self.cube.client(client)
        parts = [self._assessment(attribute, metric) for metric in PARTS[figure]]
        found = disparity(figure, [part.part for part in parts], row, self.against)
        metric = found.attained[0].metric if found.attained else PARTS[figure][0]
        judged = self.assessments[attribute, metric]
        lead = self.contrasts.get(metric)
        return Finding(
            client=client,
            attribute=attribute,
            disparity=found,
            metric=metric,
            verdict=judged.verdicts[row],
            toward=judged.toward(row),
            worst_set=judged.worst_values(row),
            dominant=lead.dominant(row) if lead else None,
        )

    def worst(self, client: str, figure: Figure = "DD") -> Finding:
        """Return the attribute with a client's largest disparity, intersections aside.

        Parameters
        ----------
        client : str
            Client name.
        figure : {"DD", "EOD"}
            EOD needs predictions.

        Returns
        -------
        Finding
            The first attribute of the largest size; ``tied_with`` names the others. An undefined
            one when no attribute has a figure.
        """
        found = [self.finding(client, a.name, figure) for a in self.cube.attributes]
        sizes = [f.disparity.size for f in found]
        most = max((size for size in sizes if size is not None), default=None)
        first, *tied = [f for f, size in zip(found, sizes, strict=True) if size == most]
        names = tuple(f.attribute for f in tied) if most is not None else ()
        return _replace(first, tied_with=names)

    def attribute(self, name: str, figure: Figure = "DD") -> pd.DataFrame:
        """Return one attribute's disparity in every client (attribute level).

        Returns
        -------
        pandas.DataFrame
            By client: ``size``, ``attained``, ``verdict``, ``toward``, ``worst_set``,
            ``reason``, and ``accuracy`` with predictions.
        """
        found = [self.finding(client, name, figure) for client in self.clients]
        frame = pd.DataFrame(
            {
                "size": pd.array([f.disparity.size for f in found], dtype="Float64"),
                "attained": [_attained(f.disparity) for f in found],
                "verdict": [f.verdict for f in found],
                "toward": [f.toward for f in found],
                "worst_set": [f.worst_set for f in found],
                "reason": [f.disparity.reason for f in found],
            },
            index=pd.Index(self.clients, name="client_id"),
        )
        if self.cube.has_predictions:
            frame.insert(1, "accuracy", self.cube.accuracy())
        return frame

    def value(self, name: str, value: str, metric: Metric = "DD") -> pd.DataFrame:
        """Return the signed gap of one value in every client (value level), with its counts."""
        self._check(name)
        self._parts[name].attributes[0].index(value)
        self._assessment(name, metric)
        rows = self._rows(attribute=name, value=value, metric=metric, scope="client")
        return rows.set_index("client_id")

    def matrix(self, client: str, name: str, metric: Metric = "DD") -> pd.DataFrame:
        """Return all values of one attribute in one client (attribute-value level)."""
        self._check(name)
        self.cube.client(client)
        self._assessment(name, metric)
        return self._rows(attribute=name, client_id=client, metric=metric).set_index("value")

    def heterogeneity(self, metric: Metric = "DD") -> pd.DataFrame:
        """Return H1 to H5 and the skew of the federation, each beside its null.

        Returns
        -------
        pandas.DataFrame
            One row per figure; see :class:`feda4fair.heterogeneity.Spread`.
        """
        self._assessment(self.cube.attributes[0].name, metric)
        found = heterogeneity(self.cube, metric=metric)
        return pd.DataFrame(
            [asdict(spread) for spread in found], columns=[f.name for f in fields(Spread)]
        )

    @cached_property
    def _statistics(self) -> pa.Table:
        pooled = self.cube.pooled()
        leads = {
            metric: contrast(pooled, metric=metric) for metric in self.metrics if self.contrasts
        }
        blocks = []
        for (name, metric), found in self.assessments.items():
            rows = self._parts[name].counts.sum(axis=(2, 3))
            blocks.append(
                statistics_block(
                    found, clients=self.clients, rows=rows, against=self.against,
                    dominant=self.contrasts.get(metric),
                )
            )
            together = assess(rates(self._parts[name].pooled(), metric))
            blocks.append(
                statistics_block(
                    together, clients=None, rows=rows.sum(axis=0, keepdims=True),
                    against=self.against, dominant=leads.get(metric),
                )
            )
        table = pa.concat_tables(blocks).combine_chunks()
        return table.replace_schema_metadata({_METADATA: self.to_json()})

    def statistics(self) -> pa.Table:
        """Return the long-form table, whose metadata hold the report itself.

        Returns
        -------
        pyarrow.Table
            Schema :data:`feda4fair.statistics.STATISTICS`.
        """
        return self._statistics

    def to_frame(self) -> pd.DataFrame:
        """Return the long-form table as a pandas data frame."""
        frame: pd.DataFrame = self.statistics().to_pandas()
        return frame

    def to_json(self) -> str:
        """Return the report, counts and definition, as JSON."""
        cube = self.cube
        return json.dumps(
            {
                "format": _FORMAT,
                "against": self.against,
                "intersections": self.intersections,
                "clients": cube.clients,
                "attributes": [asdict(attribute) for attribute in cube.attributes],
                "counts": cube.counts.tolist(),
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> FairnessReport:
        """Rebuild a report from :meth:`to_json`; raise MeasureError for anything else."""
        try:
            read = json.loads(text)
            if read["format"] != _FORMAT:
                raise MeasureError(
                    f"report of format {read['format']}, expected {_FORMAT}; read it with the "
                    "version of feda4fair that wrote it."
                )
            attributes = tuple(
                Attribute(name=a["name"], values=tuple(a["values"]), codes=tuple(a["codes"]))
                for a in read["attributes"]
            )
            cube = Cube(
                clients=tuple(read["clients"]),
                attributes=attributes,
                counts=np.array(read["counts"], dtype=np.int64),
            )
            crossed = tuple(tuple(names) for names in read["intersections"])
            return measure_cube(cube, against=read["against"], intersections=crossed)
        except (KeyError, TypeError, json.JSONDecodeError) as error:
            raise MeasureError(
                f"not a fairness report ({type(error).__name__}: {error}); expected the text "
                "that FairnessReport.to_json wrote."
            ) from error

    def write_parquet(self, path: str | Path) -> None:
        """Write the statistics table, with the report in its metadata; never half a file."""
        target = Path(path)
        part = target.with_name(f".{target.name}.part")
        try:
            pq.write_table(self.statistics(), part, compression="zstd")
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)

    @classmethod
    def read_parquet(cls, path: str | Path) -> FairnessReport:
        """Read a report back from its statistics file; raise MeasureError for any other file."""
        try:
            metadata = pq.read_schema(path).metadata or {}
        except (OSError, pa.ArrowInvalid) as error:
            raise MeasureError(f"{path}: no readable Parquet file ({error}).") from error
        if _METADATA not in metadata:
            raise MeasureError(
                f"{path}: holds no fairness report; expected a statistics file of feda4fair."
            )
        return cls.from_json(metadata[_METADATA])

    def __eq__(self, other: object) -> bool:
        """Whether definition, intersections and every count agree."""
        if not isinstance(other, FairnessReport):
            return NotImplemented
        return (self.against, self.intersections, self.cube) == (
            other.against,
            other.intersections,
            other.cube,
        )

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        """Return the report for a terminal."""
        return show.text(self)

    def _repr_html_(self) -> str:
        """Return the report for a notebook."""
        return show.html(self)
