"""Variants in the engine: each instance chooses one, and how many it takes, when it starts a batch."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.dispatch.policy import Bounced, DispatchPolicy, Late
from mark.dispatch.variants import qos, qos_policy
from mark.dispatch.variants.qos import (
    HARD_S,
    SOFT_S,
    QosChoice,
    QosPool,
    QosRule,
    QosState,
    arrival_rate,
    fixed_choice,
    heuristic_choice,
)
from mark.dispatch.variants.qos_policy import (
    HIDDEN,
    LearnedScheduler,
    QosNetwork,
    action_count,
    feature_count,
    learned_pair,
    network_of,
    network_text,
    scores,
    state_features,
)
from mark.dispatch.variants.serving import (
    QualityDeadlines,
    VariantDispatch,
    VariantServing,
)
from mark.dispatch.variants.slackfit import VariantRule
from mark.domain.errors import Misconfigured
from mark.domain.models.objective import Slo
from mark.domain.models.variants import AccuracyTotal, Variant, VariantTable
from mark.simulator.engine import arrays
from mark.simulator.engine import kernel as kernel_
from mark.simulator.engine.compiled import Kernel, _compiled, plain_kernel
from mark.simulator.engine.data_plane import Engine
from tests.planner.builders import offering
from tests.simulator.engines import batching, engine, poisson

SLO = Slo(latency_s=0.5, target=0.98)
TYPE = "c5.large"
LOSSY = DispatchPolicy(bounced=Bounced.NOWHERE, late=Late.SHED, admission_factor=1.0)
CASES = [
    VariantDispatch(),
    VariantDispatch(VariantRule.MAXACC),
    VariantDispatch(VariantRule.MAXBATCH),
    VariantDispatch(VariantRule.FIXED, "middle"),
    VariantDispatch(is_central=True),
    VariantDispatch(VariantRule.PUBLISHED, is_central=True),
    VariantDispatch(VariantRule.FIXED, "middle", is_central=True),
    VariantDispatch(QosRule.FIXED),
    VariantDispatch(QosRule.HEURISTIC),
    VariantDispatch(QosRule.LEARNED),
]


def rows(*full_s: float, batch: int = 8) -> tuple[tuple[float, ...], ...]:
    """Latencies that rise from a third to all of `full_s`."""
    return tuple(tuple(float(s) for s in np.linspace(last / 3, last, batch)) for last in full_s)


FEATURES, SCORES, PAIR = _compiled(
    (qos, qos_policy),
    (qos_policy.state_features, qos_policy.scores, qos_policy.learned_pair),
    Path(tempfile.gettempdir()) / "mark-test-engine",
)
"""The forward pass as machine code."""
TABLE = VariantTable(
    model="net",
    variants=(Variant("small", 0.7), Variant("middle", 0.75), Variant("large", 0.8)),
    latency_s={TYPE: rows(0.06, 0.12, 0.25)},
)


def learned(serving_: VariantServing, seed: int = 0, scale: float = 0.1) -> VariantServing:
    """The same with weights at random, where the rule is the learned one."""
    if serving_.dispatch.rule is not QosRule.LEARNED:
        return serving_
    pool, rng = serving_.learned_pool(), np.random.default_rng(seed)
    inputs, actions = feature_count(pool), action_count(pool)
    shapes = ((inputs, HIDDEN), (HIDDEN,), (HIDDEN, actions), (actions,))
    facts = np.full(inputs, -np.inf), np.full(inputs, np.inf)
    network = QosNetwork(*(scale * rng.normal(size=shape) for shape in shapes), *facts)
    return replace(serving_, weights=network_text(network))


def serving(dispatch: VariantDispatch, floor: int = 0, table: VariantTable = TABLE) -> VariantServing:
    deadlines = QualityDeadlines(soft_s=SLO.latency_s, hard_s=2 * SLO.latency_s)
    return learned(
        VariantServing(
            table=table,
            dispatch=dispatch,
            floor=floor,
            max_batch={TYPE: 8},
            late={TYPE: 1.0},
            deadlines=deadlines,
        )
    )


def surge(
    kernel: Kernel, variants: VariantServing, seed: int = 3, cv: float = 0.0, part_s: float = 10.0
) -> Engine:
    """An instance at 15/s, whose middle part has 60/s: more than `large` can answer, less than `small` can."""
    arrivals = np.concatenate(
        [place * part_s + poisson(rps, part_s, seed + place) for place, rps in enumerate((15.0, 60.0, 15.0))]
    )
    made = engine(kernel, arrivals, dispatch=LOSSY, slo=SLO, duration_s=32.0, variants=variants)
    made.add(replace(offering(TYPE, batch=8, rps=32.0), cv=cv), standby=False)
    made.run_until(32.0)
    return made


def accuracy(run: Engine, from_s: int, to_s: int) -> float:
    seconds = run.seconds()
    assert seconds.accuracy_sum is not None
    return float(seconds.accuracy_sum[from_s:to_s].sum() / seconds.answered[from_s:to_s].sum())


@pytest.mark.parametrize("dispatch", CASES, ids=str)
def test_compiled_and_plain_give_the_same_run(kernel: Kernel, dispatch: VariantDispatch):
    fast, slow = (surge(made, serving(dispatch), cv=0.3, part_s=4.0) for made in (kernel, plain_kernel()))
    assert fast.served() == slow.served()
    assert np.array_equal(fast._tally.seconds, slow._tally.seconds)
    assert fast.quality() == pytest.approx(slow.quality())
    assert np.array_equal(fast._tally.histogram, slow._tally.histogram)
    assert np.array_equal(fast._fleet.servers, slow._fleet.servers)


def test_a_surge_is_answered_less_accurately_rather_than_late(kernel: Kernel):
    slackfit = surge(kernel, serving(VariantDispatch()))
    large = surge(kernel, serving(VariantDispatch(VariantRule.FIXED, "large")))
    small = surge(kernel, serving(VariantDispatch(VariantRule.FIXED, "small")))
    assert slackfit.attained() > large.attained() + 0.1
    assert slackfit.attained() > 0.97
    assert small.accuracy() == pytest.approx(0.7)
    assert large.accuracy() == pytest.approx(0.8)
    assert accuracy(slackfit, 11, 20) < accuracy(slackfit, 0, 10)
    assert accuracy(slackfit, 22, 30) == pytest.approx(accuracy(slackfit, 0, 10), abs=0.01)


def pool(
    kernel: Kernel, arrivals: np.ndarray, instances: int, *, late: Late = Late.SHED, until_s: float = 32.0
) -> Engine:
    """So many instances with one queue."""
    dispatch = replace(LOSSY, late=late)
    made = engine(
        kernel,
        arrivals,
        dispatch=dispatch,
        slo=SLO,
        duration_s=until_s,
        variants=serving(VariantDispatch(is_central=True)),
    )
    for _ in range(instances):
        made.add(offering(TYPE, batch=8, rps=32.0), standby=False)
    return made


def test_one_queue_serves_near_capacity_what_a_queue_an_instance_cannot(kernel: Kernel):
    arrivals = poisson(3 * 125.0, 30.0, 7)  # of the 3 x 133 requests/s that the smallest answers in full batches
    runs = []
    for is_central in (True, False):
        made = engine(
            kernel,
            arrivals,
            dispatch=LOSSY,
            slo=SLO,
            duration_s=32.0,
            variants=serving(VariantDispatch(is_central=is_central)),
        )
        for _ in range(3):
            made.add(offering(TYPE, batch=8, rps=32.0), standby=False)
        made.run_until(32.0)
        runs.append(made)
    central, own = runs
    assert central.attained() > 0.99
    assert central.attained() >= own.attained() - 0.001
    mean, own_mean = central.accuracy(), own.accuracy()
    assert mean is not None
    assert own_mean is not None
    assert mean > own_mean - 0.005


@pytest.mark.parametrize("late", list(Late))
def test_what_nobody_answers_in_time_makes_nobody_else_late_and_is_answered_where_the_policy_serves_it(
    kernel: Kernel, late: Late
):
    """A crowd of 400 at once before a quiet second: one instance answers some 60 of it in time."""
    made = pool(kernel, np.concatenate((np.zeros(400), np.arange(5.0, 20.0, 0.1))), 1, late=late)
    made.run_until(32.0)
    served = made.served()
    assert served.total == 550
    assert served.in_flight == 0
    assert (served.shed > 0) is (late is Late.SHED)
    seconds = made.seconds()
    assert seconds.missed[5:].sum() == 0
    assert 0 < seconds.answered[0] - (0 if late is Late.SHED else seconds.missed[0]) < 100


def test_what_is_late_has_a_turn_before_the_time_out_though_no_instance_is_ever_idle(kernel: Kernel):
    """A crowd of 200 at once, and then as many as one instance answers in full batches."""
    made = pool(
        kernel, np.concatenate((np.zeros(200), np.arange(0.0, 90.0, 0.0078))), 1, late=Late.SERVE, until_s=90.0
    )
    made.run_until(90.0)
    assert made.served().shed == 0
    assert made.seconds().missed.sum() < 600


def test_a_request_whose_instance_is_lost_joins_the_one_queue_again(kernel: Kernel):
    made = pool(kernel, np.array([0.0, 0.01, 0.02]), 1)
    made.run_until(0.015)
    made.remove(0, redispatch=True)
    made.run_until(0.2)
    assert made.served().in_flight == 3
    slot = made.add(offering(TYPE, batch=8, rps=32.0), standby=False)
    made.run_until(1.0)
    assert made.served().instance == 3
    assert made.attained() == 1.0
    made.will_go(slot, 1.2)
    assert made.is_idle(slot)


def test_a_queue_longer_than_its_room_keeps_its_order(kernel: Kernel):
    made = pool(kernel, np.linspace(0.0, 0.4, 1000), 1, late=Late.SERVE)
    made.run_until(32.0)
    assert made.served().instance == 1000
    with pytest.raises(Misconfigured, match="leave central: out"):
        VariantDispatch(QosRule.FIXED, is_central=True)


def test_nothing_is_answered_below_the_floor(kernel: Kernel):
    for dispatch in CASES:
        run = surge(kernel, serving(dispatch, floor=1))
        seconds = run.seconds()
        assert seconds.accuracy_sum is not None
        assert (seconds.accuracy_sum >= 0.75 * seconds.answered - 1e-9).all()
    with pytest.raises(Misconfigured, match="below the accuracy floor: the first variant above it is middle"):
        serving(VariantDispatch(VariantRule.FIXED, "small"), floor=1)


def test_a_model_of_one_variant_is_served_as_one_without(kernel: Kernel):
    plain = batching(8, 0.05, 0.2)
    latency_s = tuple(plain.profile.latencies_s(8))
    alone = VariantTable(model="net", variants=(Variant("only", 0.9),), latency_s={TYPE: (latency_s,)})
    arrivals = poisson(40.0, 20.0, 5)
    runs = []
    for variants in (None, serving(VariantDispatch(VariantRule.MAXBATCH), table=alone)):
        made = engine(kernel, arrivals, slo=Slo(latency_s=5.0, target=0.98), duration_s=22.0, variants=variants)
        made.add(plain, standby=False)
        made.run_until(22.0)
        runs.append(made)
    assert runs[0].served() == runs[1].served()
    assert np.array_equal(runs[0]._tally.histogram, runs[1]._tally.histogram)
    assert runs[0].accuracy() is None
    assert runs[1].accuracy() == pytest.approx(0.9)


def test_the_total_is_that_of_the_seconds_and_a_service_without_variants_has_none(kernel: Kernel):
    run = surge(kernel, serving(VariantDispatch()))
    total, seconds = run.accuracy_total(), run.seconds()
    assert seconds.accuracy_sum is not None
    assert total.answers == run.served().instance
    assert total.accuracy_sum == pytest.approx(seconds.accuracy_sum.sum())
    assert engine(kernel, np.zeros(0), dispatch=LOSSY, slo=SLO, duration_s=1.0).accuracy_total().answers == 0


WIDE = VariantTable(model="net", variants=TABLE.variants, latency_s={TYPE: rows(0.06, 0.12, 0.25, batch=32)})


def quality_rule(rule: QosRule, floor: int = 0) -> VariantServing:
    wide = VariantServing(
        table=WIDE,
        dispatch=VariantDispatch(rule),
        floor=floor,
        max_batch={TYPE: 32},
        late={TYPE: 1.0},
        deadlines=QualityDeadlines(soft_s=SLO.latency_s, hard_s=2 * SLO.latency_s),
    )
    return learned(wide)


@given(
    rule=st.sampled_from(list(QosRule)),
    floor=st.integers(0, 1),
    before_s=st.lists(st.floats(0.0, 6.0), max_size=40),
    held=st.integers(1, 40),
)
def test_an_instance_chooses_as_the_scheduler_of_one_device_does(
    rule: QosRule, floor: int, before_s: list[float], held: int
):
    """In soft deadlines as the unit of time: what waits, and the rate of the last five of them."""
    serving_, now = quality_rule(rule, floor), 100.0
    ages_s = sorted(before_s + [0.1] * held, reverse=True)
    queue = np.zeros(128)
    queue[: len(ages_s)] = [now - age_s for age_s in ages_s]
    made = arrays.records(kernel_.RULES, 1)[0]
    made.objective_s, made.speed = SLO.latency_s, 1.0
    server, totals = arrays.records(kernel_.SERVER, 1)[0], arrays.tally(0.0, 1).totals
    server.head, server.waiting, server.max_batch = len(ages_s) - held, held, 32
    most = kernel_._choose_variant(now, server, queue, arrays.variants(serving_, made), totals)

    sizes = (1, 2, 4, 8, 16, 32)
    delay_s = tuple(tuple(row[size - 1] / SLO.latency_s for size in sizes) for row in WIDE.rows(TYPE)[floor:])
    kappa = (0.7, 0.75, 0.8)[floor:]
    pool = QosPool(devices={TYPE: 1}, sizes=sizes, delay_s={TYPE: delay_s}, kappa=kappa, waits=False)
    recent = sum(age_s < 5 * SLO.latency_s for age_s in ages_s)
    left_s = 1.0 - np.array(ages_s[len(ages_s) - held :]) / SLO.latency_s
    state = QosState(kind=0, left_s=left_s, rate_qps=recent / 5, rest_s=np.zeros(1))
    scheduler = fixed_choice if rule is QosRule.FIXED else heuristic_choice
    if serving_.weights:
        scheduler = LearnedScheduler(network_of(serving_.weights), clock=lambda: 0.0)
        assert serving_.learned_pool() == pool
    choice = scheduler(state, pool)
    assert QosChoice(most, server.variant - floor) == QosChoice(min(choice.batch, 32), choice.variant)


@given(
    seed=st.integers(0, 50),
    scale=st.sampled_from([0.0, 0.1, 3.0]),
    left=st.lists(st.floats(-2, 1), min_size=1, max_size=60),
    rate_qps=st.floats(0, 500),
)
def test_the_network_says_the_same_compiled_and_in_numpy(
    seed: int, scale: float, left: list[float], rate_qps: float
):
    serving_ = learned(quality_rule(QosRule.LEARNED), seed, scale)
    network = network_of(serving_.weights)
    state = (0, np.sort(np.array(left)), rate_qps, np.zeros(1), serving_.learned_pool().tables)
    plain, fast = state_features(*state), FEATURES(*state)
    assert fast == pytest.approx(plain, rel=1e-12)
    outputs = scores(plain, network)
    assert SCORES(fast, network) == pytest.approx(outputs, rel=1e-9, abs=1e-9)
    assert PAIR(*state, network) == learned_pair(*state, network)


def test_an_instance_never_waits_and_the_heuristic_decides_where_weights_are_no_numbers(kernel: Kernel):
    given_ = quality_rule(QosRule.LEARNED)
    network = network_of(given_.weights)
    eager = network.outer_bias.copy()
    eager[0] = 1e9
    waiting = replace(given_, weights=network_text(network._replace(outer_bias=eager)))
    run = surge(kernel, waiting)
    assert run.served().in_flight == run.fallback_decisions() == 0
    broken = replace(given_, weights=network_text(network._replace(outer_bias=np.full_like(eager, np.nan))))
    run, heuristic = surge(kernel, broken), surge(kernel, quality_rule(QosRule.HEURISTIC))
    assert run.fallback_decisions() == run.batches() > 0
    assert np.array_equal(run._tally.seconds, heuristic._tally.seconds)


def test_a_learned_policy_serves_one_type_by_the_papers_deadlines():
    two = replace(TABLE, latency_s={**TABLE.latency_s, "c5.xlarge": TABLE.latency_s[TYPE]})
    both = {TYPE: 8, "c5.xlarge": 8}
    wider = replace(serving(VariantDispatch()), table=two, max_batch=both, late=dict.fromkeys(both, 1.0))
    with pytest.raises(Misconfigured, match=r"on c5\.large, c5\.xlarge: name qos-heuristic"):
        wider.learned_pool()
    late = replace(serving(VariantDispatch()), deadlines=QualityDeadlines(soft_s=0.5, hard_s=3.0))
    with pytest.raises(Misconfigured, match=r"leave objective\.hard_deadline_ms out"):
        late.learned_pool()


def test_a_rate_is_that_of_the_window_and_of_the_ring_where_that_is_shorter():
    ring = np.array([95.0, 96.5, 97.0, 99.0])
    assert arrival_rate(ring, 2, 2, 100.0, 2.0) == pytest.approx(0.5)
    assert arrival_rate(ring, 2, 2, 100.0, 4.0) == pytest.approx(0.75)
    assert arrival_rate(ring, 2, 2, 100.0, 50.0) == pytest.approx(4 / 5)
    assert arrival_rate(np.zeros(4), 0, 0, 1.0, 2.0) == 0.0


@pytest.mark.parametrize("rule", list(QosRule))
def test_quality_is_accuracy_times_the_utility_of_the_delay(kernel: Kernel, rule: QosRule):
    run = surge(kernel, quality_rule(rule))
    quality, total = run.quality(), run.accuracy_total().since(AccuracyTotal())
    assert quality is not None
    assert total is not None
    assert 0 < quality <= total.mean
    relaxed = replace(quality_rule(rule), deadlines=QualityDeadlines(soft_s=100.0, hard_s=200.0))
    patient = surge(kernel, replace(serving(VariantDispatch()), deadlines=relaxed.deadlines))
    answered, shed = patient.accuracy_total(), patient.served().shed
    assert patient.quality() == pytest.approx(answered.accuracy_sum / (answered.answers + shed))


def test_the_heuristic_keeps_more_quality_in_a_surge_than_the_most_accurate_variant(kernel: Kernel):
    alone = replace(quality_rule(QosRule.FIXED), dispatch=VariantDispatch(VariantRule.FIXED, "large"))
    arrivals = poisson(150.0, 20.0, 5)

    def quality(given_: VariantServing) -> float:
        made = engine(kernel, arrivals, dispatch=DispatchPolicy(), slo=SLO, duration_s=40.0, variants=given_)
        made.add(offering(TYPE, batch=32, rps=128.0), standby=False)
        made.run_until(40.0)
        found = made.quality()
        assert found is not None
        return found

    assert quality(quality_rule(QosRule.HEURISTIC)) > quality(alone) + 0.1


def test_a_hard_deadline_is_later_than_the_soft_one():
    assert (QualityDeadlines().soft_s, QualityDeadlines().hard_s) == (SOFT_S, HARD_S)
    with pytest.raises(Misconfigured, match=r"objective\.hard_deadline_ms"):
        QualityDeadlines(soft_s=1.0, hard_s=1.0)
