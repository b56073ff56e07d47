"""The page that dashboard.py serves: the library's dashboard with the built-in datasets."""

from __future__ import annotations

import sys

from feda4fair.dashboard.app import page
from feda4fair_acs import DATASET as ACS
from feda4fair_celeba import DATASET as CELEBA
from feda4fair_dutch import DATASET as DUTCH

page((ACS, DUTCH, CELEBA), paths="--no-paths" not in sys.argv)
