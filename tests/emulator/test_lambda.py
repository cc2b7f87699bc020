"""Lambda: real handlers in warm and cold environments, throttled, timed out, and called by queues and events."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from mark.config.settings import Settings
from mark.domain.offerings.offering import OTHER_CALLS
from mark.emulator.config import LambdaLimits
from mark.emulator.ec2.account_limits import NEW_CONCURRENCY
from mark.live.gateway_settings import lambda_calls
from tests.emulator.conftest import World, stub_zip
from tests.emulator.test_spot import queue_of
from tests.waiting import until

ROLE = "arn:aws:iam::123456789012:role/functions"


def function(world: World, handler: str, *, name: str = "", **options: Any) -> str:
    iam = world.client("iam")
    if not iam.list_roles()["Roles"]:
        iam.create_role(RoleName="functions", AssumeRolePolicyDocument="{}")
    made = world.client("lambda").create_function(
        FunctionName=name or handler,
        Runtime="python3.12",
        Role=ROLE,
        Handler=f"tests.emulator.handlers.{handler}",
        Code={"ZipFile": stub_zip()},
        **{"Timeout": 10, **options},
    )
    return made["FunctionArn"]


def call(world: World, name: str, event: Any = None, **options: Any) -> tuple[Any, dict[str, Any]]:
    payload = json.dumps({} if event is None else event).encode()
    reply = world.client("lambda", attempts=1, read_timeout=900).invoke(
        FunctionName=name, Payload=payload, **options
    )
    body = reply["Payload"].read()
    return (json.loads(body) if body else None), reply


def stop_clock(world: World) -> None:
    """No environment outlives its idle time, however busy the machine is."""
    world.mark("POST", "clock", {"wall_at": time.time(), "service_at": 1.8e9, "speed": 0.0})


def report(reply: dict[str, Any]) -> dict[str, float]:
    text = base64.b64decode(reply["LogResult"]).decode()
    return {
        name.strip(): float(value) for name, value in re.findall(r"([A-Z][A-Za-z ]+): ([\d.]+) (?:ms|MB)", text)
    }


def test_cold_then_warm(world: World) -> None:
    stop_clock(world)
    function(world, "echo", Environment={"Variables": {"COLOUR": "red"}})
    first, cold = call(world, "echo", {"n": 1}, LogType="Tail")
    second, warm = call(world, "echo", {"n": 2}, LogType="Tail")

    assert first["event"] == {"n": 1}
    assert (first["colour"], first["endpoint"]) == ("red", world.url)
    assert (first["pid"], first["loaded_at"]) == (second["pid"], second["loaded_at"])
    assert 9000 < second["left_ms"] <= 10_000
    told = report(cold)
    assert told["Init Duration"] >= 200  # the emulated delay, then the real start
    assert told["Billed Duration"] >= told["Init Duration"] + told["Duration"]
    told = report(warm)
    assert "Init Duration" not in told
    assert told["Duration"] <= told["Billed Duration"] < told["Duration"] + 1.01
    assert "FunctionError" not in warm
    counts = world.state()["lambda"]["echo"]
    assert (counts["cold"], counts["invocations"], counts["idle"], counts["busy"]) == (1, 2, 1, 0)


def test_each_published_version_answers_as_it_was_and_has_environments_of_its_own(world: World) -> None:
    stop_clock(world)
    function(world, "echo")
    client = world.client("lambda")

    def publish(colour: str, **changes: Any) -> str:
        client.update_function_configuration(
            FunctionName="echo", Environment={"Variables": {"COLOUR": colour}}, **changes
        )
        return client.publish_version(FunctionName="echo")["Version"]

    for alias, colour in (("vold", "red"), ("vnew", "blue")):
        client.create_alias(FunctionName="echo", Name=alias, FunctionVersion=publish(colour))
    for alias, colour in (("vold", "red"), ("vnew", "blue"), ("vold", "red")):
        assert call(world, f"echo:{alias}")[0]["colour"] == colour
    client.update_alias(FunctionName="echo", Name="vnew", FunctionVersion=publish("green", MemorySize=256))
    assert [call(world, f"echo:{alias}")[0]["colour"] for alias in ("vold", "vnew")] == ["red", "green"]
    cold = {name: pool["cold"] for name, pool in world.state()["lambda"].items()}
    assert cold == {"echo:1": 1, "echo:2": 1, "echo:3": 1}


def test_each_call_at_once_needs_an_environment(world: World) -> None:
    stop_clock(world)
    function(world, "echo")
    with ThreadPoolExecutor(8) as threads:
        replies = list(threads.map(lambda n: call(world, "echo", {"n": n, "sleep_s": 0.3})[0], range(8)))
    assert sorted(reply["event"]["n"] for reply in replies) == list(range(8))
    assert world.state()["lambda"]["echo"]["cold"] == 8
    call(world, "echo")
    assert world.state()["lambda"]["echo"]["cold"] == 8


def test_idle_environments_are_recycled_on_service_time(world: World) -> None:
    function(world, "echo")
    call(world, "echo")
    world.mark("POST", "clock", {"wall_at": time.time(), "service_at": 1.8e9, "speed": 0.0})
    call(world, "echo")
    assert world.state()["lambda"]["echo"]["cold"] == 2  # the clock has jumped by years
    world.mark("POST", "clock", {"wall_at": time.time(), "service_at": 1.8e9 + 44 * 60, "speed": 0.0})
    call(world, "echo")
    assert world.state()["lambda"]["echo"]["cold"] == 2
    world.mark("POST", "clock", {"wall_at": time.time(), "service_at": 1.8e9 + 105 * 60, "speed": 0.0})
    call(world, "echo")
    assert world.state()["lambda"]["echo"]["cold"] == 3


def test_reserved_concurrency_and_a_fault_throttle(world: World) -> None:
    function(world, "echo")
    client = world.client("lambda")
    client.put_function_concurrency(FunctionName="echo", ReservedConcurrentExecutions=0)
    with pytest.raises(ClientError, match="TooManyRequestsException") as refused:
        call(world, "echo")
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 429
    client.put_function_concurrency(FunctionName="echo", ReservedConcurrentExecutions=1)
    call(world, "echo")
    assert world.state()["lambda"]["echo"]["throttled"] == 1
    world.mark("POST", "faults", {"kind": "throttle", "action": "Invoke", "count": 1})
    with pytest.raises(ClientError, match="TooManyRequestsException"):
        call(world, "echo")
    call(world, "echo")


@pytest.mark.parametrize(("concurrency", "most"), [(NEW_CONCURRENCY, 0), (250, 150)])
def test_an_account_keeps_calls_that_no_function_may_reserve(
    start: Callable[..., World], concurrency: int, most: int
) -> None:
    world = start(lambdas=LambdaLimits(cold_start_s=0.0, concurrency=concurrency))
    function(world, "echo")
    function(world, "other")
    client = world.client("lambda")
    client.put_function_concurrency(FunctionName="echo", ReservedConcurrentExecutions=most)
    for name, calls in (("echo", most + 1), ("other", 1)):
        with pytest.raises(ClientError, match="below its minimum value of") as refused:
            client.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=calls)
        assert refused.value.response["Error"]["Code"] == "InvalidParameterValueException"
    told = client.get_account_settings()["AccountLimit"]
    assert told["UnreservedConcurrentExecutions"] == concurrency - most


def test_a_burst_of_new_environments_throttles(start: Callable[..., World]) -> None:
    world = start(lambdas=LambdaLimits(cold_start_s=0.0, burst=2, burst_window_s=60.0))
    function(world, "echo")

    def attempt(_: int) -> str:
        try:
            call(world, "echo", {"sleep_s": 0.5})
        except ClientError as error:
            return error.response["Error"]["Code"]
        return "answered"

    with ThreadPoolExecutor(4) as threads:
        outcomes = sorted(threads.map(attempt, range(4)))
    assert outcomes == ["TooManyRequestsException"] * 2 + ["answered"] * 2


def test_a_handlers_failures_are_answers(world: World) -> None:
    for name in ("fail", "leave", "big"):
        function(world, name)
    function(world, "nowhere")

    body, reply = call(world, "fail")
    assert (reply["FunctionError"], reply["StatusCode"]) == ("Unhandled", 200)
    assert (body["errorType"], body["errorMessage"]) == ("ValueError", "no such luck")
    body, reply = call(world, "leave")
    assert (reply["FunctionError"], body["errorType"]) == ("Unhandled", "Runtime.ExitError")
    assert body["errorMessage"].endswith("Error: Runtime exited with error: exit status 4")
    assert call(world, "leave")[0]["errorType"] == "Runtime.ExitError"
    assert call(world, "nowhere")[0]["errorType"] == "AttributeError"
    assert call(world, "big")[0]["errorType"] == "Function.ResponseSizeTooLarge"


def test_a_time_out_costs_its_environment(world: World) -> None:
    function(world, "echo", Timeout=1)
    body, reply = call(world, "echo", {"sleep_s": 3.0})
    assert reply["FunctionError"] == "Unhandled"
    assert body["errorMessage"].endswith("Task timed out after 1.00 seconds")
    assert call(world, "echo")[0]["event"] == {}
    assert world.state()["lambda"]["echo"]["cold"] == 2


def test_payload_limits_and_unknown_functions(world: World) -> None:
    function(world, "echo")
    with pytest.raises(ClientError, match="RequestTooLargeException"):
        call(world, "echo", "x" * (6 * 1024 * 1024 + 1))
    assert len(call(world, "echo", "x" * (5 * 1024 * 1024))[0]["event"]) == 5 * 1024 * 1024
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        call(world, "nobody")
    with pytest.raises(ClientError, match="InvalidRequestContentException"):
        world.client("lambda").invoke(FunctionName="echo", Payload=b"nonsense")


def test_new_code_or_settings_start_anew(world: World) -> None:
    function(world, "echo")
    before, _ = call(world, "echo")
    world.client("lambda").update_function_configuration(
        FunctionName="echo", Environment={"Variables": {"COLOUR": "blue"}}
    )
    after, _ = call(world, "echo")
    assert after["colour"] == "blue"
    assert after["pid"] != before["pid"]


def test_a_queue_calls_its_function_and_keeps_what_failed(start: Callable[..., World]) -> None:
    world = start(lambdas=LambdaLimits(cold_start_s=0.0))
    sqs = world.client("sqs")
    dead = sqs.create_queue(QueueName="dead")["QueueUrl"]
    dead_arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    redrive = json.dumps({"deadLetterTargetArn": dead_arn, "maxReceiveCount": 2})
    attributes = {"VisibilityTimeout": "1", "RedrivePolicy": redrive}
    url = sqs.create_queue(QueueName="work", Attributes=attributes)["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    function(world, "batch", name="worker")
    world.client("lambda").create_event_source_mapping(
        FunctionName="worker", EventSourceArn=arn, BatchSize=10, FunctionResponseTypes=["ReportBatchItemFailures"]
    )
    for body in ("a", "bad", "b"):
        sqs.send_message(QueueUrl=url, MessageBody=body)

    (message,) = sqs.receive_message(QueueUrl=dead, WaitTimeSeconds=10)["Messages"]
    assert message["Body"] == "bad"
    assert world.state()["lambda"]["worker"]["invocations"] >= 2
    left = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert (left["ApproximateNumberOfMessages"], left["ApproximateNumberOfMessagesNotVisible"]) == ("0", "0")


def test_a_function_of_notices_runs_while_all_gateways_overflow(
    start: Callable[..., World], tmp_path: Path
) -> None:
    gateways = 2
    released = tmp_path / "released"
    world = start(lambdas=LambdaLimits(cold_start_s=0.0, concurrency=NEW_CONCURRENCY))
    function(world, "hold", Timeout=900)
    function(world, "batch")
    url = queue_of(world, {"source": ["demo"]})
    arn = world.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    world.client("lambda").create_event_source_mapping(
        FunctionName="batch", EventSourceArn=arn["Attributes"]["QueueArn"]
    )
    told = {"policy": {"overflow_limits": {"concurrency": NEW_CONCURRENCY}}, "service": {"gateways": gateways}}
    calls = gateways * lambda_calls(Settings.model_validate(told))
    with ThreadPoolExecutor(calls) as threads:
        overflow = [threads.submit(call, world, "hold", {"until": str(released)}) for _ in range(calls)]
        try:
            until(lambda: world.state()["lambda"]["hold"]["busy"] == calls)
            world.client("sqs").send_message(QueueUrl=url, MessageBody="notice")
            until(lambda: world.state()["lambda"].get("batch", {}).get("invocations"))
            assert not any(one.done() for one in overflow)
        finally:
            released.touch()
        assert all("FunctionError" not in one.result()[1] for one in overflow)
    counts = world.state()["lambda"]
    assert (counts["batch"]["throttled"], counts["hold"]["throttled"]) == (0, 0)


@given(allowed=st.integers(1, 5000), gateways=st.integers(1, 20))
def test_gateways_together_leave_calls_to_other_functions(allowed: int, gateways: int) -> None:
    told = {"policy": {"overflow_limits": {"concurrency": allowed}}, "service": {"gateways": gateways}}
    assert gateways * lambda_calls(Settings.model_validate(told)) <= max(gateways, allowed - OTHER_CALLS)


def test_a_rule_calls_its_function_and_an_event_is_answered_at_once_and_run_later(world: World) -> None:
    arn = function(world, "note")
    queue_of(world, {"source": ["demo"]}, name="both")
    events = world.client("events")
    events.put_targets(Rule="both", Targets=[{"Id": "function", "Arn": arn}])
    events.put_events(Entries=[{"Source": "demo", "DetailType": "t", "Detail": '{"n": 1}'}])
    heard = until(lambda: call(world, "note", "list")[0])
    assert heard[0]["detail"] == {"n": 1}
    _, reply = call(world, "note", "hello", InvocationType="Event")
    assert reply["StatusCode"] == 202
    until(lambda: call(world, "note", "list")[0][1:] == ["hello"])
