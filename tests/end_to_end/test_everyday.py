"""One service as its user meets it: asked by real clients, loaded, looked at, traced, reported, archived, ended.

The tests go on where the one before ended; from the dead letter on the clock stands, or leaps by hours.
"""

from __future__ import annotations

import asyncio
import email
import gzip
import json
import math
import queue
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from email.message import EmailMessage
from email.policy import default
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.grpc.aio as triton_grpc_aio
import tritonclient.http as triton
import yaml
from sklearn.datasets import load_digits

from mark import Misconfigured, Service
from mark.aws.names import JOURNAL, name_of
from mark.aws.resources import RAW_ATTEMPTS
from mark.controller.journal import read_journal
from mark.domain.clock import ClockAnchor
from mark.live.background.archive import AGAIN_S, OPEN_EACH_S
from mark.live.local.clock_control import set_clock
from mark.report.mail.formatting import SMALL_USD
from tests.end_to_end.rig import UP_S, Rig, assert_in_time, core_waits, eventually, fetch, rig
from tests.report.browser import CHROMIUM, needs_browser
from tests.telemetry.receiver import Receiver, receiver
from tests.waiting import PATIENCE_S

CONFIG = """
service:
  name: {name}
  port: 0
  grpc_port: 0
  status_port: 0
telemetry:
  endpoint: {collector}
  headers_file: {headers}
  traces: {{ratio: 1.0e-9}}
  metrics: {{every_s: 0.5}}
rollout:
  report:
    sender: mark@shop.example
    to: [team@shop.example]
    schedule: cron(0 {hour} * * ? *)
"""
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
KEY = "a-key-of-the-collector"
COST_WORDS = {"instances", "standby", "lambda", "serving", "overhead", "total"}

SPEED = 20.0
HOUR_S = 3600.0
RENTS = "inception-v3"
"""The model that instances serve for less; Lambda serves so light and small a load as that of digits for less."""


@pytest.fixture(scope="module")
def collector() -> Iterator[Receiver]:
    with receiver() as found:
        yield found


@pytest.fixture(scope="module")
def due_at() -> float:
    """When the report is mailed: a full hour, one to two hours from now."""
    return (math.floor(time.time() / HOUR_S) + 2) * HOUR_S


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, collector: Receiver, due_at: float) -> Iterator[Rig]:
    """The service as Python starts it from a dict; it ends with an exception, while an agent is started again."""
    with rig(tmp_path_factory.mktemp("everyday"), "everyday") as made, pytest.MonkeyPatch.context() as patch:
        for name in ("MARK_STATE", "MARK_CACHE"):
            patch.setenv(name, made.environment[name])
        headers = made.home / "headers"
        headers.write_text(f"x-key={KEY}\n")
        headers.chmod(0o600)
        hour = time.gmtime(due_at).tm_hour
        text = CONFIG.format(name=made.name, collector=collector.url, headers=headers, hour=hour)
        service = Service(yaml.safe_load(made.config(text).read_text()))
        with pytest.raises(ZeroDivisionError), service.up() as found:  # noqa: PT012 - it ends what is up
            url = f"{found.gateway}/v2/models/{found.models[0]['name']}/infer"
            assert fetch(url, found.models[0]["example"])[0] == 200
            with pytest.raises(Misconfigured, match="the service everyday is up already"), service.up():
                pass
            yield made
            made.seen |= made.processes()
            state = made.controls.state()
            assert state["callers"]["report"]
            assert state["permissions"]["refused"] == {}
            raise ZeroDivisionError
        made.assert_gone()


def url_of(live: Rig, path: str = "") -> str:
    return f"{live.running['gateway']}{path}"


def infer(live: Rig, model: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    status, body, headers = fetch(url_of(live, f"/v2/models/{model['name']}/infer"), model["example"])
    assert status == 200, body
    return json.loads(body), headers


def test_up_says_where_it_listens_and_what_models_accept(live: Rig) -> None:
    again = live.mark("up", "--config", str(live.home / f"{live.name}.yaml"), "--detach", "--json")
    assert again.status == 2
    error = json.loads(again.out)["error"]
    assert error["exit_code"] == 2
    assert again.err.count("\n") == 1
    assert "is up already" in again.err
    assert error["message"] in again.err
    running = live.running
    assert running["token"] is None
    assert [model["name"] for model in running["models"]] == ["inception-v3", "digits"]
    for place in ("gateway", "status_page", "aws_endpoint"):
        assert urlsplit(running[place]).hostname == "127.0.0.1"
    for model in running["models"]:
        answer, headers = infer(live, model)
        assert answer["model_name"] == model["name"]
        assert answer["outputs"]
        assert headers["x-mark-served-by"] in {"instance", "standby", "lambda"}


def test_an_announced_event_is_counted_by_the_next_plan_and_kept_in_the_journal(live: Rig) -> None:
    at = live.ask("event", "list")["at"]
    added = live.ask("event", "add", "tested", "--at", f"{at:.0f}", "--for", "1h", "--expect", "1rps")["added"]
    assert (added["name"], added["until"] - added["at"], added["least_rps"]) == ("tested", 3600.0, 1.0)
    assert [event["name"] for event in live.ask("event", "list")["events"]] == ["tested"]
    live.run_at(SPEED)  # to the next minute
    eventually(lambda: [tick for tick in live.ticks(RENTS) if tick.seen.forecast and tick.seen.forecast.events])
    live.run_at(1.0)
    assert any("announced: tested, 1rps" in note for note in live.ask("status")["models"][0]["notes"])
    assert live.ask("event", "remove", "tested")["removed"] == "tested"
    assert live.mark("event", "remove", "tested", "--name", live.name).status == 2


def test_digits_are_recognised_by_a_triton_client(live: Rig) -> None:
    digits = load_digits()
    place = urlsplit(live.running["gateway"])
    client = triton.InferenceServerClient(f"{place.hostname}:{place.port}")
    try:
        assert client.is_server_ready()
        assert client.is_model_ready("digits")
        told = client.get_model_metadata("digits")
        images = digits.images[:20].astype(np.float32)
        wanted = triton.InferInput(told["inputs"][0]["name"], list(images.shape), "FP32")
        wanted.set_data_from_numpy(images)
        found = client.infer("digits", [wanted])
    finally:
        client.close()
    assert (found.as_numpy("label") == digits.target[:20]).mean() >= 0.95
    assert found.as_numpy("probabilities").sum(axis=1) == pytest.approx(np.ones(20), abs=1e-5)


def test_digits_are_recognised_by_triton_clients_over_grpc(live: Rig) -> None:
    digits = load_digits()
    images = digits.images[:20].astype(np.float32)

    def asked(inputs: Any, name: str) -> list[Any]:
        wanted = inputs(name, list(images.shape), "FP32")
        wanted.set_data_from_numpy(images)
        return [wanted]

    def right(found: Any) -> bool:
        share: float = (found.as_numpy("label") == digits.target[:20]).mean()
        return share >= 0.95

    with triton_grpc.InferenceServerClient(live.running["grpc"]) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("digits")
        assert client.get_server_metadata().name == "mark"
        assert client.get_model_config("digits").config.name == "digits"
        inputs = asked(triton_grpc.InferInput, client.get_model_metadata("digits").inputs[0].name)
        for coding in (None, "gzip"):
            assert right(client.infer("digits", inputs, compression_algorithm=coding, client_timeout=PATIENCE_S))
        done: queue.Queue[tuple[Any, Any]] = queue.Queue()
        client.async_infer("digits", inputs, lambda result, error: done.put((result, error)))
        result, error = done.get(timeout=PATIENCE_S)
        assert error is None
        assert right(result)

    async def in_a_loop() -> None:
        async with triton_grpc_aio.InferenceServerClient(live.running["grpc"]) as client:
            assert await client.is_model_ready("digits")
            for found in await asyncio.gather(*(client.infer("digits", inputs) for _ in range(10))):
                assert right(found)

    asyncio.run(in_a_loop())


def test_sagemaker_runtime_reaches_a_model(live: Rig) -> None:
    model = live.running["models"][1]
    client = boto3.client(
        "sagemaker-runtime",
        endpoint_url=live.running["gateway"],
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    try:
        answer = client.invoke_endpoint(
            EndpointName=model["name"], ContentType="application/json", Body=json.dumps(model["example"])
        )
        with answer["Body"] as stream:
            assert json.loads(stream.read())["outputs"]
    finally:
        client.close()


def test_a_clients_trace_reaches_the_model(live: Rig, collector: Receiver) -> None:
    (model,) = [one for one in live.running["models"] if one["name"] == RENTS]
    headers = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
    url = f"{live.running['gateway']}/v2/models/{RENTS}/infer"
    status, reply, _ = fetch(url, model["example"], more=headers)
    assert status == 200, reply
    eventually(lambda: {"batch", f"infer {RENTS}"} <= {span.name for span in collector.spans})
    infer, agent, batch = (collector.one(name) for name in (f"infer {RENTS}", "agent", "batch"))
    assert {span.trace_id for span in collector.spans} == {TRACE}
    assert (infer.parent_id, agent.parent_id, batch.parent_id) == (SPAN, infer.span_id, agent.span_id)
    assert collector.one("model").parent_id == batch.span_id
    assert (infer.resource["service.name"], batch.resource["service.name"]) == ("mark-gateway", "mark-agent")
    assert batch.attributes["mark.instance"] == agent.attributes["mark.instance"]


def test_metrics_come_and_the_key_from_gateways_alone(live: Rig, collector: Receiver) -> None:
    eventually(lambda: {"mark_gateway_responses", "mark_agent_responses"} <= collector.metrics.keys())
    keys = {headers.get("x-key") for headers in collector.headers}
    assert keys == {KEY, None}
    logs = "".join(path.read_text() for path in live.folder.rglob("*.log"))
    assert logs
    assert KEY not in logs


def test_a_load_is_answered_in_time_and_status_counts_it(live: Rig) -> None:
    before = model_status(live, "inception-v3")
    with core_waits() as waits:
        load = live.ask("load", "--rate", "20", "--duration", "4")
    assert set(load) == {"sent", "answered", "in_flight", "attained", "latency_ms", "by", "errors", "variants"}
    assert load["sent"] == load["answered"] == sum(load["by"].values())
    assert 50 <= load["sent"] <= 120
    assert load["errors"] == {"retried": 0}
    assert_in_time({**load, "waited_s": waits[0]}, 0.98, rate=20)
    points = load["latency_ms"]
    assert 0 < points["p50"] <= points["p95"] <= points["p98"] <= points["p99"] <= points["max"]
    after = model_status(live, "inception-v3")
    assert after["objective"]["answered"] - before["objective"]["answered"] == load["sent"]
    assert sum(after["by"].values()) - sum(before["by"].values()) == load["sent"]
    # rates are of whole windows of 5 s: the last one may still run
    eventually(lambda: model_status(live, "inception-v3")["rates"]["max_rps"] > 5)


def model_status(live: Rig, name: str) -> dict[str, Any]:
    document = live.ask("status")
    assert {"service", "now", "speed", "clock_stands", "controller", "store", "models"} <= set(document)
    found: dict[str, Any] = next(model for model in document["models"] if model["name"] == name)
    return found


def test_status_has_the_fields_that_are_documented(live: Rig) -> None:
    document = live.ask("status")
    assert document["service"] == live.name
    assert document["speed"] == 1.0
    assert document["clock_stands"] is False
    assert document["store"] == {"reachable": True}
    assert document["controller"]["holder"] in {"controller-0", "controller-1"}
    for model in document["models"]:
        assert set(model["cost_usd"]) == COST_WORDS
        costs = model["cost_usd"]
        assert costs["total"] == pytest.approx(costs["serving"] + costs["overhead"])
        assert costs["serving"] == pytest.approx(costs["instances"] + costs["standby"] + costs["lambda"])
        rents = model["name"] == RENTS
        assert (costs["instances"] > 0) == rents
        assert model["usd_per_hour"] is None or model["usd_per_hour"] > 0  # None in the first minute
        fleet = model["fleet"]
        ready = [row for row in fleet["observed"] if (row["role"], row["state"]) == ("serving", "ready")]
        assert len(ready) >= sum(fleet["planned"].values())
        assert (sum(fleet["planned"].values()) > 0) == rents
        for row in fleet["observed"]:
            named = {"id", "offering", "zone", "role", "version"}
            assert set(row) == {*named, "state", "gone_in_s", "credits", "usd_per_hour"}
        assert {"policy", "market", "objective", "rates", "series", "latency_ms", "by", "lambda", "plan"} <= set(
            model
        )
        assert model["decisions"]
        series = model["series"]
        assert len(series["mean_rps"]) == len(series["max_rps"]) == len(series["capacity_rps"]) < 60
        assert model["assumed"]["until"] <= series["start_at"]  # what was assumed before is no load that came
        counted = {"latency_ms", "target", "measured", "answered", "late", "shed", "attained"}
        assert set(model["objective"]) == counted | {"attained_lately", "accuracy", "accuracy_now"}
        assert model["objective"]["accuracy"] is None  # a model without variants says none
    table = live.mark("status", "--name", live.name)
    assert table.status == 0
    assert "inception-v3" in table.out
    assert "USD/h" in table.out


def test_explain_folds_the_journal_to_the_same_decisions(live: Rig) -> None:
    for model in live.running["models"]:
        told = live.ask("explain", "--model", model["name"])
        assert told["reproduces"] is True
        assert told["mismatches"] == []
        assert told["orders"].get("launch" if model["name"] == RENTS else "warm-lambda", 0) >= 1


def test_a_killed_agent_is_started_again_and_nobody_called_more_than_is_granted(live: Rig) -> None:
    killed = live.ask("chaos", "kill", "agent")["pid"]

    def all_run() -> bool:
        agents = {row["pid"] for row in live.instances("running")}  # 0 before its process is there
        return bool(agents) and killed not in agents and agents < live.processes()

    eventually(all_run)
    live.judge()


@needs_browser
def test_the_status_page_in_a_browser(live: Rig, tmp_path: Path) -> None:
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    seen = subprocess.run(  # noqa: S603 - our own page in a known browser
        [str(CHROMIUM), *flags, "--dump-dom", live.running["status_page"]],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    ).stdout
    assert "inception-v3" in seen
    assert "digits" in seen
    tiles = re.search(r'<div id="m0-tiles">.*?</div>\s*<figure', seen, re.DOTALL)
    assert tiles
    assert re.search(r"\d+\.\d+", tiles[0])
    assert "<svg" in seen


def test_metrics_of_gateway_agent_and_page(live: Rig) -> None:
    instance = next(row for row in live.instances("running") if row["tags"]["mark:role"] == "serving")
    for url in (live.running["gateway"], f"http://{instance['address']}:8000", live.running["status_page"]):
        status, body, headers = fetch(f"{url}/metrics")
        assert status == 200
        assert headers["content-type"].startswith("text/plain")
        samples = [line for line in body.decode().splitlines() if line.startswith("mark_")]
        assert samples, url
        assert len(samples) < 500  # labels are bounded


def test_metrics_are_of_both_gateways_whichever_is_asked(live: Rig) -> None:
    def gateways() -> set[str]:
        page = fetch(url_of(live, "/metrics"))[1].decode()
        return set(re.findall(r'^mark_gateway_connections\{gateway="(.*?)"\}', page, re.MULTILINE))

    eventually(lambda: all(gateways() == {"gateway-0", "gateway-1"} for _ in range(10)))


def client(live: Rig, service: str) -> Any:
    factory: Any = boto3.client  # its overloads take literals alone
    return factory(
        service,
        endpoint_url=live.running["aws_endpoint"],
        region_name="us-east-1",
        aws_access_key_id=live.running["aws_access_key_id"],
        aws_secret_access_key=live.running["aws_secret_access_key"],
    )


def move_to(live: Rig, at: float, *, speed: float = 0.0) -> None:
    """Let the service's clock show an instant, and stand there."""
    set_clock(live.store, live.controls, ClockAnchor(wall_at=time.time(), service_at=at, speed=speed))


def now(live: Rig) -> float:
    return live.store.clock().service_time(time.time())


def test_a_poison_message_is_a_dead_letter_rings_the_alarm_and_is_seen(live: Rig) -> None:
    sqs = client(live, "sqs")
    raw, dead = (sqs.get_queue_url(QueueName=name_of(live.name, part))["QueueUrl"] for part in ("raw", "raw-dead"))
    eventually(lambda: live.store.status("alerts"))
    assert all(live.store.status("alerts")[key] in (0, []) for key in ("dead_letters", "ringing"))  # type: ignore[index]
    sqs.set_queue_attributes(QueueUrl=raw, Attributes={"VisibilityTimeout": "1"})  # it comes again soon
    sqs.send_message(QueueUrl=raw, MessageBody='{"source": "aws.ec2", "detail-type": "poison"}')
    name = "ApproximateNumberOfMessages"

    def letters() -> str:
        return str(sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=[name])["Attributes"][name])

    eventually(lambda: letters() == "1")
    function = live.controls.state()["lambda"][name_of(live.name, "interruption")]
    assert function["invocations"] >= RAW_ATTEMPTS
    move_to(live, now(live) + 61, speed=1.0)
    alarm = name_of(live.name, "deadletters")
    eventually(lambda: live.controls.state()["alarms"] == {alarm: "ALARM"})
    move_to(live, now(live) + 61, speed=1.0)
    eventually(lambda: live.store.status("alerts")["ringing"])  # type: ignore[index]

    alerts = live.ask("status")["alerts"]
    assert alerts["dead_letters"] == 1
    assert [one["name"] for one in alerts["ringing"]] == [alarm]
    for told in (live.mark("status", "--name", live.name).out, fetch(live.running["status_page"])[1].decode()):
        assert "1 message about instances is a dead letter" in told
        assert f"{alarm} rings" in told
    assert f"{alarm} rings" in live.mark("status", "--aws", "--name", live.name).out

    sqs.purge_queue(QueueUrl=dead)
    move_to(live, now(live) + 61, speed=1.0)
    eventually(lambda: live.controls.state()["alarms"] == {alarm: "OK"})


def test_the_scheduled_report_arrives_with_the_command_s_figures_and_is_kept(live: Rig, due_at: float) -> None:
    move_to(live, due_at - 30)
    eventually(lambda: caught_up(live))
    assert mails(live) == []
    move_to(live, due_at)
    eventually(lambda: mails(live))
    (mail,) = mails(live)
    told = live.ask("report", "--since", "24h", "--policy", "none")
    printed = live.mark("report", "--since", "24h", "--policy", "none", "--name", live.name).out

    assert told["until"] == due_at
    message = email.message_from_string(mail["raw"], policy=default)
    assert isinstance(message, EmailMessage)
    text, html = (message.get_body((kind,)).get_content() for kind in ("plain", "html"))  # type: ignore[union-attr]
    assert text.replace("\r\n", "\n").strip() == printed.strip()
    digits = 2 if told["cost_usd"]["total"] >= SMALL_USD else 4
    for word in ("instances", "overhead", "total"):
        cost = f"{told['cost_usd'][word]:.{digits}f}"
        assert float(cost) > 0
        assert cost in text
        assert cost in html

    (kept,) = objects(live, "reports/").items()
    assert kept[0] == f"reports/{live.name}/{time.strftime('%Y-%m-%d', time.gmtime(due_at))}.html"
    assert f"{told['cost_usd']['total']:.{digits}f}" in kept[1].decode()
    assert "data:image/png;base64," in kept[1].decode()


def test_the_journal_is_archived_and_what_fails_is_told_and_done_later(live: Rig, due_at: float) -> None:
    at = due_at + OPEN_EACH_S + 60
    move_to(live, at - OPEN_EACH_S + 1)  # an hour and more since it began
    eventually(lambda: any(name.endswith(".jsonl.gz") for name in objects(live, journal(live))))
    assert live.store.status("archive")["failed"] is None  # type: ignore[index]
    before = set(objects(live, journal(live)))
    assert any(name.endswith("-000001.jsonl.gz") for name in before)

    denied = {"code": "AccessDenied", "status": 403, "count": 1, "match": ".jsonl.gz"}
    live.controls.fault({"kind": "error", "service": "s3", **denied})  # type: ignore[typeddict-item]
    move_to(live, at + 1)
    eventually(lambda: live.store.status("archive")["failed"])  # type: ignore[index]
    said = live.mark("status", "--name", live.name).out
    assert "The journal is not archived, and is tried again: PutObject: AccessDenied" in " ".join(said.split())
    move_to(live, at + AGAIN_S + 2)
    eventually(lambda: not live.store.status("archive")["failed"])  # type: ignore[index]

    found = objects(live, journal(live))
    assert before <= set(found)
    [segment] = (data for name, data in found.items() if name.endswith("-000001.jsonl.gz"))
    kept = list(read_journal(segment.splitlines())[1])
    assert kept == live.ticks(RENTS)[: len(kept)]
    assert kept[-1].seen.now >= at
    figures = json.loads(found[max(name for name in found if name.endswith("figures.json.gz"))])
    assert 0 < len(figures["transitions"]) <= len(live.store.transitions(RENTS))
    assert len(figures["load"]["counts"]) >= OPEN_EACH_S / 60


def caught_up(live: Rig) -> bool:
    """True once the controller has seen every minute that is over."""
    last = max((tick.seen.demand.start_at for tick in live.ticks(RENTS) if tick.seen.demand), default=0.0)
    return now(live) < last + 120.0


def mails(live: Rig) -> list[dict[str, Any]]:
    status, body, _ = fetch(
        f"{live.running['aws_endpoint']}/_mark/mail", token=live.running["aws_secret_access_key"]
    )
    assert status == 200
    return list(json.loads(body)["sent"])


def journal(live: Rig) -> str:
    """Where the bucket has the journal of the model that instances serve."""
    return f"{JOURNAL}/{live.name}/{RENTS}/"


def objects(live: Rig, prefix: str) -> dict[str, bytes]:
    """Objects of the bucket by name, unpacked."""
    s3 = client(live, "s3")
    bucket = str(live.store.status("resources")["bucket"])  # type: ignore[index]
    found = {}
    for row in s3.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", ()):
        with s3.get_object(Bucket=bucket, Key=row["Key"])["Body"] as stream:
            data = stream.read()
        found[row["Key"]] = gzip.decompress(data) if row["Key"].endswith(".gz") else data
    return found


@pytest.mark.slow
def test_what_init_writes_comes_up_and_again_at_once_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    with rig(tmp_path, "begun") as made:
        assert made.mark("init", "--to", "mark.yaml").status == 0
        again = made.mark("init", "--to", "mark.yaml")
        assert (again.status, again.out) == (2, "")
        assert "is there already" in again.err
        up = ("up", "--config", "mark.yaml", "--name", made.name)
        assert made.mark(*up, "--detach", timeout_s=UP_S).status == 0
        assert made.down().status == 0
        started = made.start(*up)
        try:
            assert started.stdout is not None
            said = started.stdout.readline()  # nothing is said before it is ready
            infer(made, made.running["models"][0])
            made.judge()
            started.send_signal(signal.SIGINT)
            _, err = started.communicate(timeout=PATIENCE_S)
        finally:
            started.kill()
            started.communicate()
        assert "is up and serves resnet-50, digits" in said, err
        assert "Traceback" not in err
        made.assert_gone()
