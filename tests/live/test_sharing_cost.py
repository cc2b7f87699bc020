"""What sharing a pool among gateways costs, by replay of what a service's store tells."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mark.config.settings import Settings
from mark.controller.journal import Header, entry_line, header_line
from mark.controller.state import Decision, Observation, State
from mark.dispatch.central.policy import CentralPolicy, CentralRule
from mark.domain.billing.costs import LedgerRecord
from mark.domain.clock import ClockAnchor
from mark.domain.demand import Demand, DemandUnit
from mark.domain.fleet.instances import FleetView, InstanceState
from mark.domain.fleet.member import Peer
from mark.domain.load.size_window import SizeCounts
from mark.domain.load.traffic import ModelTraffic
from mark.domain.models.objective import Slo
from mark.live.cost_report.replays import replay_days
from mark.live.cost_report.sharing import replay_sharing
from mark.report.cost.read import Period
from mark.report.cost.sharing import SharingCost, keep_sharing_cost, sharing_cost
from mark.service_spec import ServedModel
from mark.simulator.engine.compiled import CentralKernel
from mark.store.published_status import MODEL, PublishedInstance, PublishedModel
from mark.store.snapshot import Snapshot, StoredModel
from tests.controller.builders import POLICY
from tests.live.served_day import SERVED, SPEC
from tests.planner.builders import offering

FAST = offering("fast", usd_per_hour=0.5, points={1: 0.05, 4: 0.2})
SLOW = offering("slow", usd_per_hour=0.1, points={1: 0.2, 4: 1.2})
NAME = SERVED.name
POOLED = replace(
    SERVED,
    slo=Slo(latency_s=0.6, target=0.98),
    offerings=(SLOW, FAST),
    central=CentralPolicy(rule=CentralRule.KAIROS),
)
SETTINGS = Settings.model_validate({"model": NAME, "trace": {"sizes": "constant:2"}})
MIX: SizeCounts = ((1, 900), (4, 300))


class Store(Snapshot):
    """A service with so many gateways as its documents say."""

    def gateways(self) -> tuple[Peer, ...]:
        """Those that are up."""
        count = int((self.status("gateways") or {"count": 0})["count"])
        return tuple(Peer(name=f"g-{number}", host="h", port=1) for number in range(count))


def store(*, gateways: int, ready: tuple[str, ...], sizes: SizeCounts = (), model: ServedModel = POOLED) -> Store:
    header = Header(policy=POLICY, catalogue="c", seed=0, history=Demand(end_at=0.0, mean_rps=(), max_rps=()))
    unit = DemandUnit(start_at=0.0, count=1200, mean_rps=20.0, max_rps=20.0, sizes=sizes)
    seen = Observation(now=60.0, fleet=FleetView(), demand=unit)
    lines = (header_line(header), entry_line(FleetView(), seen, Decision(state=State())))
    traffic, ledger = ModelTraffic(model=NAME), LedgerRecord(transitions=())
    stored = StoredModel(traffic=traffic, ledger=ledger, segments={1: tuple(line.decode() for line in lines)})
    spec = replace(SPEC, models=(model,))
    made = Store(at=60.0, described=spec, anchor=ClockAnchor(), models={NAME: stored})
    made.put_status("gateways", {"count": gateways})
    there = [
        PublishedInstance(id=f"i-{n}", offering=name, state=InstanceState.READY) for n, name in enumerate(ready)
    ]
    there.append(PublishedInstance(id="i-boots", offering=FAST.name, state=InstanceState.PENDING))
    MODEL.write(made, PublishedModel(observed=tuple(there)), NAME)
    return made


def test_one_queue_for_all_serves_more_than_one_a_gateway(central_kernel: CentralKernel) -> None:
    pool = (*(FAST.name,) * 2, *(SLOW.name,) * 4)
    found = replay_sharing(
        store(gateways=2, ready=pool, sizes=MIX), POOLED, SETTINGS, kernel=lambda: central_kernel
    )
    assert found is not None
    assert (found.gateways, dict(found.pool), found.sizes) == (2, {FAST.name: 2, SLOW.name: 4}, "measured")
    assert 0 < found.shared_qps < found.one_queue_qps
    assert found.lost == pytest.approx(1 - found.shared_qps / found.one_queue_qps)


def test_a_gateway_without_the_only_fast_instance_keeps_no_rate(central_kernel: CentralKernel) -> None:
    pool = (FAST.name, SLOW.name, SLOW.name)
    found = replay_sharing(
        store(gateways=2, ready=pool, sizes=MIX), POOLED, SETTINGS, kernel=lambda: central_kernel
    )
    assert found is not None
    assert found.one_queue_qps > 0
    assert (found.shared_qps, found.lost) == (0.0, 1.0)


def test_sizes_are_those_of_the_settings_where_the_journal_knows_none(central_kernel: CentralKernel) -> None:
    pool = (FAST.name, FAST.name)
    found = replay_sharing(store(gateways=2, ready=pool), POOLED, SETTINGS, kernel=lambda: central_kernel)
    assert found is not None
    assert found.sizes == "constant:2"
    assert 0 < found.shared_qps <= found.one_queue_qps


@pytest.mark.parametrize(("gateways", "ready"), [(1, (FAST.name,) * 2), (3, (FAST.name,) * 2), (2, ())])
def test_without_anything_to_share_nothing_is_replayed(gateways: int, ready: tuple[str, ...]) -> None:
    def never() -> CentralKernel:
        raise AssertionError("nothing is to be replayed")

    assert replay_sharing(store(gateways=gateways, ready=ready), POOLED, SETTINGS, kernel=never) is None
    early = replace(POOLED, central=None)
    assert replay_sharing(store(gateways=2, ready=(FAST.name,) * 2), early, SETTINGS, kernel=never) is None


def test_what_was_kept_is_forgotten_once_one_gateway_is_left() -> None:
    kept = store(gateways=1, ready=(FAST.name,))
    known = SharingCost(
        gateways=2, pool=((FAST.name, 2),), sizes="measured", queries=5000, one_queue_qps=8.0, shared_qps=6.0
    )
    keep_sharing_cost(kept, NAME, known)
    assert sharing_cost(kept, NAME) == known
    replay_days(kept, SETTINGS, Period(since=0.0, until=60.0), (), lambda _label, _share: None)
    assert sharing_cost(kept, NAME) is None
