"""Federated training on Flower: models, methods, backends, results.

Examples
--------
>>> from feda4fair.fl.methods import method_names
>>> method_names()
('fedavg', 'puffle', 'reweighing')
"""

from __future__ import annotations

import os

# flwr reads it when it is imported, and would report every simulation to its maker.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")

try:
    import flwr as flwr
    import torch as torch
except ImportError:
    from feda4fair.errors import MissingExtraError

    raise MissingExtraError(
        "feda4fair.fl trains with torch and flwr, which are not installed; "
        "run pip install 'feda4fair[fl]'."
    ) from None
