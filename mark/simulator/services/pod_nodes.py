"""Nodes with the pods of a service's models, in virtual time: rented, filled, consolidated and billed.

Each model's controller sees pods where others see instances: it launches and drains them on a `PodCloud`. A pod
has a slot of its model's engine, and cores of its own. Nodes are instances of a simulated cloud. What is decided
about them is `pod_packing.py`'s: pods that wait are put on nodes a second after the first of them came,
and nodes that are settled are looked at for consolidation. A pod whose node is to go serves on until its successor
elsewhere is ready, which is kinder than an eviction.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from mark.cloudmodel.world import World
from mark.domain.billing.costs import InstanceUsage
from mark.domain.fleet.instances import FleetView, Instance, InstanceState
from mark.domain.fleet.orders import (
    Drain,
    Fact,
    Launch,
    LaunchRefused,
    Order,
    StartStandby,
    StopStandby,
    Terminate,
    WarmLambda,
    Withdraw,
)
from mark.planner.rivals.pod_packing import Node, NodeType, Pod, consolidate, endpoint_types, new_nodes, place
from mark.planner.rivals.pod_sizes import PodSize, node_types
from mark.policies.bundles import Pods
from mark.simulator.cloud import NEVER, SimulatedCloud
from mark.simulator.engine.data_plane import Engine
from mark.simulator.engine.node_plane import NodePlane
from mark.simulator.engine.shared_plane import SharedPlane
from mark.simulator.faults import FaultScript
from mark.simulator.services.shared_hosts import SharedFleet

START_S = 30.0
"""A pod that has a ready node is ready after so long: as a model that is loaded on a shared instance."""
BATCH_S = 1.0
"""Pods that come within so long are placed together (Karpenter's batch-idle-duration)."""
REFUSED_S = 180.0
"""A type that was refused is left out so long (Karpenter's cache of unavailable offerings)."""
LOOK_S = 10.0
"""Nodes are looked at for consolidation so often (Karpenter's polling period)."""


class _Phase(StrEnum):
    WAITING = "waiting"
    READY = "ready"
    DRAINING = "draining"


@dataclass(slots=True, eq=False)
class _Pod:
    """A pod of a model. node: where it is or is to be; next_node: where its successor starts while it serves."""

    pod: Pod
    owner: PodCloud
    token: str
    launched_at: float
    phase: _Phase = _Phase.WAITING
    node: str = ""
    next_node: str = ""
    slot: int | None = None
    #: Starts so far: only the last of them is still wanted.
    starts: int = 0


class PodCloud:
    """The pods of one model: what its controller asks, as it asks a cloud."""

    def __init__(self, nodes: PodNodes, engine: Engine, size: PodSize, *, redispatch: bool) -> None:
        self._nodes = nodes
        self.engine, self.size, self.redispatch = engine, size, redispatch
        self.pods: dict[str, _Pod] = {}
        self._tokens: set[str] = set()
        self.launches = self.refusals = self.interruptions = self.wakes = 0
        self.prewarmed = False
        #: Nothing is billed by pod.
        self.usages: list[InstanceUsage] = []
        self.asleep_s = self.running_s = 0.0

    def observe(self) -> FleetView:
        """All pods that are not gone."""
        return FleetView(instances=tuple(self._view(name, pod) for name, pod in self.pods.items()))

    def _view(self, name: str, pod: _Pod) -> Instance:
        states = {
            _Phase.WAITING: InstanceState.PENDING,
            _Phase.READY: InstanceState.READY,
            _Phase.DRAINING: InstanceState.DRAINING,
        }
        return Instance(
            id=name,
            offering=self.size.offering.name,
            state=states[pod.phase],
            token=pod.token,
            launched_at=pod.launched_at,
        )

    def drain_facts(self) -> tuple[Fact, ...]:
        """None: a pod that finds no room waits."""
        return ()

    def acknowledge(self) -> None:
        """Do nothing: a replay does not crash."""

    def submit(self, order: Order) -> None:
        """Launch or drain pods."""
        match order:
            case Launch():
                if order.token not in self._tokens:
                    self._tokens.add(order.token)
                    for _ in range(order.count):
                        self.launches += 1
                        self._nodes.add(self, order.token)
            case Drain() | Terminate():
                for name in order.instances:
                    if name in self.pods:
                        self._nodes.drain(self.pods[name])
            case WarmLambda():
                self.engine.warm(order.concurrency, are_there=self.prewarmed)
            case Withdraw():
                pass  # each launch was taken at once
            case StartStandby() | StopStandby():
                raise AssertionError("pods do not stand by")
            case _:
                assert_never(order)

    def ready(self) -> dict[str, int]:
        """Pods that serve, by their offering."""
        return {self.size.offering.name: sum(pod.slot is not None for pod in self.pods.values())}

    def next_at(self) -> float:
        """NEVER: what happens to pods, the nodes know."""
        return NEVER

    def fire(self, _now: float) -> bool:
        """False: nothing of its own is due."""
        return False

    def close(self, now: float) -> None:
        """Do nothing: nodes are billed."""


class PodNodes:
    """All nodes of a service. pods: those of each model that has some, under one policy of nodes."""

    def __init__(
        self,
        plane: Engine | SharedPlane,
        pods: Sequence[Pods],
        *,
        world: World,
        faults: FaultScript,
        seed: int,
        end_s: float,
        entry: Sequence[str] = ("",),
    ) -> None:
        """entry: zones with gateways."""
        self._zones, self._entry = world.zones, entry
        self._plane, self._policy = plane, pods[0].nodes
        self._start_s, self._end_s = plane.now, end_s
        self._offerings = {item.name: item for one in pods for item in one.offerings}
        types = node_types(self._offerings.values())
        if self._policy.is_endpoint:
            types = endpoint_types(_usual_pods(pods), types)
        self._types = {item.offering: item for item in types}
        self._cloud = SimulatedCloud(
            engine=NodePlane(plane, self._lost),
            offerings=self._offerings,
            world=world,
            faults=faults,
            seed=seed,
            start_at=plane.now,
            redispatch=True,
        )
        #: Pods that are not gone; by node, those that have moved on, with the slots that they still empty.
        self._pods: dict[str, _Pod] = {}
        self._left: dict[str, list[tuple[_Pod, int]]] = {}
        #: Nodes that are not gone, by id, with their type; those that serve; those that are to go; last changes.
        self._nodes: dict[str, str] = {}
        self._by_slot: dict[int, str] = {}
        self._going: set[str] = set()
        self._changed_at: dict[str, float] = {}
        self._refused_until: dict[str, float] = {}
        self._heap: list[tuple[float, int, Callable[[float], None]]] = []
        self._made = self._orders = self._events = 0
        self._place_at = NEVER
        self._look_at = plane.now + LOOK_S

    def cloud(self, engine: Engine, size: PodSize, *, redispatch: bool) -> PodCloud:
        """The cloud of one model's pods."""
        return PodCloud(self, engine, size, redispatch=redispatch)

    def begin(self) -> None:
        """The nodes of the first pods are there when the run starts, and the pods are ready."""
        self._cloud.prewarmed = True
        self._place(self._plane.now)
        self._cloud.prewarmed = False

    def next_at(self) -> float:
        """When something happens next."""
        due = self._heap[0][0] if self._heap else NEVER
        return min(self._cloud.next_at(), due, self._place_at, self._look_at, self._end_s)

    def reach(self, now: float) -> None:
        """Let happen what is due by now."""
        self._cloud.fire(now)
        self._see_nodes(now)
        while self._heap and self._heap[0][0] <= now:
            heapq.heappop(self._heap)[2](now)
        if now >= self._place_at:
            self._place(now)
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            self._consolidate(now)

    def end(self) -> SharedFleet:
        """Bill what still runs to the end."""
        self._cloud.close(self._end_s)
        return SharedFleet.of(
            self._cloud,
            self._offerings,
            duration_s=self._end_s - self._start_s,
            overhead=self._policy.overhead,
        )

    def nodes(self) -> tuple[Node, ...]:
        """All nodes with what their pods ask for, those of pods on their way too."""
        held: dict[str, list[Pod]] = {name: [] for name in self._nodes}
        for pod in self._pods.values():
            for node in {pod.node, pod.next_node} & held.keys():
                held[node].append(pod.pod)
        for node, left in self._left.items():
            held[node] += [pod.pod for pod, _ in left]
        return tuple(
            Node(name=name, type=self._types[self._nodes[name]], pods=tuple(pods)) for name, pods in held.items()
        )

    def add(self, owner: PodCloud, token: str) -> None:
        """A pod, which waits for a node."""
        self._made += 1
        size, name = owner.size, f"p-{self._made:06d}"
        pod = Pod(name=name, cores=size.cores, memory_gib=size.memory_gib, family=size.family)
        owner.pods[name] = self._pods[name] = _Pod(pod, owner, token, self._plane.now)
        self._soon()

    def drain(self, pod: _Pod) -> None:
        """Give it no new requests; it is gone when its last one is answered."""
        now = self._plane.now
        if pod.phase is _Phase.DRAINING:
            return
        if pod.next_node:
            self._changed_at[pod.next_node] = now
            pod.next_node = ""
        if pod.slot is None:
            self._forget(pod, now)
            return
        pod.phase = _Phase.DRAINING
        pod.owner.engine.stop_accepting(pod.slot)
        self._drained(pod, now)

    # Pods.

    def _drained(self, pod: _Pod, now: float) -> None:
        slot, engine = pod.slot, pod.owner.engine
        if slot is None:  # its node was lost meanwhile
            return
        if engine.is_idle(slot):
            pod.slot = None
            engine.remove(slot, redispatch=pod.owner.redispatch)
            self._forget(pod, now)
            return
        self._at(engine.drained_at(slot), lambda at: self._drained(pod, at))

    def _forget(self, pod: _Pod, now: float) -> None:
        del self._pods[pod.pod.name], pod.owner.pods[pod.pod.name]
        self._freed(pod.node, now)

    def _freed(self, node: str, now: float) -> None:
        """A node has more room; one that is to go and holds nothing is given back."""
        if node not in self._nodes:
            return
        self._changed_at[node] = now
        is_held = node in self._left or any(node in (pod.node, pod.next_node) for pod in self._pods.values())
        if node in self._going and not is_held:
            self._orders += 1
            self._gone(node)
            self._cloud.submit(Drain(token=f"n{self._orders}", reason="consolidated", instances=(node,)))
        elif any(not pod.node for pod in self._pods.values()):
            self._soon()

    def _start(self, pod: _Pod, now: float) -> None:
        """Start the pod, or its successor, on the node that it was given, once that serves."""
        pod.starts += 1  # an earlier start is given up
        number = pod.starts
        if (pod.next_node or pod.node) not in self._by_slot.values():
            return
        if self._cloud.prewarmed:
            self._started(pod, number, now)
        else:
            self._at(now + START_S, lambda at: self._started(pod, number, at))

    def _started(self, pod: _Pod, number: int, now: float) -> None:
        engine, slot = pod.owner.engine, pod.slot
        is_given_up = number != pod.starts or pod.pod.name not in self._pods or pod.phase is _Phase.DRAINING
        if is_given_up or (slot is not None and not pod.next_node):
            return
        zone = next((item.zone for item in self._cloud.observe() if item.id == (pod.next_node or pod.node)), "")
        pod.slot = engine.add(pod.owner.size.offering, standby=False, zone=zone)
        pod.phase = _Phase.READY
        if slot is None:
            return
        before, pod.node, pod.next_node = pod.node, pod.next_node, ""
        engine.stop_accepting(slot)
        self._left.setdefault(before, []).append((pod, slot))
        self._leave(before, pod, slot, now)

    def _leave(self, node: str, pod: _Pod, slot: int, now: float) -> None:
        """Empty the slot of a pod that has moved on."""
        left, engine = self._left.get(node, []), pod.owner.engine
        if (pod, slot) not in left:  # the node was lost meanwhile
            return
        if not engine.is_idle(slot):
            self._at(engine.drained_at(slot), lambda at: self._leave(node, pod, slot, at))
            return
        engine.remove(slot, redispatch=pod.owner.redispatch)
        left.remove((pod, slot))
        if not left:
            del self._left[node]
        self._freed(node, now)

    # Nodes.

    def _place(self, now: float) -> None:
        """Put pods that wait, and successors of those whose node is to go, on nodes; rent what is missing."""
        self._place_at = NEVER
        searching = {pod.pod.name: pod for pod in self._pods.values() if self._searches(pod)}
        if not searching:
            return
        there = [node for node in self.nodes() if node.name not in self._going]
        found, pending = place((pod.pod for pod in searching.values()), there)
        for before, node in zip(there, found, strict=True):
            self._give(node.pods[len(before.pods) :], node.name, now)
        rented, _ = new_nodes(pending, self._launchable(now))
        for node in rented:
            name = self._rent(node.type.offering, now)
            if name:
                self._give(node.pods, name, now)
        if any(self._searches(pod) for pod in searching.values()):
            self._place_at = min(self._place_at, now + LOOK_S)

    def _searches(self, pod: _Pod) -> bool:
        is_displaced = pod.node in self._going and not pod.next_node
        return not pod.node or (is_displaced and pod.phase is not _Phase.DRAINING)

    def _launchable(self, now: float) -> list[NodeType]:
        return [kind for name, kind in self._types.items() if self._refused_until.get(name, now) <= now]

    def _give(self, pods: Iterable[Pod], node: str, now: float) -> None:
        """These pods, or their successors, are to be on that node."""
        for item in pods:
            pod = self._pods[item.name]
            if pod.slot is not None:
                pod.next_node = node
            else:
                before, pod.node = pod.node, node
                self._freed(before, now)
            self._changed_at[node] = now
            self._start(pod, now)

    def _rent(self, offering: str, now: float) -> str:
        """A new node's name; empty where it is refused."""
        self._orders += 1
        token = f"n{self._orders}"
        elsewhere = tuple((offering, zone) for zone in self._zones if zone != self._emptiest_zone())
        self._cloud.submit(Launch(token=token, reason="pods wait", offering=offering, count=1, without=elsewhere))
        name = next((item.id for item in self._cloud.observe() if item.token == token), "")
        if not name:
            self._refused_until[offering] = now + REFUSED_S
            self._soon()
            return ""
        self._nodes[name], self._changed_at[name] = offering, now
        self._see_ready()
        return name

    def _emptiest_zone(self) -> str:
        """Of those with gateways the zone with the fewest nodes: the usual spread."""
        there = Counter(item.zone for item in self._cloud.observe() if item.id in self._nodes)
        return min(self._entry, key=lambda zone: there[zone])

    def _see_ready(self) -> list[str]:
        """Nodes that serve since this was asked last."""
        ready = {slot: name for name, slot in self._cloud.slots().items() if name in self._nodes}
        new = [name for slot, name in ready.items() if slot not in self._by_slot]
        self._by_slot |= ready
        return new

    def _see_nodes(self, now: float) -> None:
        """Start pods on nodes that have become ready, and find a place for those on nodes with a notice."""
        for fact in self._cloud.drain_facts():
            if isinstance(fact, LaunchRefused):
                self._refused_until[fact.offering] = now + REFUSED_S
        for name in self._see_ready():
            self._changed_at[name] = now
            for pod in self._pods.values():
                if name == (pod.next_node or pod.node):
                    self._start(pod, now)
        for item in self._cloud.observe():
            if item.terminates_at is not None and item.id in self._nodes and item.id not in self._going:
                self._going.add(item.id)
                for pod in self._pods.values():
                    if pod.node == item.id and pod.slot is not None:
                        pod.owner.engine.will_go(pod.slot, item.terminates_at)
                    if pod.next_node == item.id:
                        pod.next_node = ""
                self._soon()
                self._freed(item.id, now)

    def _lost(self, slot: int) -> None:
        """A node is gone: its pods are, too, but for those that have a successor on its way."""
        name = self._by_slot.get(slot)
        if name is None or name not in self._nodes:
            return
        self._gone(name)
        for pod, left in self._left.pop(name, []):
            pod.owner.engine.remove(left, redispatch=pod.owner.redispatch)
        for pod in [pod for pod in self._pods.values() if pod.node == name]:
            held, pod.slot = pod.slot, None
            if held is not None:
                pod.owner.engine.remove(held, redispatch=pod.owner.redispatch)
            if pod.next_node:
                pod.node, pod.next_node, pod.phase = pod.next_node, "", _Phase.WAITING
            else:
                del self._pods[pod.pod.name], pod.owner.pods[pod.pod.name]
                pod.owner.interruptions += 1

    def _gone(self, name: str) -> None:
        del self._nodes[name]
        self._by_slot = {slot: node for slot, node in self._by_slot.items() if node != name}
        self._going.discard(name)
        self._changed_at.pop(name, None)

    def _consolidate(self, now: float) -> None:
        """Let go what is not needed, one step at a time: not while a node boots or goes, or a pod waits."""
        if self._going or len(self._by_slot) < len(self._nodes) or any(not p.node for p in self._pods.values()):
            return
        policy, nodes = self._policy, self.nodes()
        settled = [name for name, at in self._changed_at.items() if now - at >= policy.settle_s]
        if policy.is_endpoint and len(settled) < len(nodes):
            settled = [node.name for node in nodes if not node.pods and node.name in settled]
        if not settled:
            return
        found = consolidate(
            nodes, self._launchable(now), settled=settled, replaces=policy.replaces, most=policy.most
        )
        if found is None:
            return
        self._going |= {*found.gone}
        for name in found.gone:
            self._freed(name, now)
        self._place(now)

    def _soon(self) -> None:
        self._place_at = min(self._place_at, self._plane.now + BATCH_S)

    def _at(self, at: float, action: Callable[[float], None]) -> None:
        self._events += 1
        heapq.heappush(self._heap, (at, self._events, action))


def _usual_pods(pods: Sequence[Pods]) -> list[Pod]:
    """The pods that the load of the last day usually takes."""
    return [
        Pod(
            name=f"{model}-{number}",
            cores=one.size.cores,
            memory_gib=one.size.memory_gib,
            family=one.size.family,
        )
        for model, one in enumerate(pods)
        for number in range(one.size.usual)
    ]
