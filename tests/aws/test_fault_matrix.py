"""The fault matrix: each call that we make x each error code that AWS documents for it.

Every pair is an error of ours with a remedy (`test_errors.py` has the meanings). Pairs of each kind, and in slow
tests all, of a call that the service's processes make go besides through the code that makes it, which raises
nothing but what its caller expects, and says what happened: a fact, an answer, or a line in the log. No AWS is
there: each client is answered before its call is sent.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import pytest
from botocore.exceptions import ClientError

from mark.aws.account.commitments import read_commitments
from mark.aws.alarms import read_alerts
from mark.aws.archive import put_object
from mark.aws.client_tokens import valid_tokens
from mark.aws.dns import put_addresses
from mark.aws.ec2.fleet import Ec2Cloud
from mark.aws.ec2.guard import Guard, Guardrails
from mark.aws.ec2.launch import NOT_SOLD, FleetSetup
from mark.aws.errors import REPORTED_AT, cause_of, code_of, family_of, remedy, translated
from mark.aws.functions.overflow import LambdaOverflow
from mark.aws.functions.warmup import warm_up
from mark.aws.inbox import EventInbox
from mark.aws.lease_table import LeaseTable
from mark.aws.outside_pause import read_pause
from mark.aws.permissions.calls import CALLS, ROLES
from mark.aws.session import Aws
from mark.aws.trainings import fetch_result, order_training
from mark.config.settings import Settings
from mark.controller.journal import Header, entry_line, header_line, read_journal
from mark.controller.policy import StandbyPolicy
from mark.controller.recovery import Recovered, recover
from mark.controller.runner import Controller
from mark.controller.state import Decision, Observation, State
from mark.domain.demand import Demand, Forecast, point_forecast
from mark.domain.errors import MarkError, RetryLater
from mark.domain.fleet.instances import FleetView, Role
from mark.domain.fleet.lease import Lease
from mark.domain.fleet.member import Peer
from mark.domain.fleet.orders import (
    Drain,
    LaunchRefused,
    Order,
    RefusalCause,
    SpotWarned,
    StartStandby,
    StopStandby,
    Terminate,
)
from mark.lambda_handlers import interruption
from mark.live.control.journal_opening import fleet_quotas
from mark.live.control.leadership.node import NodesName
from mark.live.control.watches.outside_pause_watch import OutsidePauseWatch
from mark.live.control.watches.quota_watch import QuotaWatch
from mark.plugins.trained import TrainingOrder
from mark.ports import InferRequest, TailLine
from tests.aws.aws_stand_in import ASLEEP, SERVING, AwsStandIn, standing_in
from tests.aws.builders import OFFERINGS, ON_DEMAND, SLEEPER, FakeAgents, FakeLedger, HandClock, aws, launch
from tests.aws.documented_errors import documented, pairs
from tests.controller.builders import POLICY as BASE
from tests.controller.builders import seen
from tests.lambda_handlers.records import CONTEXT, batch, spot_event
from tests.waiting import PATIENCE_S

PROCESSES = ("controller", "gateway", "node", "member", "interruption", "train", "warm")
LIVE = sorted({(call.service, call.action) for role in PROCESSES for call in ROLES[role]})
ORDERS: tuple[Order, ...] = (
    launch(2),
    StartStandby(token="t1-2", reason="r", instances=(ASLEEP,)),
    StopStandby(token="t1-3", reason="r", instances=(ASLEEP,)),
    Drain(token="t1-4", reason="r", instances=(SERVING,)),
    Terminate(token="t1-5", reason="r", instances=(SERVING,)),
)
LAUNCH, START, STOP, _, END = ORDERS
MEANT = (
    "ConditionalCheckFailedException",
    "ParameterNotFound",
    "TransactionConflictException",
    "TransactionInProgressException",
)
"""Answers said in words of their own: what the lease table hopes for, that somebody was faster or is at it, and
that nobody paused the service."""
HISTORY = Demand(end_at=0.0, mean_rps=(30.0,), max_rps=(30.0,))
TRAINING = TrainingOrder(forecaster="mixture", history=HISTORY, seed=0, version="1")
LEASE = Lease(holder="a", epoch=1, ttl_s=10.0)
Codes = Callable[[str, str], Iterable[tuple[str, int]]]


@dataclass(frozen=True)
class Sky:
    """The clients, and who answers them."""

    aws: Aws
    stand_in: AwsStandIn


@pytest.fixture(scope="module")
def sky() -> Iterator[Sky]:
    interruption._queue.cache_clear()
    with standing_in() as stand_in:
        there = aws()
        yield Sky(there, stand_in)
        there.close()
    if interruption._queue.cache_info().currsize:
        interruption._queue().close()
    interruption._queue.cache_clear()


@pytest.fixture(autouse=True)
def queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENTS_QUEUE_URL", "http://sqs/events")


def test_each_code_of_each_call_is_an_error_of_ours_with_a_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    counts = Counter[str]()
    for service, action, code, status in pairs():
        told = {"Error": {"Code": code, "Message": "test"}, "ResponseMetadata": {"HTTPStatusCode": status}}
        with pytest.raises(MarkError, match=f"{action}: {code}") as raised, translated():
            raise ClientError(told, action)  # type: ignore[arg-type]
        assert type(raised.value) is family_of(code, status)
        assert (code_of(raised.value), bool(remedy(code))) == (code, True)
        counts[service] += 1
    with capsys.disabled():
        print(f"\nfault matrix: {counts.total()} pairs of {len(CALLS)} calls, none unhandled: {dict(counts)}")  # noqa: T201
    least = Counter[str]()
    for service, action in CALLS:
        least[service] += len(documented(service, action))
    assert counts == least
    assert min(len(documented(*call)) for call in CALLS) >= 16  # what every service may answer


def kinds(service: str, action: str) -> list[tuple[str, int]]:
    """Of the codes that are treated alike, one; those that mean something else all."""
    codes = documented(service, action)
    alike = {(family_of(code, status), cause_of(code), status): (code, status) for code, status in codes}
    return [*alike.values(), *(one for one in codes if one[0] in MEANT)]


every_code = pytest.mark.parametrize(
    "codes_of", [kinds, pytest.param(documented, marks=pytest.mark.slow)], ids=["a kind", "all"]
)


@every_code
@pytest.mark.parametrize(("service", "action"), LIVE)
def test_each_code_of_a_live_call_passes_through_the_code_that_makes_it(
    sky: Sky, service: str, action: str, codes_of: Codes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for code, status in codes_of(service, action):
        caplog.clear()
        REPORTED_AT.clear()
        sky.stand_in.asked.clear()
        sky.stand_in.refuse(service, action, code, status)
        said = RUNS[service, action](sky.aws)
        assert (service, action) in sky.stand_in.asked
        said += [f"{record.getMessage()} {vars(record).get('why')}" for record in caplog.records]
        assert any(code in line or (code in MEANT and line) for line in said), f"{code}: {said}"


def test_each_code_in_an_answer_of_ec2_fleet_is_a_fact_with_type_market_zone_and_cause(sky: Sky) -> None:
    """EC2 Fleet tells with HTTP 200 what it could not launch."""
    for code, _ in documented("ec2", "CreateFleet"):
        override = {"InstanceType": "c5.large", "AvailabilityZone": "us-east-1a"}
        error = {"ErrorCode": code, "LaunchTemplateAndOverrides": {"Overrides": override}}
        sky.stand_in.answer("ec2", "CreateFleet", {"Instances": [], "Errors": [error]})
        made = Life(sky.aws)
        made.cloud.submit(LAUNCH)
        [fact] = made.cloud.drain_facts()
        assert isinstance(fact, LaunchRefused)
        told = (fact.offering, fact.zone, fact.cause, fact.code, fact.count)
        expected = RefusalCause.CAPACITY if code == NOT_SOLD else cause_of(code)
        assert told == (ON_DEMAND.name, "us-east-1a", expected, code, 2)


@every_code
@pytest.mark.parametrize("action", ["CreateFleet", "StartInstances", "StopInstances", "TerminateInstances"])
def test_a_journal_whose_last_tick_holds_the_failing_order_is_recovered_and_ticks_go_on(
    sky: Sky, action: str, codes_of: Codes
) -> None:
    """As controllers that take over, one after another: each submits what the one before it left."""
    for code, status in codes_of("ec2", action):
        sky.stand_in.refuse("ec2", action, code, status)
        lines = journal_with(ORDERS)
        for start_at in (120.0, 240.0):
            recovered = recover(*read_journal(lines))
            assert recovered is not None
            if start_at == 120.0:
                assert recovered.unseen == ORDERS
            made = Life(sky.aws, recovered, lines)
            for order in recovered.unseen:
                made.cloud.submit(order)
            ticks = [made.tick(start_at + after_s).state.tick for after_s in (0.0, 60.0)]
            assert ticks == [recovered.state.tick + 1, recovered.state.tick + 2], code
            made.cloud.close()


class Life:
    """A controller's life on an AWS that is not there."""

    def __init__(self, there: Aws, recovered: Recovered | None = None, lines: list[bytes] | None = None) -> None:
        self.clock, self.agents, self.lines = HandClock(60.0), FakeAgents(), lines if lines is not None else []
        setup = FleetSetup(
            service="shop",
            model="m",
            run="r1",
            offerings=OFFERINGS,
            templates={(role, "amd64"): "mark-shop" for role in Role},
        )
        self.inbox = EventInbox(there.sqs, "http://sqs/events", pause_s=0.0, poll_s=0)
        self.cloud = Ec2Cloud(
            setup,
            aws=there,
            clock=self.clock,
            membership=self.agents,
            ledger=FakeLedger(),
            inbox=self.inbox,
            guard=Guard(Guardrails(max_instances=99, max_usd_per_hour=99.0), OFFERINGS),
        )
        self.controller = Controller(
            policy=POLICY,
            clock=self.clock,
            cloud=self.cloud,
            data_plane=self,
            forecaster=self,
            fallback=self,
            journal=self,
            history=HISTORY,
            recovered=recovered,
        )

    def tick(self, at: float) -> Decision:
        self.clock.at = at
        return self.controller.tick()

    # The ports beside the cloud.

    def next_unit(self) -> None:
        return None

    def take_slo_window(self) -> None:
        return None

    def lambda_warm(self) -> int:
        return 0

    def recent_rps(self) -> tuple[float, ...]:
        return ()

    def forecast(self, history: Demand, horizon: int) -> Forecast:
        rates = (30.0,) * horizon
        return point_forecast(history.end_at, mean_rps=rates, max_rps=rates, source="test")

    def append(self, before: FleetView, seen: Observation, decision: Decision) -> None:
        self.lines.append(entry_line(before, seen, decision))


POLICY = replace(
    BASE,
    offerings=(ON_DEMAND,),
    standby=StandbyPolicy(offering=SLEEPER, cover_share=0.5),
)


def journal_with(orders: tuple[Order, ...]) -> list[bytes]:
    """A journal of one tick, whose orders nobody knows to be sent."""
    header = Header(policy=POLICY, catalogue="test", seed=0, history=HISTORY, run="r1")
    observed = seen(60.0)
    return [header_line(header), entry_line(observed.fleet, observed, Decision(state=State(), orders=orders))]


# Each live call, made by the code that makes it; what that says for itself, beside its lines in the log.


def submitting(order: Order) -> Callable[[Aws], list[str]]:
    def run(there: Aws) -> list[str]:
        made = Life(there)
        made.cloud.observe()
        made.cloud.submit(order)
        return [fact.code for fact in made.cloud.drain_facts() if isinstance(fact, LaunchRefused)]

    return run


def asking(ask: Callable[[Aws], object], expected: type[MarkError] = MarkError) -> Callable[[Aws], list[str]]:
    """For callers that expect any error of ours, or only this one."""

    def run(there: Aws) -> list[str]:
        try:
            return [str(ask(there))]
        except expected as error:
            return [str(error)]

    return run


def owning(there: Aws) -> list[str]:
    """A controller goes on with the commitments that it knew."""
    return asking(lambda aws: read_commitments(aws, service="shop", region="us-east-1", types={"c5.large"}))(there)


def quoting(there: Aws) -> list[str]:
    """A controller goes on with the quotas that it knew."""
    said: list[str | None] = []
    watch = QuotaWatch(lambda: fleet_quotas(there, Settings()), clock=HandClock(60.0), record=said.append)
    watch.poll()
    return [why for why in said if why is not None and watch.latest() is None]


def observing(there: Aws) -> list[str]:
    """Of an order's fleet: without its prices of now it costs what its offerings say."""
    assert not Life(there).cloud.observe().spot_usd_per_hour
    return []


def acknowledging(there: Aws) -> list[str]:
    made = Life(there)
    made.cloud.observe()
    made.inbox.receive(0)
    assert len(made.cloud.drain_facts()) == 1
    made.cloud.acknowledge()
    return []


def closing(there: Aws) -> list[str]:
    made = Life(there)
    made.inbox.receive(0)
    made.inbox.close()
    return []


def polling(there: Aws) -> list[str]:
    """In its thread, which no failure ends."""
    told, heard = list[str](), threading.Semaphore(0)

    def on_poll(why: str | None) -> None:
        told.append(why or "")
        heard.release()

    inbox = EventInbox(there.sqs, "http://sqs/events", on_poll=on_poll, pause_s=0.0, poll_s=0)
    inbox.start()
    assert heard.acquire(timeout=PATIENCE_S)
    assert heard.acquire(timeout=PATIENCE_S)
    inbox.close()
    return told


def invoking(there: Aws) -> list[str]:
    """By a gateway, a warm-up, which counts what failed, and a controller whose forecaster stays as it was."""
    assert warm_up(there.lambda_, "f", 2).failed == 2
    overflow = LambdaOverflow(there, concurrency=1)
    request = InferRequest(path="/p", content_type="application/json", body=b"{}")
    with pytest.raises(MarkError) as raised:
        asyncio.run(overflow.invoke("f", request, 5.0))
    overflow.close()
    with pytest.raises(MarkError) as untrained:
        order_training(there, "shop", "bucket", "training/shop/m/1", TRAINING)
    assert str(untrained.value) == str(raised.value)
    return [str(raised.value)]


def naming(there: Aws) -> list[str]:
    """By a node, beside its ticks."""
    told: list[str] = []
    put = lambda weights: put_addresses(there.names, "Z1", "mark.example", weights)  # noqa: E731
    peers = [Peer(name="g", host="10.0.0.1", port=1)]
    NodesName(lambda: peers, dict, put, lambda why: told.append(why or "")).poll()
    return told


def passing_on(_: Aws) -> list[str]:
    """By the function, which has a client of its own: the queue gives it again what it could not pass on."""
    event = spot_event(SpotWarned(instance=SERVING, at=60.0, terminates_at=180.0))
    assert interruption.handler(batch(json.dumps(event)), CONTEXT)["batchItemFailures"]
    return []


def looking_outside(there: Aws) -> list[str]:
    """By a controller, which keeps its last answer."""
    told: list[str] = []
    watch = OutsidePauseWatch(lambda: read_pause(there, "shop"), record=lambda why: told.append(why or "no pause"))
    watch.poll()
    return told


def leased(there: Aws) -> LeaseTable:
    return LeaseTable(there.tables, "leases", address="10.0.0.1")


RUNS: dict[tuple[str, str], Callable[[Aws], list[str]]] = {
    ("cloudwatch", "DescribeAlarms"): lambda there: [read_alerts(there, "shop", at=0.0).unknown],
    ("dynamodb", "GetItem"): asking(lambda there: leased(there).acquire("a", 10.0), RetryLater),
    ("dynamodb", "PutItem"): asking(lambda there: leased(there).acquire("a", 10.0), RetryLater),
    ("dynamodb", "Query"): asking(lambda there: list(leased(there).lines("m", segment=0, place=0)), RetryLater),
    ("dynamodb", "TransactWriteItems"): asking(
        lambda there: leased(there).put(LEASE, "m", TailLine(0, 0, b"x")), RetryLater
    ),
    ("ec2", "CreateFleet"): submitting(LAUNCH),
    ("ec2", "DescribeInstances"): asking(lambda there: Life(there).cloud.observe(), RetryLater),
    ("ec2", "DescribeSpotPriceHistory"): observing,
    ("ec2", "StartInstances"): submitting(START),
    ("ec2", "StopInstances"): submitting(STOP),
    ("ec2", "TerminateInstances"): submitting(END),
    ("lambda", "Invoke"): invoking,
    ("route53", "ChangeResourceRecordSets"): naming,
    ("route53", "ListResourceRecordSets"): naming,
    ("s3", "GetObject"): asking(lambda there: fetch_result(there, "bucket", "training/shop/m/1")),
    ("s3", "PutObject"): asking(
        lambda there: put_object(there.objects, "bucket", "key", b"", content_type="text/plain")
    ),
    ("secretsmanager", "GetSecretValue"): asking(lambda there: valid_tokens(there, "shop")),
    ("ec2", "DescribeCapacityReservations"): owning,
    ("ec2", "DescribeReservedInstances"): owning,
    ("savingsplans", "DescribeSavingsPlanRates"): owning,
    ("savingsplans", "DescribeSavingsPlans"): owning,
    ("service-quotas", "ListServiceQuotas"): quoting,
    ("sqs", "ChangeMessageVisibilityBatch"): closing,
    ("sqs", "DeleteMessageBatch"): acknowledging,
    ("sqs", "GetQueueAttributes"): lambda there: [read_alerts(there, "shop", at=0.0).unknown],
    ("sqs", "GetQueueUrl"): lambda there: [read_alerts(there, "shop", at=0.0).unknown],
    ("sqs", "ReceiveMessage"): polling,
    ("sqs", "SendMessage"): passing_on,
    ("ssm", "GetParameter"): looking_outside,
}
