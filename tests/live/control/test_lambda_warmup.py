"""Warm-up of a model's function: of each of its versions that answers, by its share of the requests."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mark.config.settings import Settings
from mark.domain.load.traffic import GatewayReport, ModelTraffic
from mark.domain.models.versions import ModelVersions, Rollout, RolloutPhase
from mark.live.clock import ServiceClock
from mark.live.control.data_plane import LiveDataPlane
from mark.live.control.drivers.driver_factory import DriverFactory
from mark.live.control.lambda_warmup import Warmer
from mark.live.models import LiveModel, make_live_models, service_spec
from mark.store.connect import connect
from mark.store.embedded import EmbeddedRedis
from mark.store.service import ServiceStore

SETTINGS = Settings.model_validate({"service": {"serve": [{"model": "inception-v3", "expected_rps": 40.0}]}})
OLD, NEW = "aaaaaaaaaaaa", "bbbbbbbbbbbb"
NAME = "mark-mark-inception-v3"


class Pings:
    """Lambda: each ping is answered by a warm environment."""

    def __init__(self) -> None:
        self.sent: Counter[tuple[str, str]] = Counter()  # function and version

    def invoke(self, **asked: Any) -> dict[str, Any]:
        self.sent[asked["FunctionName"], json.loads(asked["Payload"]).get("mark-version", "")] += 1
        return {"Payload": BytesIO(b"{}")}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ServiceStore]:
    with EmbeddedRedis(tmp_path / "redis") as server:
        yield ServiceStore(connect(server.url), "mark")


def warmer_of(store: ServiceStore, model: LiveModel, pings: Pings) -> Warmer:
    """The warmer of a controller, which knows the settings alone."""
    aws: Any = SimpleNamespace(invoking=lambda **_: pings)
    anything: Any = SimpleNamespace()
    lease = store.leases.acquire("controller-0", 60.0)
    assert lease is not None
    factory = DriverFactory(SETTINGS, anything, store=store, aws=aws, lease=lease, front=anything)
    return factory.warmer(model, ServiceClock(store))


@pytest.mark.parametrize("has_versions", [True, False])
def test_what_gateways_call_is_what_is_warmed(store: ServiceStore, has_versions: bool) -> None:
    """The store says whether the function has versions; a controller's settings do not."""
    (model,) = make_live_models(SETTINGS)
    served = replace(model.served, version=OLD, function_versions=has_versions)
    store.put_spec(service_spec(SETTINGS, [replace(model, served=served)]))
    store.begin_versions([served])
    pings = Pings()
    assert warmer_of(store, model, pings).warm(5).answered == 5
    assert pings.sent == {(NAME, OLD if has_versions else ""): 5}


def test_a_candidate_is_warmed_for_its_share_though_gateways_find_the_stable_version_warm(
    store: ServiceStore,
) -> None:
    (model,) = make_live_models(SETTINGS)
    served = replace(model.served, version=OLD, function_versions=True)
    store.put_spec(service_spec(SETTINGS, [replace(model, served=served)]))
    store.begin_versions([served])
    pings = Pings()
    warmer = warmer_of(store, model, pings)
    warmer.warm(10)
    clock = ServiceClock(store)
    plane = LiveDataPlane(
        store, model.name, clock=clock, next_unit_at=clock.now(), monitor=None, target=0.98, warmed=warmer.believed
    )
    assert plane.lambda_warm() == 10
    rollout = Rollout(
        id="1", before=OLD, candidate=NEW, phase=RolloutPhase.DWELLING, weight=0.25, began_at=0.0, since=0.0
    )
    lease = store.leases.acquire("controller-0", 60.0)
    assert lease is not None
    store.put_versions(ModelVersions(model=model.name, stable=OLD, rollout=rollout), lease)
    assert plane.lambda_warm() == 0
    warmer.warm(10)
    assert pings.sent == {(NAME, OLD): 20, (f"{NAME}_2", NEW): 3}
    assert plane.lambda_warm() >= 10
    # what gateways report counts the candidate, too
    store.report(GatewayReport(gateway="g", sequence=1, models=(ModelTraffic(model=model.name, lambda_warm=12),)))
    assert plane.lambda_warm() == 12
