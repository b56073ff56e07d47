"""What is known of one attribute in one client, in one object and one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from feda4fair.disparity import Disparity
from feda4fair.rates import Metric
from feda4fair.uncertainty import Verdict

__all__ = ["Finding"]


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
            case _:
                assert_never(self.verdict)
        return f"{self.client}: {self.disparity}; {said}"
