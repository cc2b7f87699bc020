"""The floor of a service: below what every replay in which all models keep their objectives pays."""

from __future__ import annotations

import tempfile
from pathlib import Path

import hypothesis
import pytest
import yaml
from hypothesis import settings
from hypothesis import strategies as st

from mark.config.footprint import footprint_of
from mark.config.settings import Settings, load_settings
from mark.offline.service_members import service_members
from mark.policies.spec import Overrides
from mark.simulator.engine.compiled import DeviceKernel, Kernel
from mark.simulator.services.service_bound import service_bound
from mark.simulator.services.service_replay import replay_service
from mark.simulator.services.service_run import ServiceRun, join_runs
from scripts.acceptance.zoo import ZooModel, write_zoo

POLICIES = ("hedged", "hedged", "hedged", "fleet-per-model", "static-peak", "lambda-only", "reactive")
NEVER_ABOVE = 1 + 1e-9
SMALL = [ZooModel("a", 40.0, 8.0, 0.0), ZooModel("b", 20.0, 12.0, 0.0), ZooModel("c", 60.0, 6.0, 0.0)]


@st.composite
def zoos(draw: st.DrawFn) -> list[ZooModel]:
    """Three or four models with their peak near the replayed minutes: together worth an instance."""
    return [
        ZooModel(
            name,
            latency_ms=draw(st.floats(15.0, 60.0)),
            peak_rps=draw(st.floats(5.0, 15.0)),
            peak_hour=draw(st.floats(0.0, 3.0)),
        )
        for name in ("a", "b", "c", "d")[: draw(st.integers(3, 4))]
    ]


def service(folder: str, models: list[ZooModel], **own: object) -> Settings:
    """Twenty minutes of the zoo in the ideal world; `own` is of its first model."""
    write_zoo(Path(folder), models, seed=1)
    file = Path(folder) / "service.yaml"
    known = yaml.safe_load(file.read_text())
    known["trace"]["duration_s"] = 1200
    known["simulate"] = {"world": "ideal"}
    known["service"]["serve"][0].update(own)
    file.write_text(yaml.safe_dump(known))
    return load_settings(file, {})


def replayed(chosen: Settings, policy: str, kernels: tuple[Kernel, DeviceKernel]) -> ServiceRun:
    members = service_members(chosen)
    forced = Overrides(forecaster="last-value")
    return join_runs(replay_service(members, policy, kernels=kernels, overrides=forced), footprint_of(chosen))


@settings(max_examples=3, deadline=None)
@hypothesis.example(models=SMALL, policy="hedged", sharing="any")
@hypothesis.given(models=zoos(), policy=st.sampled_from(POLICIES), sharing=st.sampled_from(["any", "alone"]))
def test_no_run_that_keeps_all_objectives_serves_for_less(
    kernel: Kernel, device_kernel: DeviceKernel, models: list[ZooModel], policy: str, sharing: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        chosen = service(folder, models, sharing=sharing)
        bound = service_bound(service_members(chosen))
        run = replayed(chosen, policy, (kernel, device_kernel))
    assert bound.floor_usd is not None
    assert bound.reference_usd is not None
    assert 0.0 <= bound.floor_usd <= bound.reference_usd * NEVER_ABOVE
    if run.keeps_objectives:
        assert bound.floor_usd <= run.cost.serving * NEVER_ABOVE


def test_launches_are_left_out_for_those_who_may_share_alone(tmp_path: Path) -> None:
    """A load that rises: who rents its own pays for the launches on the way."""
    rising = [ZooModel("a", 40.0, 400.0, 3.0), ZooModel("b", 40.0, 400.0, 3.0)]
    shared = service_bound(service_members(service(str(tmp_path), rising)))
    apart = service_bound(service_members(service(str(tmp_path), rising, sharing="alone")))
    assert [model.may_share for model in shared.models] == [True, True]
    assert [model.may_share for model in apart.models] == [False, False], "b has nobody left to share with"
    assert shared.floor_usd is not None
    assert apart.floor_usd is not None
    assert shared.floor_usd < apart.floor_usd
    assert shared.apart_usd == pytest.approx(apart.apart_usd)
