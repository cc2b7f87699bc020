"""Fault scripts: which refusal hits a launch, and how late a boot is."""

from __future__ import annotations

import pytest

from mark.domain.errors import Misconfigured
from mark.simulator.faults import FaultScript, Interrupt, LateBoots, Refuse


def test_a_refusal_hits_its_offering_from_its_start_up_to_its_end() -> None:
    named = Refuse(from_s=10.0, to_s=20.0, offering="a:spot", code="Limit")
    script = FaultScript(refusals=(named,))
    assert [script.refusal(at, "a:spot") for at in (9.99, 10.0, 19.99, 20.0)] == [None, named, named, None]
    assert script.refusal(15.0, "b:spot") is None


def test_a_refusal_without_an_offering_hits_all() -> None:
    script = FaultScript(refusals=(Refuse(from_s=0.0, to_s=1.0),))
    assert script.refusal(0.5, "anything") is not None


def test_late_boots_multiply_where_they_overlap() -> None:
    script = FaultScript(
        late_boots=(LateBoots(from_s=0.0, to_s=10.0, factor=3.0), LateBoots(from_s=5.0, to_s=15.0, factor=2.0))
    )
    assert [script.boot_factor(at) for at in (0.0, 5.0, 10.0, 15.0)] == [3.0, 6.0, 2.0, 1.0]


@pytest.mark.parametrize("share", [0.0, -0.1, 1.01, float("nan")])
def test_a_share_lies_above_0_and_up_to_1(share: float) -> None:
    with pytest.raises(Misconfigured, match="share"):
        Interrupt(at_s=0.0, share=share)


@pytest.mark.parametrize("factor", [0.99, 0.0, -2.0, float("nan"), float("inf")])
def test_boots_are_never_early(factor: float) -> None:
    with pytest.raises(Misconfigured, match="1 or more times"):
        LateBoots(from_s=0.0, to_s=1.0, factor=factor)


@pytest.mark.parametrize("stress", [-1.0, 1e12, float("nan")])
def test_a_stress_that_no_instance_survives_is_refused(stress: float) -> None:
    with pytest.raises(Misconfigured, match="stress multiplies the spot hazard"):
        FaultScript(stress=stress)
