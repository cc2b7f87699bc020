"""Lambda as gateways see it, over real HTTP."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.aws.functions.function_url import HOLDS_ANOTHER, compose_payload, parse_reply, parse_report
from mark.aws.functions.overflow import LambdaOverflow
from mark.aws.functions.warmup import AT_ONCE, SENT_S, holds_s, warm_up
from mark.aws.session import Aws
from mark.domain.errors import Misconfigured, OutcomeUnknown, RetryLater
from mark.lambda_handlers.version_files import VersionUnavailable
from mark.ports import InferRequest, OverflowReply
from tests.aws.builders import aws
from tests.aws.lambda_stand_in import COLD, REPORT, Answer, LambdaStandIn, echo, log
from tests.waiting import PATIENCE_S

ASKED = InferRequest(path="/v2/models/m/infer", content_type="application/json", body=b'{"inputs":[]}')


@pytest.fixture
def stand_in() -> Iterator[LambdaStandIn]:
    with LambdaStandIn() as made:
        yield made


@pytest.fixture
def there(stand_in: LambdaStandIn) -> Iterator[Aws]:
    made = aws(endpoint_url=stand_in.url, max_attempts=1)
    yield made
    made.close()


@pytest.fixture
def overflow(there: Aws) -> Iterator[LambdaOverflow]:
    made = LambdaOverflow(there, concurrency=2)
    yield made
    made.close()


def call(overflow: LambdaOverflow, asked: InferRequest = ASKED, timeout_s: float = 5.0) -> OverflowReply:
    return asyncio.run(overflow.invoke("f", asked, timeout_s))


def test_a_request_and_its_answer(overflow: LambdaOverflow, stand_in: LambdaStandIn) -> None:
    answer = call(overflow)

    assert answer.reply.status == 200
    assert answer.reply.body == ASKED.body
    assert answer.gib_s == pytest.approx(0.4)
    assert not answer.cold
    [(path, event)] = stand_in.calls
    assert path == "/2015-03-31/functions/f/invocations"
    assert event["version"] == "2.0"
    assert event["rawPath"] == "/v2/models/m/infer"
    assert event["headers"] == {"content-type": "application/json"}
    assert event["isBase64Encoded"] is False


def test_tensors_travel_as_bytes_with_their_header_length(overflow: LambdaOverflow) -> None:
    body = b'{"inputs":[]}' + bytes(range(256))
    asked = InferRequest(
        path="/v2/models/m/infer", content_type="application/octet-stream", body=body, header_length=13
    )

    assert call(overflow, asked).reply.body == body


def test_a_cold_start_is_told(overflow: LambdaOverflow, stand_in: LambdaStandIn) -> None:
    stand_in.answer = lambda event: (200, log(COLD), echo(event)[2])

    assert call(overflow).cold


def test_an_environment_is_warmed_and_answers_nothing(overflow: LambdaOverflow, stand_in: LambdaStandIn) -> None:
    stand_in.answer = lambda _: (200, log(COLD), b'{"mark-warm": true}')

    assert asyncio.run(overflow.warm("mark-shop-infer-m", 5.0)).cold
    asyncio.run(overflow.warm("mark-shop-infer-m", 5.0, "4f1c9a70be21"))
    assert [event for _, event in stand_in.calls] == [
        {"mark-warm": True},
        {"mark-warm": True, "mark-version": "4f1c9a70be21"},
    ]


def test_without_a_report_the_time_it_took_is_billed(there: Aws, stand_in: LambdaStandIn) -> None:
    stand_in.answer = lambda event: (200, {}, echo(event)[2])
    overflow = LambdaOverflow(there, memory_gib=2.0)

    assert 0.0 < call(overflow).gib_s < 2.0
    overflow.close()


def hang_up(after: bytes) -> Callable[[dict[str, Any]], Answer]:
    """The request is read, so much of an answer is sent, and the connection is lost."""

    class Cut(bytes):
        def __len__(self) -> int:
            return super().__len__() + 100

    return lambda _: (200, {"connection": "close"}, Cut(after))


@pytest.mark.parametrize(
    ("status", "kind", "family", "unsure"),
    [
        (404, "ResourceNotFoundException", Misconfigured, False),
        (429, "TooManyRequestsException", RetryLater, False),
        (500, "ServiceException", RetryLater, True),
        (502, "EC2ThrottledException", RetryLater, False),
        (502, "", RetryLater, True),
        (503, "ServiceUnavailable", RetryLater, True),
    ],
)
def test_refusals_say_whether_the_function_may_have_run(
    overflow: LambdaOverflow,
    stand_in: LambdaStandIn,
    status: int,
    kind: str,
    family: type[Exception],
    unsure: bool,
) -> None:
    stand_in.answer = lambda _: (status, {"x-amzn-errortype": kind}, b'{"Message":"no"}')

    with pytest.raises(family, match=kind or None) as refused:
        call(overflow)
    assert isinstance(refused.value, OutcomeUnknown) == unsure
    assert len(stand_in.calls) == 1


def lose(_: dict[str, Any]) -> Answer:
    raise ConnectionResetError


@pytest.mark.parametrize("answer", [hang_up(b'{"statusCode": 2'), lose], ids=["half an answer", "none"])
def test_a_connection_that_is_lost_is_an_unknown_outcome(
    overflow: LambdaOverflow, stand_in: LambdaStandIn, answer: Callable[[dict[str, Any]], Answer]
) -> None:
    stand_in.answer = answer

    with pytest.raises(OutcomeUnknown):
        call(overflow)
    assert len(stand_in.calls) == 1


def test_a_call_that_boto3_gives_up_is_made_once(
    there: Aws, stand_in: LambdaStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the environment says of boto3's retries."""
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "5")
    monkeypatch.setenv("AWS_RETRY_MODE", "standard")
    monkeypatch.setattr("mark.aws.functions.overflow.LONGEST_S", 0.1)
    let_go = threading.Event()
    overflow = LambdaOverflow(there)

    def slow(event: dict[str, Any]) -> Answer:
        let_go.wait(5.0)
        return echo(event)

    stand_in.answer = slow
    try:
        with pytest.raises(OutcomeUnknown, match="timeout"):
            call(overflow)
    finally:
        let_go.set()
        overflow.close()
    assert len(stand_in.calls) == 1


def test_who_cannot_be_reached_has_run_nothing() -> None:
    nowhere = aws(endpoint_url="http://127.0.0.1:9", max_attempts=1)
    overflow = LambdaOverflow(nowhere)
    with pytest.raises(RetryLater) as refused:
        call(overflow)
    assert not isinstance(refused.value, OutcomeUnknown)
    overflow.close()
    nowhere.close()


def test_a_function_that_fails_is_billed_and_answered(overflow: LambdaOverflow, stand_in: LambdaStandIn) -> None:
    failed = {"x-amz-function-error": "Unhandled"} | log(REPORT)
    stand_in.answer = lambda _: (200, failed, b'{"errorMessage":"boom","errorType":"ValueError"}')
    answer = call(overflow)

    assert answer.reply.status == 502
    assert b"boom" in answer.reply.body
    assert answer.gib_s == pytest.approx(0.4)


@pytest.mark.parametrize("payload", [b"", b"null", b"{}", b'{"statusCode":"x"}', b'{"statusCode":200,"body":1}'])
def test_an_answer_that_is_none(payload: bytes) -> None:
    assert parse_reply(payload).status == 502


EXITED = {"errorType": "Runtime.ExitError"}


@pytest.mark.parametrize(
    ("error", "lost", "not_run"),
    [
        (EXITED | {"errorMessage": "Error: Runtime exited with error: exit status 1"}, True, False),
        (EXITED | {"errorMessage": f"Error: Runtime exited with error: exit status {HOLDS_ANOTHER}"}, False, True),
        ({"errorType": VersionUnavailable.__name__}, False, True),
        ({"errorType": "ValueError", "errorMessage": f"exit status {HOLDS_ANOTHER}"}, False, False),
        ({"errorType": None}, False, False),
    ],
)
def test_an_environment_that_is_no_good_is_told_from_a_model_that_fails(
    overflow: LambdaOverflow, stand_in: LambdaStandIn, error: dict[str, str], lost: bool, not_run: bool
) -> None:
    payload = json.dumps({"errorMessage": "m"} | error).encode()
    stand_in.answer = lambda _: (200, {"X-Amz-Function-Error": "Unhandled"}, payload)
    answered = call(overflow)
    assert (answered.lost, answered.not_run) == (lost, not_run)


def test_nobody_waits_longer_than_asked_and_no_more_than_allowed_are_under_way(
    overflow: LambdaOverflow, stand_in: LambdaStandIn
) -> None:
    let_go = threading.Event()

    def slow(event: dict[str, Any]) -> Answer:
        let_go.wait(5.0)
        return echo(event)

    stand_in.answer = slow

    async def three_and_one() -> list[Any]:
        calls = [overflow.invoke("f", ASKED, 0.1) for _ in range(3)]
        given = await asyncio.gather(*calls, return_exceptions=True)
        let_go.set()
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with suppress(RetryLater):
                    return [*given, await overflow.invoke("f", ASKED, 5.0)]
                await asyncio.sleep(0.01)

    first, second, third, fourth = asyncio.run(three_and_one())
    assert "did not answer" in str(first)
    assert isinstance(first, OutcomeUnknown)
    assert "did not answer" in str(second)
    assert "under way" in str(third)
    assert not isinstance(third, OutcomeUnknown)
    assert isinstance(third, RetryLater)
    assert fourth.reply.status == 200, "their places are free when the late answers have come"


def test_warm_up_pings_are_sent_at_once(there: Aws, stand_in: LambdaStandIn) -> None:
    meet = threading.Barrier(4, timeout=PATIENCE_S)

    def together(event: dict[str, Any]) -> Answer:
        meet.wait()
        return 200, log(COLD), b"{}"

    stand_in.answer = together
    done = warm_up(there.lambda_, "f", 4, hold_s=0.2)

    assert (done.answered, done.cold, done.failed) == (4, 4, 0)
    assert done.gib_s == pytest.approx(1.6)
    events = [event for _, event in stand_in.calls]
    assert all(event["mark-warm"] for event in events)
    assert sorted(event["hold_s"] for event in events) == pytest.approx(sorted(holds_s(4, 0.2, SENT_S)))


def environments(holds: list[float], sent_s: float) -> int:
    """Number of environments that pings meet which are sent one by one, each to one that is free or a new one."""
    free_at: list[float] = []  # of each environment; its caller is free then, too
    now = 0.0
    for held_s in holds:
        if sum(at > now for at in free_at) == AT_ONCE:
            now = min(at for at in free_at if at > now)
        free = next((number for number, at in enumerate(free_at) if at <= now), None)
        if free is None:
            free_at.append(now + held_s)
        else:
            free_at[free] = now + held_s
        now += sent_s
    return len(free_at)


@given(concurrency=st.integers(1, 2 * AT_ONCE), hold_s=st.floats(0.01, 10.0), sent_s=st.floats(1e-4, 0.01))
def test_as_many_environments_are_met_as_pings_are_sent_at_once(
    concurrency: int, hold_s: float, sent_s: float
) -> None:
    holds = holds_s(concurrency, hold_s, sent_s)
    assert min(holds) == hold_s
    assert environments(holds, sent_s) == min(concurrency, AT_ONCE)


def test_pings_that_fail_are_counted(there: Aws, stand_in: LambdaStandIn) -> None:
    stand_in.answer = lambda _: (429, {"x-amzn-errortype": "TooManyRequestsException"}, b"{}")

    assert warm_up(there.lambda_, "f", 2).failed == 2
    assert warm_up(there.lambda_, "f", 0).failed == 0


@given(body=st.binary(max_size=300), length=st.integers(0, 300))
def test_payloads_come_back_as_they_went(body: bytes, length: int) -> None:
    asked = InferRequest(path="/p", content_type="a/b", body=body, header_length=length)
    event = json.loads(compose_payload(asked))
    back = parse_reply(json.dumps({"statusCode": 200} | event).encode())

    assert (back.body, back.content_type, back.header_length) == (body, "a/b", length)


@given(st.text())
def test_no_log_breaks_the_estimate(text: str) -> None:
    assert parse_report(text) is None
    assert parse_report(log(text)["x-amz-log-result"]) is None
