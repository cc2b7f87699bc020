"""A dispatch rule of one's own: its pairs start, nonsense does not, and a rule that fails stops nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.dispatch.central.own_rule import DispatchRequest, checked_pairs
from mark.dispatch.central.policy import CentralPolicy, CentralRule, TooLate
from mark.dispatch.central.queue import PLAIN, CentralCode, CentralQueue, Instance
from mark.domain.errors import Misconfigured
from mark.policies.own_dispatch import OwnDecide

RULES = '''
import os
from mark.dispatch.central.own_rule import first_come

class InOrder:
    def assign(self, request):
        return first_come(request)

class LastCome:
    """The newest request on the last idle instance, and one pair with a busy instance, which waits."""

    def assign(self, request):
        newest = request.waited_ms.size - 1
        yield newest, int(request.idle.nonzero()[0][-1])
        busy = (~request.idle).nonzero()[0]
        if newest and busy.size:
            yield 0, int(busy[0])

class Wrong:
    def assign(self, request):
        return [(0, 99)]

class Moody:
    calls = 0

    def assign(self, request):
        Moody.calls += 1
        if Moody.calls > 1:
            raise ValueError("no more")
        return first_come(request)

class Nothing:
    pass
'''
INSTANCES = (Instance("a", "fast"), Instance("b", "fast"), Instance("c", "slow"))


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("own") / "rules.py"
    path.write_text(RULES)
    return path


def queue_of(code: CentralCode = PLAIN, **policy: Any) -> CentralQueue[int]:
    queue: CentralQueue[int] = CentralQueue(
        CentralPolicy(**{"rule": CentralRule.KAIROS, **policy}),
        slo_ms=50.0,
        profiles_s={"fast": (0.01, 0.02), "slow": (0.02, 0.045)},
        code=code,
    )
    queue.set_pool(0.0, INSTANCES)
    return queue


@given(steps=st.lists(st.tuples(st.integers(1, 20), st.integers(1, 2), st.sampled_from("abc")), max_size=40))
def test_first_come_first_served_as_a_rule_of_ones_own_is_fcfs(
    rules: Path, steps: list[tuple[int, int, str]]
) -> None:
    ours = queue_of(rule=CentralRule.FCFS, too_late=TooLate.COMMIT)
    own = queue_of(CentralCode(decide=OwnDecide(f"{rules}:InOrder")), too_late=TooLate.COMMIT)
    now = 0.0
    for number, (gap, size, freed) in enumerate(steps):
        now += gap
        for queue in (ours, own):
            queue.add(now, number, size=size, deadline_ms=now + 50.0)
            queue.set_idle(freed)
        assert own.decide(now) == ours.decide(now)
        assert own.waiting() == ours.waiting()


def test_a_pair_with_a_busy_instance_waits(rules: Path) -> None:
    queue = queue_of(CentralCode(decide=OwnDecide(f"{rules}:LastCome")))
    for number in range(3):
        queue.add(float(number), number, size=1, deadline_ms=50.0)
    assert queue.decide(2.0).started == [(2, "c")]
    assert queue.decide(3.0).started == [(1, "b")]
    assert queue.waiting() == [0]


def test_a_rule_that_fails_at_first_ends_the_replay_and_later_first_come_is_first_served(rules: Path) -> None:
    wrong = queue_of(CentralCode(decide=OwnDecide(f"{rules}:Wrong")))
    wrong.add(0.0, 1, size=1, deadline_ms=50.0)
    with pytest.raises(
        Misconfigured, match=r"failed at its first decision: .*\(0, 99\), of 1 requests and 3 instances"
    ):
        wrong.decide(0.0)

    decide = OwnDecide(f"{rules}:Moody")
    moody = queue_of(CentralCode(decide=decide))
    for number in range(2):
        moody.add(0.0, number, size=1, deadline_ms=50.0)
        assert moody.decide(0.0).started == [(number, INSTANCES[number].name)]
    assert decide.failures == {"ValueError: no more": 1}
    with pytest.raises(Misconfigured, match="without a method assign"):
        OwnDecide(f"{rules}:Nothing")


REQUEST = DispatchRequest(
    waited_ms=np.array([5.0, 1.0]),
    left_ms=np.array([45.0, 49.0]),
    sizes=np.array([1, 2]),
    idle=np.array([True, False, True]),
    free_in_ms=np.array([0.0, 7.0, 0.0]),
    takes_ms=np.full((2, 3), 10.0),
)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ([(2, 0)], "of 2 requests"),
        ([(0, -1)], "and 3 instances"),
        ([(0, 0), (0, 2)], "the same request twice"),
        ([(0, 0), (1, 0)], "the same instance twice"),
        ([(0.5, 0)], "no pair of whole numbers"),
        ([1], "no pair of whole numbers"),
    ],
)
def test_nonsense_is_refused(answer: list[object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        checked_pairs(answer, REQUEST)
