"""The fairness of a federation in one object: three levels, tests, tables, files, text.

A report is its counts and a definition; everything else follows. So it adds up over workers, is
read back from its own file, and shows the same figures wherever it is opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from feda4fair.archive import attach, pack, read_packed, unpack, write_table
from feda4fair.cube import Attribute, Cube
from feda4fair.disparity import PARTS, Figure, disparity
from feda4fair.errors import MeasureError
from feda4fair.finding import Finding
from feda4fair.heterogeneity import Spread, heterogeneity
from feda4fair.longform import statistics_block
from feda4fair.overview import largest, page, ranked_row, summary
from feda4fair.rates import Against, Metric, rates
from feda4fair.render import Page
from feda4fair.uncertainty import Assessment, Contrast, assess, contrast

__all__ = ["FairnessReport", "Finding", "measure_cube"]

_CHOICES = ("against", "intersections", "compare")
"""What a report holds beside its counts."""


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
    compare : tuple of str
        Attributes that compete for the worst of a client and for its dominant one; the others
        are measured and shown, but never win. Empty means all.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.RandomState(0)
    >>> sex = rng.randint(1, 3, 2000)
    >>> report = measure_cube(
    ...     Cube.count(
    ...         clients=np.arange(2000) % 2,
    ...         client_names=["WY", "VT"],
    ...         attributes={"SEX": (sex, {1: "male", 2: "female"})},
    ...         y_true=rng.rand(2000) < np.where(sex == 1, 0.6, 0.4),
    ...     )
    ... )
    >>> report.worst("WY").toward
    'female'
    """

    cube: Cube
    against: Against = "rest"
    intersections: tuple[tuple[str, ...], ...] = ()
    compare: tuple[str, ...] = ()

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
        for name in self.compare:
            self.cube.attribute(name)
        if len(self._parts) < len(self.cube.attributes) + len(self.intersections):
            raise MeasureError(
                "an intersection is named twice, or crosses a single attribute; name each once, "
                "with two attributes or more."
            )

    @property
    def clients(self) -> tuple[str, ...]:
        """Client names."""
        return self.cube.clients

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """DD of labels, or DD, TPR and FPR of predictions."""
        return ("DD", "TPR", "FPR") if self.cube.has_predictions else ("DD",)

    @property
    def contenders(self) -> tuple[str, ...]:
        """Attributes that compete for the worst of a client."""
        return self.compare or tuple(attribute.name for attribute in self.cube.attributes)

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
        """Which attribute dominates in each client, by metric; empty with one contender."""
        if len(self.contenders) < 2:
            return {}
        return {metric: contrast(self.cube, self.contenders, metric) for metric in self.metrics}

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
        return self._finding(self.cube.client(client), attribute, figure)

    @cached_property
    def _found(self) -> dict[tuple[int, str, Figure], Finding]:
        """Findings that were asked for: tables and figures ask for the same ones again."""
        return {}

    def _finding(self, row: int, attribute: str, figure: Figure) -> Finding:
        key = (row, attribute, figure)
        if key not in self._found:
            self._found[key] = self._judge(row, attribute, figure)
        return self._found[key]

    def _judge(self, row: int, attribute: str, figure: Figure) -> Finding:
        parts = [self._assessment(attribute, metric) for metric in PARTS[figure]]
        found = disparity(figure, [part.part for part in parts], row, self.against)
        metric = found.attained[0].metric if found.attained else PARTS[figure][0]
        judged = self.assessments[attribute, metric]
        lead = self.contrasts.get(metric)
        return Finding(
            client=self.clients[row],
            attribute=attribute,
            disparity=found,
            metric=metric,
            verdict=judged.verdicts[row],
            toward=judged.toward(row),
            worst_set=judged.worst_values(row),
            dominant=lead.dominant(row) if lead else None,
        )

    def worst(self, client: str, figure: Figure = "DD") -> Finding:
        """Return the contender with a client's largest disparity.

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
        found = [self.finding(client, name, figure) for name in self.contenders]
        sizes = [f.disparity.size for f in found]
        most = max((size for size in sizes if size is not None), default=None)
        first, *tied = [f for f, size in zip(found, sizes, strict=True) if size == most]
        names = tuple(f.attribute for f in tied) if most is not None else ()
        return replace(first, tied_with=names)

    def attribute(self, name: str, figure: Figure = "DD") -> pd.DataFrame:
        """Return one attribute's disparity in every client (attribute level).

        Returns
        -------
        pandas.DataFrame
            By client: ``size``, ``attained``, ``verdict``, ``toward``, ``worst_set``,
            ``reason``, and ``accuracy`` with predictions.
        """
        self._check(name)
        found = [self._finding(row, name, figure) for row in range(len(self.clients))]
        frame = pd.DataFrame(
            {
                "size": pd.array([f.disparity.size for f in found], dtype="Float64"),
                "attained": [f.disparity.names for f in found],
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
        found = heterogeneity(self.cube, metric, compare=self.contenders)
        return pd.DataFrame(
            [asdict(spread) for spread in found], columns=[f.name for f in fields(Spread)]
        )

    @cached_property
    def pooled(self) -> FairnessReport:
        """The report of all rows together, as a single client named "pooled"."""
        return replace(self, cube=self.cube.pooled())

    def _blocks(self, *, pooled: bool) -> list[pa.Table]:
        return [
            statistics_block(
                found,
                clients=None if pooled else self.clients,
                rows=self._parts[name].counts.sum(axis=(2, 3)),
                dominant=self.contrasts.get(metric),
                against=self.against,
            )
            for (name, metric), found in self.assessments.items()
        ]

    @cached_property
    def _statistics(self) -> pa.Table:
        blocks = self._blocks(pooled=False) + self.pooled._blocks(pooled=True)
        table = pa.concat_tables(blocks).combine_chunks()
        return attach(table, self.to_json())

    def statistics(self) -> pa.Table:
        """Return the long-form table, whose metadata hold the report itself.

        Returns
        -------
        pyarrow.Table
            Schema :data:`feda4fair.longform.STATISTICS`.
        """
        return self._statistics

    def to_frame(self) -> pd.DataFrame:
        """Return the long-form table as a pandas data frame."""
        frame: pd.DataFrame = self.statistics().to_pandas()
        return frame

    def to_json(self) -> str:
        """Return the report, counts and definition, as JSON."""
        choices = {name: getattr(self, name) for name in _CHOICES}
        return pack(self.cube, **choices)

    @classmethod
    def from_json(cls, text: str | bytes) -> FairnessReport:
        """Rebuild a report from :meth:`to_json`; raise MeasureError for anything else."""
        cube, choices = unpack(text, *_CHOICES)
        return measure_cube(cube, **choices)

    def write_parquet(self, path: str | Path) -> None:
        """Write the statistics table, with the report in its metadata; never half a file."""
        write_table(self.statistics(), Path(path))

    @classmethod
    def read_parquet(cls, path: str | Path) -> FairnessReport:
        """Read a report back from its statistics file; raise MeasureError for any other file."""
        return cls.from_json(read_packed(Path(path)))

    def __eq__(self, other: object) -> bool:
        """Whether definition, intersections and every count agree."""
        if not isinstance(other, FairnessReport):
            return NotImplemented
        return self.cube == other.cube and all(
            getattr(self, name) == getattr(other, name) for name in _CHOICES
        )

    __hash__ = None  # type: ignore[assignment]

    def summary(self) -> pd.DataFrame:
        """Return one row per attribute and metric; see :func:`feda4fair.overview.summary`."""
        return summary(self.assessments, self.pooled.assessments, self.against)

    def ranking(self, most: int = 10) -> pd.DataFrame:
        """Return the clients with the largest demographic disparity, and what earned it."""
        judged = {name: self.assessments[name, "DD"] for name in self.contenders}
        first = largest(judged, self.against)[:most]
        rows = self.cube.rows()
        found = [self.worst(self.clients[k]) for k in first]
        ranked = [
            ranked_row(one, judged[one.attribute], k, int(rows[k]))
            for k, one in zip(first, found, strict=True)
        ]
        return pd.DataFrame(ranked)

    def _page(self) -> Page:
        return page(
            title=f"Fairness of {len(self.clients)} clients, {self.cube.rows().sum():,} rows",
            outcome="predictions" if self.cube.has_predictions else "labels",
            against=self.against,
            tables={"By attribute": self.summary(), "Most biased clients": self.ranking()},
        )

    def __repr__(self) -> str:
        """Say what it is in one line."""
        names = ", ".join(attribute.name for attribute in self.attributes())
        return (
            f"FairnessReport({len(self.clients)} clients, {self.cube.rows().sum():,} rows, "
            f"{names}, against={self.against!r})"
        )

    def __str__(self) -> str:
        """Return the report for a terminal."""
        return self._page().text()

    def _repr_html_(self) -> str:
        """Return the report for a notebook."""
        return self._page().html()

    def _check(self, attribute: str) -> None:
        if attribute not in self._parts:
            raise MeasureError(
                f"attribute {attribute!r} was not measured; the report has "
                f"{', '.join(self._parts)}."
            )

    def _assessment(self, attribute: str, metric: Metric) -> Assessment:
        if metric not in self.metrics:
            raise MeasureError(
                f"{metric} of {attribute}: not in this report, which has "
                f"{', '.join(self.metrics)}; TPR and FPR need predictions."
            )
        return self.assessments[attribute, metric]

    def _rows(self, **wanted: str) -> pd.DataFrame:
        table = self.statistics()
        mask = None
        for column, value in wanted.items():
            here = pc.equal(table[column], value)
            mask = here if mask is None else pc.and_(mask, here)
        frame: pd.DataFrame = table.filter(mask).to_pandas()
        return frame.drop(
            columns=["scope", *(c for c in wanted if c in frame and c != "client_id")]
        )


def measure_cube(
    cube: Cube,
    *,
    against: Against = "rest",
    intersections: Sequence[Sequence[str]] = (),
    compare: Sequence[str] = (),
) -> FairnessReport:
    """Measure every client of a federation from its counts.

    Parameters
    ----------
    cube : Cube
        Counts of all clients, of labels alone or of labels and predictions.
    against : {"rest", "pairs"}
        Definition of the maxima: one value against the rest, or the highest against the lowest
        rate.
    intersections : sequence of sequence of str
        Attributes to measure together, such as ``[("SEX", "RAC1P")]``, beside each alone.
    compare : sequence of str
        Attributes that compete for the worst of a client; all by default.

    Returns
    -------
    FairnessReport
    """
    return FairnessReport(
        cube=cube,
        against=against,
        intersections=tuple(tuple(names) for names in intersections),
        compare=tuple(compare),
    )
