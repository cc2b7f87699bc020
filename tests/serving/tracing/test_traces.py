import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

from mark.dispatch.policy import Bounced, DispatchPolicy
from mark.domain.clients import HashedKey, hash_of_key
from mark.domain.models.objective import Slo
from mark.domain.telemetry import Telemetry
from mark.ports import InferReply, InferRequest
from mark.protocols.oip import bodies as oip
from mark.protocols.trace_context import MOST_CARRIED
from mark.serving.backends.oip_server import OipBackend
from mark.serving.backends.tf_serving import TfServingBackend
from mark.serving.passed_on_trace import PassedOn, passed_on
from mark.telemetry.otlp.sender import TelemetrySender, open_telemetry
from tests.serving.backends.model_servers import Answer, model_server
from tests.serving.fakes import EchoBackend
from tests.serving.gateway.test_clients import client, directory, known
from tests.serving.gateway.test_held_requests import asked, patient, waiting
from tests.serving.harness import BODY, INFER, INPUTS, LAMBDA, Client, Live, live, run, served, until
from tests.serving.streams.backends import STREAM, Script, ScriptedBackend, read_body, read_head, streaming
from tests.telemetry.receiver import Received, Receiver, receiver

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = f"00-{TRACE}-{SPAN}-01"
UNSAMPLED = f"00-{TRACE}-{SPAN}-00"
SERVER, CLIENT = 2, 3


def sender(url: str, *, ratio: float = 1.0, every_s: float | None = None) -> TelemetrySender:
    told = Telemetry(endpoint=url, trace_ratio=ratio, metrics_every_s=every_s)
    found = open_telemetry(
        told, process="mark-test", namespace="test", instance="one", headers={"x-key": "secret"}
    )
    assert found is not None
    return found


@asynccontextmanager
async def traced(collector: Receiver, *args: Any, ratio: float = 1.0, **kwargs: Any) -> AsyncIterator[Live]:
    """A gateway and agents whose spans have all come once this is left."""
    telemetry = sender(collector.url, ratio=ratio)
    try:
        async with live(*args, telemetry=telemetry, **kwargs) as running:
            yield running
    finally:
        await telemetry.close()


def is_within(inner: Received, outer: Received, *, apart_ns: int = 1_000_000) -> bool:
    return outer.began_ns - apart_ns <= inner.began_ns <= inner.ended_ns <= outer.ended_ns + apart_ns


async def test_an_answer_is_one_trace_from_the_client_to_the_model() -> None:
    with receiver() as collector:
        async with traced(collector) as running:
            reply = await running.ask(traceparent=SAMPLED, tracestate="rojo=1", x_mark_request_id="r1")
            assert reply.status == 200
        infer, agent, batch = collector.one("infer echo"), collector.one("agent"), collector.one("batch")
        below = {"dispatch": infer, "agent": infer, "queue": agent, "batch": agent, "model": batch}
        assert {span.name for span in collector.spans} == {"infer echo", *below}
        assert {span.trace_id for span in collector.spans} == {TRACE}
        assert {span.state for span in collector.spans} == {"rojo=1"}
        assert infer.parent_id == SPAN
        for name, parent in below.items():
            assert collector.one(name).parent_id == parent.span_id
            assert is_within(collector.one(name), parent)
        assert (infer.kind, agent.kind) == (SERVER, CLIENT)
        told = infer.attributes
        assert told["mark.model"] == "echo"
        assert told["mark.request_id"] == "r1"
        assert told["mark.served_by"] == "instance"
        assert told["mark.outcome"] == "answered"
        assert told["mark.attained"] is not told["mark.late"]
        assert told["http.response.status_code"] == 200
        assert told["url.path"] == INFER
        assert agent.attributes["mark.instance"] == "i-0"
        assert infer.resource["service.name"] == "mark-test"
        assert not any(span.failed for span in collector.spans)


async def test_a_parent_that_is_none_stops_no_gateway() -> None:
    async with live() as running:
        for length in range(MOST_CARRIED - 2, MOST_CARRIED + 2):
            reply = await running.ask(traceparent="x" * length, tracestate="rojo=1")
            assert reply.status == 200


async def test_a_batch_is_linked_to_each_of_its_requests() -> None:
    with receiver() as collector:
        async with traced(collector) as running:
            held = running.agents["i-0"].backend
            held.free.clear()
            asked = []
            for count in (1, 3):
                asked += [asyncio.ensure_future(running.ask()) for _ in range(count - len(asked))]
                await running.until_metric("mark_gateway_in_flight", count)
                await until(lambda: held.batches == [1])
            held.free.set()
            assert {reply.status for reply in await asyncio.gather(*asked)} == {200}
            assert held.batches == [1, 2]
        agents = {span.span_id: span for span in collector.named("agent")}
        (second,) = [span for span in collector.named("batch") if span.attributes["mark.batch.requests"] == 2]
        first, other = second.links
        assert second.attributes["mark.batch.items"] == 2
        assert (second.trace_id, second.parent_id) == first
        assert other[0] != first[0]
        assert {agents[span_id].trace_id for _, span_id in second.links} == {first[0], other[0]}
        for trace_id, span_id in second.links:
            (queue,) = [span for span in collector.named("queue") if span.parent_id == span_id]
            assert queue.trace_id == trace_id
            assert queue.links == [(second.trace_id, second.span_id)]
        (model,) = [span for span in collector.named("model") if span.parent_id == second.span_id]
        assert model.trace_id == second.trace_id


async def test_an_overflow_to_lambda_is_in_its_requests_trace() -> None:
    model = served(dispatch=DispatchPolicy(bounced=Bounced.LAMBDA), overflow=LAMBDA)
    with receiver() as collector:
        async with traced(collector, model, agents=0) as running:
            state = ",".join(f"vendor{n}=0123456789" for n in range(9))
            assert (await running.ask(traceparent=SAMPLED, tracestate=state)).status == 200
            ((_, request),) = running.overflow.calls
        called, infer = collector.one("lambda"), collector.one("infer echo")
        assert request.trace is not None
        assert request.trace.headers == {
            "traceparent": f"00-{TRACE}-{called.span_id}-01",
            "tracestate": state,
        }
        assert (infer.trace_id, infer.parent_id) == (TRACE, SPAN)
        assert called.parent_id == infer.span_id
        assert called.kind == CLIENT
        assert called.attributes["faas.invoked_name"] == "mark-echo"
        assert called.attributes["mark.cold"] is True
        assert infer.attributes["mark.served_by"] == "lambda"


async def test_what_is_bounced_and_lost_on_the_way_is_seen() -> None:
    with receiver() as collector:
        async with traced(collector, served(latency_s=5.0), agents=2) as running:
            for agent in running.agents.values():
                agent.backend.free.clear()
            asked = asyncio.ensure_future(running.ask(traceparent=SAMPLED))
            await until(lambda: any(agent.backend.batches for agent in running.agents.values()))
            (name,) = [name for name, agent in running.agents.items() if agent.backend.batches]
            running.agents[name].stop.set()
            await running.agents[name].task
            for agent in running.agents.values():
                agent.backend.free.set()
            assert (await asked).status == 200
        tries = sorted(collector.named("agent"), key=lambda span: span.began_ns)
        assert [span.attributes["mark.outcome"] for span in tries] == ["lost", "answered"]
        assert [span.failed for span in tries] == [True, False]
        assert len(collector.named("dispatch")) == 2
        assert len({span.parent_id for span in tries}) == 1


@pytest.mark.parametrize(("status", "outcome"), [(400, "rejected"), (503, "shed")])
async def test_what_is_not_served_says_so(status: int, outcome: str) -> None:
    with receiver() as collector:
        async with traced(collector, agents=1 if status == 400 else 0) as running:
            body = b"{" if status == 400 else BODY
            assert (await running.ask(body=body, traceparent=SAMPLED)).status == status
        infer = collector.one("infer echo")
        assert infer.attributes["mark.outcome"] == outcome
        assert infer.failed is (status == 503)
        assert not infer.attributes["mark.attained"]
        assert not infer.attributes["mark.late"]


async def test_a_clients_name_is_told_and_its_key_never() -> None:
    with receiver() as collector:
        async with traced(collector) as running:
            await known(running, client("probe"))
            key = HashedKey(sha256=hash_of_key(b"a-key"))
            running.store.directory = directory(replace(client("shop"), keys=(key,)), version=2)

            async def let_in() -> bool:
                return (await running.ask(traceparent=SAMPLED, authorization="Bearer a-key")).status == 200

            await until(let_in)
        (infer,) = collector.named("infer echo")
        assert infer.attributes["mark.client"] == "shop"
        assert "a-key" not in repr(collector.spans)


async def test_one_of_the_async_class_waits_in_dispatch() -> None:
    with receiver() as collector:
        async with traced(collector, served(latency_s=60.0, batch_s=(0.002,))) as running:
            held = running.agents["i-0"].backend
            await known(running, client("shop"), patient())
            held.free.clear()
            ordinary = asked(running, "shop")
            await until(lambda: bool(held.batches))
            patiently = asked(running, "nightly", traceparent=SAMPLED)
            await waiting(running, 1)
            held.free.set()
            assert {reply.status for reply in await asyncio.gather(ordinary, patiently)} == {200}
        ordinary_span, waited = sorted(collector.named("infer echo"), key=lambda span: span.began_ns)
        (dispatch,) = [span for span in collector.named("dispatch") if span.parent_id == waited.span_id]
        assert waited.attributes["mark.client"] == "nightly"
        assert waited.attributes["mark.attained"] is True
        assert waited.began_ns < ordinary_span.ended_ns < dispatch.ended_ns
        assert is_within(dispatch, waited)


async def test_parents_decide_and_the_ratio_decides_for_the_rest() -> None:
    with receiver() as collector:
        async with traced(collector, ratio=1e-12) as running:
            assert (await running.ask()).status == 200
            assert (await running.ask(traceparent=UNSAMPLED, tracestate="rojo=1")).status == 200
            assert (await running.ask(traceparent=SAMPLED)).status == 200
            first, second, _ = running.agents["i-0"].backend.requests
            assert first.trace is None
            assert second.trace is not None
            assert second.trace.headers == {"traceparent": UNSAMPLED, "tracestate": "rojo=1"}
        assert len(collector.named("infer echo")) == 1


async def test_without_telemetry_headers_pass_through_to_the_model_and_to_lambda() -> None:
    model = served(dispatch=DispatchPolicy(bounced=Bounced.LAMBDA), overflow=LAMBDA)
    async with live(model) as running:
        assert (await running.ask(traceparent=SAMPLED, tracestate="rojo=1")).status == 200
        assert (await running.ask(traceparent="00-1-2-01")).status == 200
        passed, unreadable = running.agents["i-0"].backend.requests
        assert passed.trace is not None
        assert passed.trace.headers == {"traceparent": SAMPLED, "tracestate": "rojo=1"}
        assert unreadable.trace is None
    async with live(model, agents=0) as running:
        assert (await running.ask(traceparent=SAMPLED)).status == 200
        ((_, request),) = running.overflow.calls
        assert request.trace is not None
        assert request.trace.headers == {"traceparent": SAMPLED}


@pytest.mark.parametrize("kind", ["refuses", "fails"])
async def test_a_dead_collector_harms_nobody(kind: str) -> None:
    with receiver() as collector, socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(1)  # connects, and nobody ever answers
        collector.status = 400
        silent_url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        telemetry = sender(collector.url if kind == "refuses" else silent_url)
        async with live(telemetry=telemetry) as running:
            client = await running.client()
            for _ in range(300):
                assert (await client.ask()).status == 200
            await client.close()
            shown = (await running.ask("/metrics", None, "GET")).body.decode()
            assert "mark_gateway_spans_dropped_total" in shown
        assert telemetry.spans is not None
        await telemetry.close()
        assert not telemetry.spans.sent
        assert telemetry.spans.dropped or kind != "refuses"


async def test_the_collectors_key_goes_to_the_collector_and_no_log(caplog: pytest.LogCaptureFixture) -> None:
    with receiver() as collector:
        collector.status = 401
        async with traced(collector) as running:
            assert (await running.ask()).status == 200
        assert {headers["x-key"] for headers in collector.headers} == {"secret"}
    assert "collector takes no spans" in caplog.text
    assert "secret" not in caplog.text


def tf_answer(_method: str, path: str, _headers: dict[str, str], body: bytes) -> Answer:
    if path.endswith(":predict"):
        return 200, {}, json.dumps({"outputs": {"x": json.loads(body)["inputs"]["x"]}}).encode()
    return 200, {}, json.dumps({"model_version_status": [{"state": "AVAILABLE"}]}).encode()


def oip_answer(_method: str, path: str, _headers: dict[str, str], body: bytes) -> Answer:
    if path.endswith("/infer"):
        found = {"model_name": "echo", "outputs": json.loads(body)["inputs"]}
        return 200, {}, json.dumps(found).encode()
    inputs = [{"name": spec.name, "datatype": spec.datatype, "shape": list(spec.shape)} for spec in INPUTS]
    return 200, {}, json.dumps({"name": "echo", "inputs": inputs, "outputs": inputs, "extensions": []}).encode()


@pytest.mark.parametrize(("kind", "count"), [("oip", 1), ("oip", 2), ("tf", 1), ("tf", 2)])
async def test_model_servers_get_the_headers(kind: str, count: int) -> None:
    seen: list[dict[str, str]] = []

    def respond(method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        if method == "POST":
            seen.append(headers)
        return (oip_answer if kind == "oip" else tf_answer)(method, path, headers, body)

    with model_server(respond) as server:
        backend: OipBackend | TfServingBackend = (
            OipBackend(server.url, name="echo")
            if kind == "oip"
            else TfServingBackend(server.url, name="echo", inputs=INPUTS, outputs=INPUTS)
        )
        await backend.start()
        trace = passed_on(f"{SAMPLED} rojo=1".encode())
        assert isinstance(trace, PassedOn)
        plain = InferRequest(path=INFER, content_type=oip.JSON_TYPE, body=BODY)
        batch = [plain] * (count - 1) + [plain._replace(trace=trace)]
        replies: list[InferReply] = list(await backend.infer(batch))
        await backend.close()
        assert [reply.status for reply in replies] == [200] * count
    assert [(head["traceparent"], head["tracestate"]) for head in seen] == [(SAMPLED, "rojo=1")]


async def test_metrics_are_the_ones_that_prometheus_reads() -> None:
    with receiver() as collector:
        telemetry = sender(collector.url, ratio=0.0, every_s=0.05)
        assert telemetry.spans is None
        async with live(telemetry=telemetry) as running:
            for _ in range(3):
                assert (await running.ask()).status == 200

            async def came() -> bool:
                found = collector.metrics.get("mark_gateway_responses")
                return found is not None and sum(point.as_double for point in found.sum.data_points) == 3

            await until(came)
            shown = (await running.ask("/metrics", None, "GET")).body.decode()
        await telemetry.close()
        names = {line.split()[2] for line in shown.splitlines() if line.startswith("# TYPE")}
        assert {name.removesuffix("_total") for name in names} <= set(collector.metrics)
        (latency,) = collector.metrics["mark_gateway_latency_seconds"].histogram.data_points
        assert latency.count == sum(latency.bucket_counts) == 3
        assert len(latency.explicit_bounds) == len(latency.bucket_counts) - 1
        assert "mark_agent_responses" in collector.metrics


async def test_a_state_in_several_lines_is_one_list() -> None:
    async with live() as running:
        client = await running.client()
        head = f"POST {INFER} HTTP/1.1\r\nhost: test\r\ncontent-length: {len(BODY)}\r\ntraceparent: {SAMPLED}\r\n"
        for _ in range(2):
            client.writer.write(f"{head}tracestate: a=1\r\nTraceState: b=2\r\n\r\n".encode() + BODY)
            assert (await client.read()).status == 200
        await client.close()
        for request in running.agents["i-0"].backend.requests:
            assert request.trace is not None
            assert request.trace.headers["tracestate"].replace(" ", "") == "a=1,b=2"


def streamed(collector: Receiver, *, first: bytes | None = b"data: 1\n\n", slo: Slo | None = None) -> Any:
    """Let a test talk to a model that streams, whose first part is there."""

    def decorate(talk: Callable[[Client, Script], Coroutine[Any, Any, None]]) -> None:
        async def test() -> None:
            backend = ScriptedBackend()
            async with traced(collector, streaming(slo=slo), agents=0) as running:
                await running.add_agent("i-0", backend=cast("EchoBackend", backend))
                asking = await running.client()
                asking.send(STREAM, b"{}", traceparent=SAMPLED)
                script = await backend.script()
                if first is not None:
                    script.say(first)
                    await read_head(asking)
                await talk(asking, script)

        run(test())

    return decorate


def test_an_answer_that_streams_is_a_trace_with_its_first_byte() -> None:
    with receiver() as collector:

        @streamed(collector, slo=Slo(latency_s=60.0, target=0.98, first_byte_s=30.0))
        async def _(asking: Client, script: Script) -> None:
            script.say(None)
            assert (await read_body(asking))[1]

        infer, agent = collector.one("infer echo"), collector.one("agent")
        below = {"dispatch": infer, "agent": infer, "queue": agent, "stream": agent}
        assert {span.name for span in collector.spans} == {"infer echo", *below}
        for name, parent in below.items():
            assert collector.one(name).parent_id == parent.span_id
            assert is_within(collector.one(name), parent)
        assert agent.began_ns <= infer.events["first byte"] <= infer.ended_ns
        told = infer.attributes
        assert (told["mark.outcome"], told["mark.attained"], told["mark.objective_ms"]) == (
            "answered",
            True,
            30_000,
        )
        assert not any(span.failed for span in collector.spans)


def test_a_stream_that_is_not_whole_has_failed() -> None:
    with receiver() as collector:

        @streamed(collector)
        async def _(asking: Client, script: Script) -> None:
            script.say(RuntimeError("out of tokens"))
            assert not (await read_body(asking))[1]

        infer = collector.one("infer echo")
        assert (infer.attributes["mark.outcome"], infer.attributes["error.type"]) == ("cut short", "cut_short")
        assert infer.events
        assert {span.name for span in collector.spans if span.failed} == {"infer echo", "agent", "stream"}


@pytest.mark.parametrize("first", [b"data: 1\n\n", None])
def test_who_leaves_a_stream_is_no_failure(first: bytes | None) -> None:
    with receiver() as collector:

        @streamed(collector, first=first)
        async def _(asking: Client, script: Script) -> None:
            await asking.close()
            await script.closed.wait()

        infer, agent = collector.one("infer echo"), collector.one("agent")
        assert (infer.attributes["mark.outcome"], bool(infer.events)) == ("client gone", first is not None)
        assert agent.attributes["mark.outcome"] == "cancelled"
        assert collector.named("stream")
        assert not any(span.failed for span in collector.spans)
