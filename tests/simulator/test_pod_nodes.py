"""Nodes with pods in virtual time: when pods serve, what moves and what is lost, and that nodes are billed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.fleet.instances import InstanceState
from mark.domain.fleet.orders import Drain, Launch
from mark.domain.models.objective import Slo
from mark.domain.offerings.offering import Market, Offering
from mark.planner.rivals.pod_sizes import PodSize
from mark.policies.bundles import KARPENTER, NodePolicy, Pods
from mark.simulator.engine.compiled import DeviceKernel, plain_device_kernel, plain_kernel
from mark.simulator.engine.shared_plane import SharedPlane
from mark.simulator.faults import FaultScript, Interrupt, Refuse
from mark.simulator.services.pod_nodes import BATCH_S, LOOK_S, START_S, PodNodes
from tests.planner.builders import offering
from tests.scenarios.builders import FIXED, FIXED_WORLD
from tests.simulator.engines import engine_setup

SLO = Slo(latency_s=0.6, target=0.98)
END_S = 7200.0
CALM = FaultScript(stress=0.0)
SETTLE_S = KARPENTER.settle_s


def sold(cores: int, market: Market = Market.ON_DEMAND) -> Offering:
    item = offering(f"c5.{cores}", rps=20.0, usd_per_hour=0.05 * cores)
    kind = replace(
        item.instance_type,
        vcpus=cores,
        memory_gib=2.0 * cores,
        spot_usd_per_hour=0.05 * cores,
        spot_interruption_rate=0.5,
    )
    return replace(item, instance_type=kind, market=market)


class Cluster:
    """Two models whose pods ask for a core each."""

    def __init__(
        self,
        kernel: DeviceKernel,
        *,
        types: Sequence[Offering] = (sold(2), sold(4)),
        arrivals: Sequence[Sequence[float]] = ((), ()),
        faults: FaultScript = CALM,
        policy: NodePolicy = KARPENTER,
    ) -> None:
        self.plane = SharedPlane(kernel, [engine_setup(plain_kernel(), one, duration_s=END_S) for one in arrivals])
        size = PodSize(offering=offering("c5-pod-1", rps=10.0), cores=1.0, memory_gib=0.5, family="c5")
        pods = Pods(size=size, offerings=tuple(types), nodes=policy)
        self.nodes = PodNodes(self.plane, [pods] * 2, world=FIXED_WORLD, faults=faults, seed=1, end_s=END_S)
        self.clouds = [self.nodes.cloud(engine, size, redispatch=True) for engine in self.plane.engines]
        self._orders = 0

    def launch(self, model: int, count: int) -> None:
        self._orders += 1
        self.clouds[model].submit(Launch(token=f"t{self._orders}", reason="", offering="c5-pod-1", count=count))

    def drain(self, model: int, count: int) -> None:
        gone = tuple(item.id for item in self.clouds[model].observe() if item.stays)[:count]
        self.clouds[model].submit(Drain(token="", reason="", instances=gone))

    def go(self, until: float) -> None:
        """Run from event to event, as a replay does."""
        at_once = 0
        while self.plane.now < until:
            stop = min(until, self.nodes.next_at())
            at_once = at_once + 1 if stop == self.plane.now else 0
            assert at_once < 3, "nothing is due for ever"
            assert self.plane.run_until(stop) is None
            self.nodes.reach(stop)

    def ready(self) -> list[int]:
        return [sum(cloud.ready().values()) for cloud in self.clouds]

    def rented(self) -> list[str]:
        return sorted(node.type.offering for node in self.nodes.nodes())


@pytest.fixture
def cluster(device_kernel: DeviceKernel) -> Cluster:
    """With a pod of each model on the one node of 2 cores that there is."""
    made = Cluster(device_kernel)
    made.launch(0, 1)
    made.launch(1, 1)
    made.nodes.begin()
    assert (made.ready(), made.rented()) == ([1, 1], ["c5.2:on-demand"])
    return made


def test_a_pod_without_room_waits_for_a_node_and_one_with_room_only_to_start(cluster: Cluster) -> None:
    cluster.launch(0, 1)
    boot_s = FIXED.launch.median_s
    cluster.go(BATCH_S + boot_s + START_S - 1.0)
    assert cluster.ready() == [1, 1]
    cluster.go(BATCH_S + boot_s + START_S + 1.0)
    assert (cluster.ready(), cluster.rented()) == ([2, 1], ["c5.2:on-demand"] * 2)
    asked_at = cluster.plane.now
    cluster.launch(1, 1)
    cluster.go(asked_at + BATCH_S + START_S + 1.0)
    assert (cluster.ready(), cluster.rented()) == ([2, 2], ["c5.2:on-demand"] * 2)


def test_nodes_are_billed_while_they_run_and_no_pod_is(cluster: Cluster) -> None:
    cluster.go(1800.0)
    cluster.drain(0, 1)
    cluster.drain(1, 1)
    cluster.go(END_S)
    found = cluster.nodes.end()
    (usage,) = found.usage.usages
    assert usage.offering == "c5.2:on-demand"
    assert usage.ended_at == pytest.approx(1800.0 + SETTLE_S, abs=LOOK_S)
    assert found.instances * END_S == pytest.approx(usage.ended_at)
    assert not any(cloud.usages or cloud.running_s for cloud in cluster.clouds)


def test_a_pod_that_is_moved_serves_on_and_what_it_holds_is_answered(device_kernel: DeviceKernel) -> None:
    """Two nodes of 2 cores have a pod each, once the second model's first pod is gone: one of them suffices."""
    arrivals = [float(second) for second in range(1, 1200)]
    cluster = Cluster(device_kernel, types=(sold(2),), arrivals=(arrivals, ()))
    cluster.launch(1, 1)
    cluster.launch(0, 1)
    cluster.nodes.begin()
    cluster.launch(1, 1)
    cluster.go(600.0)
    assert (cluster.ready(), len(cluster.rented())) == ([1, 2], 2)
    cluster.drain(1, 1)
    engine = cluster.plane.engines[0]
    for until in range(601, 1300):
        cluster.go(float(until))
        assert len(engine.accepting) == 1
    assert (cluster.ready(), len(cluster.rented())) == ([1, 1], 1)
    served = engine.served()
    assert (served.instance, served.shed, served.total) == (len(arrivals), 0, len(arrivals))


def test_two_small_nodes_give_way_to_a_cheaper_one_and_on_an_endpoint_to_none(device_kernel: DeviceKernel) -> None:
    def left(policy: NodePolicy) -> list[str]:
        cluster = Cluster(device_kernel, types=(sold(2), sold(4)), policy=policy)
        cluster.launch(0, 4)
        cluster.nodes.begin()
        assert cluster.rented() == ["c5.4:on-demand"]
        cluster.drain(0, 2)
        cluster.go(1200.0)
        assert cluster.ready() == [2, 0]
        return cluster.rented()

    assert left(KARPENTER) == ["c5.2:on-demand"]
    assert left(replace(KARPENTER, replaces=False)) == ["c5.4:on-demand"]


def test_a_refused_type_is_replaced_by_the_next(device_kernel: DeviceKernel) -> None:
    refused = FaultScript(stress=0.0, refusals=(Refuse(from_s=0.0, to_s=60.0, offering="c5.2:on-demand"),))
    cluster = Cluster(device_kernel, faults=refused)
    cluster.nodes.begin()
    cluster.launch(0, 1)
    cluster.go(30.0)
    assert cluster.rented() == ["c5.4:on-demand"]


def test_pods_of_a_node_with_a_notice_have_successors_when_it_goes(device_kernel: DeviceKernel) -> None:
    """The spot node goes after two minutes; a node boots in more, so that what is lost is what was not ready."""
    faults = FaultScript(stress=0.0, interrupts=(Interrupt(at_s=300.0, share=1.0),))
    cluster = Cluster(device_kernel, types=(sold(2, Market.SPOT),), faults=faults)
    cluster.launch(0, 1)
    cluster.launch(1, 1)
    cluster.nodes.begin()
    cluster.go(400.0)
    assert (cluster.ready(), len(cluster.rented())) == ([1, 1], 2)
    cluster.go(430.0)
    assert (cluster.ready(), len(cluster.rented())) == ([0, 0], 1)
    assert [len(cloud.observe()) for cloud in cluster.clouds] == [1, 1], "they are on their way, not lost"
    cluster.go(300.0 + BATCH_S + FIXED.launch.median_s + START_S + 1.0)
    assert cluster.ready() == [1, 1]


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["launch", "drain"]), st.integers(0, 1), st.integers(1, 4), st.floats(1.0, 400.0)),
    max_size=12,
)


@settings(max_examples=10)
@given(ACTIONS, st.lists(st.integers(100, 3000), max_size=2), st.booleans())
def test_no_node_is_over_committed_and_in_the_end_every_pod_serves(
    actions: list[tuple[str, int, int, float]], lost_at: list[int], is_endpoint: bool
) -> None:
    market = Market.SPOT if lost_at else Market.ON_DEMAND
    faults = FaultScript(stress=0.0, interrupts=tuple(Interrupt(at_s=float(at), share=0.5) for at in lost_at))
    cluster = Cluster(
        plain_device_kernel(),
        types=(sold(2, market), sold(4, market)),
        faults=faults,
        policy=replace(KARPENTER, is_endpoint=is_endpoint, replaces=not is_endpoint),
    )
    cluster.nodes.begin()
    for action, model, count, wait_s in actions:
        (cluster.launch if action == "launch" else cluster.drain)(model, count)
        cluster.go(cluster.plane.now + wait_s)
        for node in cluster.nodes.nodes():
            assert node.type.holds(node.pods)
        for engine, cloud in zip(cluster.plane.engines, cluster.clouds, strict=True):
            serving = [item for item in cloud.observe() if item.state is InstanceState.READY]
            assert len(engine.accepting) == len(serving)
    cluster.go(END_S - 1.0)
    assert cluster.ready() == [len(cloud.observe()) for cloud in cluster.clouds]
    assert sum(cluster.ready()) == sum(len(node.pods) for node in cluster.nodes.nodes())
    assert all(node.pods for node in cluster.nodes.nodes())
