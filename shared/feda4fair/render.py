"""A titled page of tables, for a terminal and for a notebook."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

import pandas as pd

__all__ = ["Page"]

_WIDTH = 99


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Title, caption, tables and notes.

    Parameters
    ----------
    title, caption : str
        Head of the page.
    tables : mapping of str to pandas.DataFrame
        By heading; printed without their index.
    notes : tuple of str
        What a reader must know to read the tables.
    """

    title: str
    caption: str
    tables: Mapping[str, pd.DataFrame]
    notes: tuple[str, ...]

    def text(self) -> str:
        """Return the page as plain text."""
        parts = [f"{self.title} ({self.caption})"]
        for heading, frame in self.tables.items():
            body = frame.to_string(index=False, na_rep="-", float_format=_three)
            parts.append(f"{heading}\n{textwrap.indent(body, '  ')}")
        parts += [textwrap.fill(note, _WIDTH) for note in self.notes]
        return "\n\n".join(parts)

    def html(self) -> str:
        """Return the page as an HTML fragment; every text of the data is escaped."""
        tables = "".join(
            f"<h4>{escape(heading)}</h4>"
            + frame.to_html(index=False, na_rep="-", float_format=_three, border=0)
            for heading, frame in self.tables.items()
        )
        notes = "".join(f"<p><small>{escape(note)}</small></p>" for note in self.notes)
        head = f"<strong>{escape(self.title)}</strong> <em>({escape(self.caption)})</em>"
        return f"<div>{head}{tables}{notes}</div>"


def _three(number: float) -> str:
    return f"{number:.3f}"
