"""The queue that a gateway keeps: it decides as a replay's kernel, and loses no query whatever comes and goes."""

from __future__ import annotations

import heapq
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mark.dispatch.central import decisions
from mark.dispatch.central.kairos import Timing, heterogeneity_weights
from mark.dispatch.central.own_rule import OwnDecide, Waiting, checked
from mark.dispatch.central.policy import CentralPolicy, CentralRule, Feasible, TooLate
from mark.dispatch.central.queue import PLAIN, CentralCode, CentralQueue, Decided, Instance, base_first
from mark.simulator.engine import kernel_central as central
from mark.simulator.engine.compiled import compiled_central_code, plain_central_kernel

SLO_MS = 50.0
RULES = [rule for rule in CentralRule if rule is not CentralRule.ORACLE]
POLICIES = st.builds(
    CentralPolicy,
    rule=st.sampled_from(RULES),
    too_late=st.sampled_from(TooLate),
    feasible=st.sampled_from(Feasible),
    threshold=st.integers(1, 5),
)


class Case:
    """Random queries on a random pool; half of the cases have whole ms, so that much happens at one instant."""

    def __init__(self, seed: int, policy: CentralPolicy, load: float) -> None:
        rng = np.random.default_rng(seed)
        types, self.sizes = int(rng.integers(1, 4)), int(rng.integers(1, 6))
        self.counts = rng.integers(0, 4, types)
        self.counts[0] += 1
        latency = np.sort(rng.uniform(2.0, 45.0, (types, self.sizes)), axis=1)
        self.queries = int(rng.integers(1, 150))
        gaps = rng.exponential(rng.uniform(1.0, 20.0), self.queries) / load
        if rng.integers(2):
            latency, gaps = np.round(latency), np.round(gaps)
        latency[0, -1] = latency[:, -1].min()
        latency[0] = np.minimum(latency[0], latency[0, -1])
        self.latency_ms, self.policy = latency, policy
        self.threshold = policy.threshold or 1
        # of parts of ms that no addition rounds
        self.arrived_ms = np.cumsum(np.round(1024 * gaps)) / 1024
        self.size = rng.integers(1, self.sizes + 1, size=self.queries)
        self.noise = rng.uniform(0.7, 1.5, self.queries) if rng.integers(2) else np.ones(self.queries)

    @property
    def profiles_s(self) -> dict[str, tuple[float, ...]]:
        return {f"t{kind}": tuple(row / 1000) for kind, row in enumerate(self.latency_ms)}

    def queue(self, code: CentralCode = PLAIN) -> CentralQueue[int]:
        queue: CentralQueue[int] = CentralQueue(self.policy, slo_ms=SLO_MS, profiles_s=self.profiles_s, code=code)
        queue.set_pool(0.0, self.instances())
        return queue

    def instances(self) -> list[Instance]:
        return [
            Instance(f"t{kind}-{number}", f"t{kind}")
            for kind, count in enumerate(self.counts)
            for number in range(count)
        ]


def replayed(case: Case) -> list[float]:
    """Finish of each query by the replay's kernel, with the latencies that the queue predicts."""
    kinds = np.repeat(np.arange(len(case.counts)), case.counts)
    latency_ms = case.queue().latency_ms
    rules = decisions.rules_of(
        case.policy,
        slo_ms=SLO_MS,
        threshold_row=case.threshold - 1,
        base=int(case.counts[0]),
        others=int(case.counts[1:].sum()),
    )
    work = central.make_work(case.queries, kinds)
    plain_central_kernel().run(
        central.Queries(case.arrived_ms, case.size - 1, np.zeros(case.queries, np.int64), case.noise),
        central.CentralPool(
            Timing(latency_ms, heterogeneity_weights(latency_ms, case.sizes - 1)),
            latency_ms[:, :, None].copy(),
            latency_ms[np.unique(kinds)].min(axis=0),
        ),
        central.CentralRules(rules, case.queries),
        work,
    )
    return work.finish_ms.tolist()


def live(case: Case, code: CentralCode = PLAIN) -> list[float]:
    """Finish of each query by the queue, from the same stream of events."""
    queue, names = case.queue(code), [one.name for one in case.instances()]
    finish = [math.nan] * case.queries
    events = [(float(at), 1, number) for number, at in enumerate(case.arrived_ms)]
    while events:
        now = events[0][0]
        while events and events[0][0] == now:
            _, is_arrival, number = heapq.heappop(events)
            if is_arrival:
                queue.add(now, number, size=int(case.size[number]), deadline_ms=now + SLO_MS)
            else:
                queue.set_idle(names[number])
        for query, name in queue.decide(now).started:
            kind = int(name[1 : name.index("-")])
            took_ms = queue.latency_ms[kind, case.size[query] - 1] * case.noise[query]
            finish[query] = now + took_ms
            heapq.heappush(events, (finish[query], 0, names.index(name)))
    assert not len(queue)
    return finish


@given(seed=st.integers(0, 2**32 - 1), policy=POLICIES, load=st.sampled_from([0.5, 1.0, 4.0]))
def test_a_recorded_stream_is_decided_as_by_the_replay_s_kernel(seed: int, policy: CentralPolicy, load: float):
    case = Case(seed, policy, load)
    np.testing.assert_array_equal(live(case), replayed(case))


class FirstCome:
    """A rule of one's own: the oldest query to the first idle instance."""

    def assign(self, waiting: Waiting) -> Any:
        idle = np.flatnonzero(waiting.is_idle)[: waiting.size.size]
        return np.append(idle, np.full(waiting.size.size - idle.size, -1))


class Errs(FirstCome):
    """The same, and three times in four nonsense."""

    calls = 0

    def assign(self, waiting: Waiting) -> Any:
        self.calls += 1
        chosen = super().assign(waiting)
        return (chosen, chosen + 9, 0 * chosen, None)[self.calls % 4 - 1]


def by_own_rule(case: Case, rule: type[FirstCome]) -> tuple[list[float], dict[str, int]]:
    """Finishes under a rule of one's own, and its failures."""
    decide = OwnDecide(f"{rule.__module__}:{rule.__name__}", decisions.decide)
    finish = live(case, PLAIN._replace(decide=decide))
    decide.close()
    return finish, decide.failures


@given(seed=st.integers(0, 2**32 - 1), load=st.sampled_from([0.5, 1.0, 4.0]))
def test_a_rule_of_one_s_own_may_be_one_of_ours(seed: int, load: float):
    first, kairos = (
        Case(seed, CentralPolicy(rule=rule, too_late=TooLate.COMMIT), load)
        for rule in (CentralRule.FCFS, CentralRule.KAIROS)
    )
    assert by_own_rule(kairos, FirstCome) == (live(first), {})


@pytest.mark.parametrize("too_late", TooLate)
def test_where_an_own_rule_fails_ours_decides_and_no_query_is_lost(too_late: TooLate):
    case = Case(3, CentralPolicy(rule=CentralRule.KAIROS, too_late=too_late), 4.0)
    finish, failures = by_own_rule(case, Errs)
    assert too_late is TooLate.OVERFLOW or all(map(math.isfinite, finish))
    assert len(failures) >= 2


@given(answer=st.lists(st.integers(-3, 6), min_size=1, max_size=5))
def test_an_own_rule_names_instances_and_each_once(answer: list[int]):
    taken = [one for one in answer if one != -1]
    if len(set(taken)) == len(taken) and all(0 <= one < 4 for one in taken):
        assert checked(answer, len(answer), 4).tolist() == answer
        return
    with pytest.raises(ValueError, match=r"not an instance|several requests"):
        checked(answer, len(answer), 4)


def a_queue(rule: CentralRule = CentralRule.KAIROS, **settings: Any) -> CentralQueue[Any]:
    """Two types: 10 and 20 ms for one or two items on the fast one, twice that on the slow one."""
    policy = CentralPolicy(rule=rule, **settings)
    return CentralQueue(policy, slo_ms=50.0, profiles_s={"fast": (0.01, 0.02), "slow": (0.02, 0.045)})


FAST, SLOW = Instance("a", "fast"), Instance("b", "slow")


@pytest.mark.parametrize("rule", RULES)
def test_a_query_that_is_withdrawn_never_starts_and_the_others_do(rule: CentralRule):
    queue = a_queue(rule, too_late=TooLate.COMMIT, threshold=1)
    queue.set_pool(0.0, [FAST])
    started = []
    queue.add(0.0, "v", size=1, deadline_ms=50.0)
    started += [query for query, _ in queue.decide(0.0).started]
    for name in "wxyz":
        queue.add(0.0, name, size=1, deadline_ms=50.0)
    assert [queue.remove(name) for name in ("y", "y", "v")] == [True, False, False]
    for turn in range(5):
        queue.set_idle("a")
        started += [query for query, _ in queue.decide(10.0 * turn).started]
    assert sorted(started) == ["v", "w", "x", "z"]
    if "kairos" not in rule:  # to which queries of one size that are all in time are alike
        assert started == ["v", "w", "x", "z"]
    assert len(queue) == 0


def test_a_query_too_late_for_all_is_handed_on_or_held_and_a_held_one_starts_last():
    queue = a_queue(too_late=TooLate.OVERFLOW)
    queue.set_pool(0.0, [FAST])
    queue.add(0.0, "late", size=2, deadline_ms=15.0)
    decided = queue.decide(0.0)
    assert decided.handed_on == ["late"]
    assert decided.started == []
    queue.hold("late", size=2, deadline_ms=15.0)
    assert queue.held == 1
    queue.add(0.0, "in time", size=1, deadline_ms=50.0)
    assert queue.decide(0.0).started == [("in time", "a")]
    queue.set_idle("a")
    assert queue.decide(10.0).started == [("late", "a")]


@given(
    rule=st.sampled_from(RULES),
    too_late=st.sampled_from(TooLate),
    steps=st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 7), st.integers(1, 2), st.booleans()), max_size=120
    ),
)
def test_whatever_comes_and_goes_each_query_starts_once_and_none_is_forgotten(
    rule: CentralRule, too_late: TooLate, steps: list[tuple[int, int, int, bool]]
):
    queue: CentralQueue[int] = a_queue(rule, too_late=too_late, threshold=1)
    there = {0: Instance("0", "fast")}
    queue.set_pool(0.0, there.values())
    busy: dict[str, int] = {}
    added, started, removed, handed_on = 0, list[int](), set[int](), list[int]()
    for now, (what, which, size, decides) in enumerate(steps):
        if what <= 1:
            queue.add(float(now), added, size=size, deadline_ms=now + 50.0 * which)
            added += 1
        elif what == 2 and queue.remove(which):
            removed.add(which)
        elif what == 5:
            gone = queue.remove_all(range(added - which, added))
            assert all(query not in queue for query in gone)
            removed.update(gone)
        elif what == 3:
            if there.pop(which, None) is None:
                there[which] = Instance(str(which), "slow" if which % 2 else "fast")
            queue.set_pool(float(now), there.values())
            busy = {name: query for name, query in busy.items() if name in queue.instances}
        elif busy:
            queue.set_idle(name := sorted(busy)[which % len(busy)])
            del busy[name]
        decided = queue.decide(float(now)) if decides else Decided[int]([], [], [])
        for query, name in decided.started:
            assert name not in busy
            busy[name] = query
            started.append(query)
        handed_on += decided.handed_on
    queue.set_pool(1000.0, [Instance("last", "fast")])
    for turn in range(added):
        queue.set_idle("last")
        decided = queue.decide(1000.0 + turn)
        started += [query for query, _ in decided.started]
        handed_on += decided.handed_on
    assert too_late is TooLate.OVERFLOW or not handed_on
    assert sorted([*started, *removed, *handed_on]) == list(range(added))
    assert len(queue) == queue.held == 0


def test_what_instances_took_replaces_what_their_profile_says():
    queue = a_queue()
    queue.set_pool(0.0, [FAST, SLOW])
    for _ in range(60):
        queue.learn("slow", 2, 0.02)
        queue.learn("fast", 2, 0.04)
    queue.refresh()
    assert queue.latency_ms[:, 1] == pytest.approx([40.0, 20.0], rel=0.02)
    queue.add(0.0, "large", size=2, deadline_ms=30.0)
    assert queue.decide(0.0).started == [("large", "b")]


def test_the_base_takes_least_for_the_largest_query():
    profiles = {"a": (1.0, 5.0), "b": (2.0, 3.0), "c": (1.0, 3.0)}
    assert list(base_first(profiles)) == ["b", "a", "c"]


def test_beyond_what_is_matched_at_once_it_partitions_and_says_so():
    queue = a_queue(too_late=TooLate.COMMIT)
    queue.set_pool(0.0, [FAST])
    for number in range(150):
        queue.add(0.0, str(number), size=1, deadline_ms=50.0)
    queue.decide(0.0)
    assert (queue.matched, queue.partitioned) == (1, 1)


@pytest.mark.parametrize("too_late", TooLate)
def test_compiled_decisions_are_the_plain_ones(too_late: TooLate):
    code = compiled_central_code(Path(tempfile.gettempdir()) / "mark-test-engine")
    for rule in RULES:
        for seed in range(2):
            case = Case(seed, CentralPolicy(rule=rule, too_late=too_late), 2.0)
            np.testing.assert_array_equal(live(case), live(case, code))


@pytest.mark.parametrize("rule", RULES)
def test_compiled_or_plain_the_same_ones_are_removed(rule: CentralRule):
    code, found = compiled_central_code(Path(tempfile.gettempdir()) / "mark-test-engine"), []
    for each in (PLAIN, code):
        queue: CentralQueue[int] = CentralQueue(
            CentralPolicy(rule=rule, threshold=1), slo_ms=50.0, profiles_s={"fast": (0.001,)}, code=each
        )
        queue.set_pool(0.0, [FAST])
        for number in range(200):
            queue.add(0.0, number, size=1, deadline_ms=50.0)
        removed = queue.remove_all(range(0, 200, 3))
        started = []
        for turn in range(200):
            queue.set_idle("a")
            started += [query for query, _ in queue.decide(0.1 * turn).started]
        found.append((removed, started))
    assert found[0] == found[1]
    assert sorted(found[0][0] + found[0][1]) == list(range(200))


def test_what_was_handed_on_and_not_taken_stays_held_in_a_new_pool():
    queue = a_queue(too_late=TooLate.OVERFLOW)
    queue.set_pool(0.0, [Instance("a", "fast", 100.0)])
    queue.hold("refused", size=1, deadline_ms=0.0)
    queue.add(0.0, "other", size=1, deadline_ms=500.0)
    queue.set_pool(0.0, [Instance("b", "fast", 100.0)])
    assert (queue.held, queue.not_held()) == (1, ["other"])
    queue.set_idle("b")
    assert queue.decide(0.0) == Decided([("other", "b")], [], [])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("too_late", TooLate)
def test_what_is_removed_before_it_is_handed_on_takes_no_other_along(rule: CentralRule, too_late: TooLate) -> None:
    queue: CentralQueue[str] = CentralQueue(
        CentralPolicy(rule=rule, too_late=too_late, threshold=1 if rule is CentralRule.DRS else None),
        slo_ms=SLO_MS,
        profiles_s={"t0": (0.02,)},
    )
    queue.set_pool(0.0, [Instance("i", "t0", busy_until_ms=10.0)])
    queue.add(0.0, "in time", size=1, deadline_ms=200.0)
    for name in ("late", "later"):
        queue.add(0.0, name, size=1, deadline_ms=1.0)
    assert queue.remove("late")
    assert not queue.remove("late")
    queue.set_idle("i")
    decided = queue.decide(10.0)
    seen = [name for name, _ in decided.started] + decided.handed_on + queue.waiting()
    assert sorted(seen) == ["in time", "later"]


@pytest.mark.parametrize("rule", RULES)
def test_who_waits_keeps_its_size_and_deadline_while_the_pool_changes(rule: CentralRule) -> None:
    queue = a_queue(rule, too_late=TooLate.OVERFLOW)
    queue.set_pool(1000.0, [Instance("a", "fast", 1020.0)])
    queue.add(1000.0, "q", size=2, deadline_ms=1050.0)
    queue.set_pool(1001.0, [Instance("a", "fast", 1020.0), Instance("b", "fast", 1030.0)])
    queue.set_idle("a")
    assert queue.decide(1010.0) == ([("q", "a")], [], []), "it is not too late"
    assert queue.expected_ms(1010.0, 0, 1) == 1040.0
    queue.set_pool(1010.0, [Instance("a", "fast", 0.0)])
    assert queue.expected_ms(1010.0, 0, 1) == 1040.0, "it serves two items"


def served_by_version(case: Case, share: float, *, together: bool) -> list[tuple[float, str | None]]:
    """Start and instance of each query, its version's: in one queue, or in one of each version's own.

    Every query that leaves for another version's instances ends here.
    """
    rng = np.random.default_rng(case.queries)
    is_new = rng.random(case.queries) < share
    pools = [
        [*case.instances()],
        [one._replace(name=f"{one.name}n", is_candidate=True) for one in case.instances()],
    ]
    queues = [case.queue() for _ in range(1 if together else 2)]
    for queue, pool in zip(queues, [pools[0] + pools[1]] if together else pools, strict=True):
        queue.set_pool(0.0, pool)
    found: list[tuple[float, str | None]] = [(math.nan, None)] * case.queries
    events = [(float(at), 1, number, "") for number, at in enumerate(case.arrived_ms)]
    while events:
        now = events[0][0]
        while events and events[0][0] == now:
            _, is_arrival, number, name = heapq.heappop(events)
            queue = queues[0 if together else int(is_new[number])]
            if is_arrival:
                queue.add(
                    now,
                    number,
                    size=int(case.size[number]),
                    deadline_ms=now + SLO_MS,
                    is_candidate=bool(is_new[number]),
                )
            else:
                queue.set_idle(name)
        for queue in queues:
            for query, name in queue.decide(now).started:
                assert name.endswith("n") == is_new[query], "only by an instance of its version"
                kind = int(name[1 : name.index("-")])
                took_ms = queue.latency_ms[kind, case.size[query] - 1] * case.noise[query]
                found[query] = (now, name)
                heapq.heappush(events, (now + took_ms, 0, query, name))
    assert not any(len(queue) for queue in queues)
    return found


@given(
    seed=st.integers(0, 2**32 - 1),
    policy=POLICIES,
    load=st.sampled_from([0.5, 1.0, 4.0]),
    share=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
)
def test_two_versions_in_one_queue_are_served_as_if_each_had_its_own(
    seed: int, policy: CentralPolicy, load: float, share: float
) -> None:
    # late queries of equal times are alike to a matching, and which goes first hangs on where they wait
    assume("kairos" not in policy.rule or policy.too_late is TooLate.OVERFLOW)
    case = Case(seed, policy, load)
    assert served_by_version(case, share, together=True) == served_by_version(case, share, together=False)


@pytest.mark.parametrize("rule", [CentralRule.KAIROS, CentralRule.CLOCKWORK])
@pytest.mark.parametrize("too_late", [TooLate.HOLD, TooLate.OVERFLOW])
def test_what_the_candidate_cannot_answer_in_time_leaves_the_queue(rule: CentralRule, too_late: TooLate) -> None:
    queue = a_queue(rule, too_late=too_late)
    new = Instance("new", "slow", is_candidate=True)
    queue.set_pool(0.0, [FAST, new])
    queue.add(0.0, "large", size=2, deadline_ms=44.0, is_candidate=True)
    assert queue.waiting_for(is_candidate=True) == ["large"]
    assert queue.decide(0.0) == Decided([], [], ["large"])
    queue.add(0.0, "large", size=2, deadline_ms=44.0)
    assert queue.decide(0.0).started == [("large", "a")]


def test_held_queries_of_one_version_wait_for_no_other() -> None:
    queue = a_queue()
    queue.set_pool(0.0, [Instance("a", "fast", 30.0), Instance("new", "fast", 30.0, is_candidate=True)])
    for number in range(3):
        queue.hold(f"new-{number}", size=1, deadline_ms=-10.0, is_candidate=True)
        queue.hold(f"old-{number}", size=1, deadline_ms=-10.0)
    queue.set_idle("a")
    assert queue.decide(30.0).started == [("old-0", "a")]
    queue.set_idle("new")
    assert queue.decide(30.0).started == [("new-0", "new")]
    assert queue.waiting() == ["new-1", "old-1", "new-2", "old-2"]
    queue.add(30.0, "waits", size=1, deadline_ms=75.0)
    queue.set_idle("new")
    assert queue.decide(31.0).started == [("new-1", "new")], (
        "what waits for the other version keeps it from nothing"
    )
