"""The dashboard: design a fairness benchmark without writing code (paper, section 3.4)."""

from __future__ import annotations

from typing import Final

__all__ = ["UPLOAD_MB"]

UPLOAD_MB: Final = 200
"""Largest upload in megabytes; larger files are named by their path."""
