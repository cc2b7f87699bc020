"""The fleet as it is seen, from EC2's rows and what agents say."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.aws.ec2.observed import Ec2Row, fleet_view
from mark.domain.fleet.instances import InstanceState, Role
from mark.domain.fleet.member import MemberState
from mark.protocols.events import STATES
from tests.aws.builders import member

ROW = Ec2Row(
    id="i-1",
    model="m",
    offering="c5.large:spot",
    role=Role.SERVING,
    token="t1-1",
    state="running",
    launched_at=5.0,
)


@pytest.mark.parametrize(
    ("ec2", "agent", "asked", "seen"),
    [
        ("pending", None, False, InstanceState.PENDING),
        ("pending", MemberState.READY, True, InstanceState.PENDING),
        ("running", None, False, InstanceState.PENDING),
        ("running", MemberState.STARTING, False, InstanceState.PENDING),
        ("running", MemberState.STARTING, True, InstanceState.DRAINING),
        ("running", MemberState.READY, False, InstanceState.READY),
        ("running", MemberState.READY, True, InstanceState.DRAINING),
        ("running", MemberState.DRAINING, False, InstanceState.DRAINING),
        ("running", None, True, InstanceState.DRAINING),
        ("stopping", MemberState.READY, False, InstanceState.DRAINING),
        ("stopped", MemberState.READY, True, InstanceState.STOPPED),
    ],
)
def test_the_table(ec2: str, agent: MemberState | None, asked: bool, seen: InstanceState) -> None:
    row = replace(ROW, state=ec2)  # type: ignore[arg-type]
    members = [member("i-1", agent)] if agent else []
    [instance] = fleet_view([row], members, draining={"i-1"} if asked else ())

    assert instance.state is seen
    assert (instance.offering, instance.token, instance.launched_at) == ("c5.large:spot", "t1-1", 5.0)


def test_the_earlier_notice_counts_and_credits_are_the_agent_s() -> None:
    agent = replace(member("i-1"), terminates_at=90.0, credits=7.0)
    for warned, wanted in ((None, 90.0), (80.0, 80.0), (95.0, 90.0)):
        [instance] = fleet_view([ROW], [agent], warned={"i-1": warned} if warned else None)
        assert (instance.terminates_at, instance.credits) == (wanted, 7.0)
    [instance] = fleet_view([ROW], [])
    assert (instance.terminates_at, instance.credits) == (None, None)


ROWS = st.lists(
    st.builds(
        replace, st.just(ROW), id=st.sampled_from([f"i-{n}" for n in range(20)]), state=st.sampled_from(STATES)
    ),
    unique_by=lambda row: row.id,
)
MEMBERS = st.lists(
    st.builds(member, st.sampled_from([f"i-{n}" for n in range(25)]), st.sampled_from(MemberState)),
    unique_by=lambda agent: agent.instance,
)


@given(rows=ROWS, members=MEMBERS, shuffle=st.randoms(use_true_random=False))
def test_who_is_not_gone_is_seen_once_in_order(rows: list[Ec2Row], members: list, shuffle) -> None:  # type: ignore[type-arg,no-untyped-def]
    view = fleet_view(rows, members)
    there = sorted(row.id for row in rows if row.state not in ("shutting-down", "terminated"))

    assert [instance.id for instance in view] == there
    mixed_rows, mixed_members = [*rows], [*members]
    shuffle.shuffle(mixed_rows)
    shuffle.shuffle(mixed_members)
    assert fleet_view(mixed_rows, mixed_members) == view
