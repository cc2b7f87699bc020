"""Requests with sizes through a service on the emulated AWS, and through a replay of the same load."""

from __future__ import annotations

from pathlib import Path

import pytest

from mark.config.service import OfferingSettings, ServiceSettings
from mark.config.settings import Settings, SimulateSettings
from mark.config.trace import TraceSettings
from mark.domain.offerings.offering import Market
from mark.live.commands.rehearsal import rehearse
from mark.simulator.traces.generators import constant
from mark.simulator.traces.trace import write_trace


# The supervisor outlives the command that starts it: it is ended by its id, and nobody waits for its exit status.
@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
@pytest.mark.slow
def test_a_service_keeps_the_objective_for_sized_requests_as_its_replay_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARK_STATE", str(tmp_path / "state"))
    file = tmp_path / "trace.csv.gz"
    write_trace(constant(30.0, duration_s=1200.0, seed=5), file)
    settings = Settings(
        model="rm2",
        market=Market.ON_DEMAND,
        policies=("hedged",),
        offerings=OfferingSettings(types=("r5n.large", "c5n.2xlarge")),
        trace=TraceSettings(
            file=str(file), start_s=900.0, duration_s=180.0, speed=4.0, sizes="lognormal:4,0.6,1,400"
        ),
        simulate=SimulateSettings(world="ideal"),
        service=ServiceSettings(name="sized", port=0, status_port=0),
        seed=5,
    )
    rehearsed = rehearse(settings, show_live=False)
    load, replay = rehearsed.load, rehearsed.result
    assert load["sent"] > 1000
    assert load["errors"] == {"retried": 0}
    assert load["attained"] == pytest.approx(replay.attained, abs=0.01)
    half_take_ms = 12.923  # what the faster type's profile says of 30 items; half of the requests have 55 or more
    assert (load["latency_ms"]["p50"] or 0.0) > half_take_ms
