"""Training by an order: the forecaster is made as everywhere, and what it leaves in its cache is the result."""

from __future__ import annotations

import tempfile
from pathlib import Path

from mark.domain.errors import MarkError
from mark.plugins.load import build_forecaster
from mark.plugins.trained import TrainingOrder, compose_failure, compose_result
from mark.ports import ForecasterSetup


def train_by_order(order: TrainingOrder) -> tuple[bytes, str]:
    """The result of the training, and what went wrong, empty where nothing did."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        setup = ForecasterSetup(history=order.history, seed=order.seed, cache_dir=folder)
        try:
            build_forecaster(order.forecaster, setup)
            files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        except (MarkError, OSError, MemoryError) as error:
            why = " ".join(str(error).split()) or type(error).__name__
            return compose_failure(order, why), why
        return compose_result(order, files), ""
