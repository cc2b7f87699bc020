"""Short variants of the studies: the same code, less load, no LSTM to train."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from mark.domain.demand import Demand, Forecast, point_forecast
from mark.plugins.load import build_forecaster
from mark.ports import Forecaster, ForecasterSetup
from mark.simulator.engine.compiled import (
    CentralKernel,
    Kernel,
    VariantKernel,
    compiled_central_kernel,
    compiled_variant_kernel,
)
from mark.studies.study import StudyContext


def untrained(name: str, setup: ForecasterSetup) -> Forecaster:
    return build_forecaster("last-value" if name.startswith("lstm") else name, setup)


def central_kernel() -> CentralKernel:
    """As machine code, compiled in some 10 s on first use."""
    return compiled_central_kernel(Path(tempfile.gettempdir()) / "mark-test-engine")


def variant_kernel() -> VariantKernel:
    """As machine code, compiled likewise."""
    return compiled_variant_kernel(Path(tempfile.gettempdir()) / "mark-test-engine")


class Steady:
    """What an LSTM of a calm day forecasts: that day's load, whatever comes."""

    def __init__(self, setup: ForecasterSetup) -> None:
        self._mean_rps = sum(setup.history.mean_rps) / len(setup.history)
        self._max_rps = sum(setup.history.max_rps) / len(setup.history)

    def forecast(self, history: Demand, horizon: int) -> Forecast:
        return point_forecast(
            history.end_at,
            mean_rps=(self._mean_rps,) * horizon,
            max_rps=(self._max_rps,) * horizon,
            source="steady",
        )


def steady(name: str, setup: ForecasterSetup) -> Forecaster:
    return Steady(setup) if name.startswith("lstm") else build_forecaster(name, setup)


def made(kernel: Kernel, build: Callable[[str, ForecasterSetup], Forecaster]) -> StudyContext:
    return StudyContext(
        kernel=kernel,
        central_kernel=central_kernel,
        variant_kernel=variant_kernel,
        build_forecaster=build,
        cache_dir=None,
        seed=0,
    )


@pytest.fixture(scope="session")
def context(kernel: Kernel) -> StudyContext:
    return made(kernel, untrained)


@pytest.fixture(scope="session")
def calm_context(kernel: Kernel) -> StudyContext:
    return made(kernel, steady)
