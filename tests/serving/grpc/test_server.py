"""tritonclient and plain gRPC against a gateway."""

from __future__ import annotations

import asyncio
import gc
import gzip
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from grpc import StatusCode, aio
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

from mark.domain.clients import Client, ClientDirectory, HashedKey, Limits, Priority, hash_of_key
from mark.domain.errors import Misconfigured
from mark.serving.grpc.grpc_server import STREAMS, GrpcConfig, GrpcServer
from mark.serving.grpc.messages import SERVICE
from mark.serving.http.http_server import HttpServer
from mark.serving.http.limits import HttpLimits
from tests.serving.fakes import EchoBackend
from tests.serving.harness import Live, live, run, served, until
from tests.serving.streams.backends import ScriptedBackend, streaming
from tests.serving.test_peers import certified
from tests.waiting import PATIENCE_S

VALUES = np.array([[1.5, 2.5]], dtype=np.float32)


@asynccontextmanager
async def serving(config: GrpcConfig | None = None, **options: Any) -> AsyncIterator[tuple[Live, GrpcServer]]:
    """A gateway that speaks gRPC, too."""
    made: list[GrpcServer] = []

    def beside(http: HttpServer) -> GrpcServer:
        made.append(GrpcServer(config or GrpcConfig(host="127.0.0.1", port=0), http))
        return made[0]

    async with live(beside=beside, **options) as running:
        yield running, made[0]


def against(talk: Callable[[str], None], **options: Any) -> None:
    """Let blocking code talk to a gateway's address."""

    async def test() -> None:
        async with serving(**options) as (_, server):
            await asyncio.to_thread(talk, f"127.0.0.1:{server.port}")

    run(test())


def asked(values: np.ndarray[Any, Any] = VALUES, datatype: str = "FP32") -> list[Any]:
    one = triton.InferInput("x", list(values.shape), datatype)
    one.set_data_from_numpy(values)
    return [one]


def typed(**contents: Any) -> Any:
    message = service_pb2.ModelInferRequest(model_name="echo")
    message.inputs.add(name="x", datatype="FP32", shape=[1, 2], contents=contents or {"fp32_contents": [1.5, 2.5]})
    return message


def call(channel: Any, method: str, message: Any, **options: Any) -> Any:
    response = getattr(service_pb2, f"{method}Response")
    ask = channel.unary_unary(
        f"/{SERVICE}/{method}",
        request_serializer=lambda one: one if isinstance(one, bytes) else one.SerializeToString(),
        response_deserializer=response.FromString,
    )
    return ask(message, **options)


@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
def test_tritonclient(compression: str | None) -> None:
    def talk(address: str) -> None:
        with triton.InferenceServerClient(address) as client:
            assert client.is_server_live()
            assert client.is_server_ready()
            assert client.is_model_ready("echo")
            assert client.is_model_ready("echo", "1")
            assert "binary_tensor_data" in client.get_server_metadata().extensions
            metadata = client.get_model_metadata("echo")
            assert (metadata.inputs[0].name, list(metadata.inputs[0].shape)) == ("x", [-1, 2])
            config = client.get_model_config("echo", as_json=True)["config"]
            assert (config["max_batch_size"], config["input"][0]["data_type"]) == (4, "TYPE_FP32")
            for outputs in (None, [triton.InferRequestedOutput("x")]):
                result = client.infer(
                    "echo",
                    asked(),
                    outputs=outputs,
                    request_id="r-1",
                    compression_algorithm=compression,
                    client_timeout=PATIENCE_S,
                    parameters={"own": "text", "count": 3},
                )
                np.testing.assert_array_equal(result.as_numpy("x"), VALUES)
                assert result.get_response().id == "r-1"
            large = np.arange(200_000, dtype=np.float32).reshape(-1, 2)
            found = client.infer("echo", asked(large), compression_algorithm=compression).as_numpy("x")
            np.testing.assert_array_equal(found, large)
            with pytest.raises(InferenceServerException, match="no route for") as missing:
                client.infer("other", asked())
            assert missing.value.status() == "StatusCode.NOT_FOUND"
            with pytest.raises(InferenceServerException, match="classification extension is not supported"):
                client.infer("echo", asked(), outputs=[triton.InferRequestedOutput("x", class_count=2)])
            shared = triton.InferInput("x", [1, 2], "FP32")
            shared.set_shared_memory("region", 8)
            with pytest.raises(InferenceServerException, match="shared memory is not supported"):
                client.infer("echo", [shared])

    against(talk)


def test_statistics_and_index_are_those_of_http() -> None:
    def talk(address: str) -> None:
        with triton.InferenceServerClient(address) as client:
            for _ in range(3):
                client.infer("echo", asked())
            for told in (client.get_inference_statistics("echo", "1"), client.get_inference_statistics()):
                (stats,) = told.model_stats
                assert (stats.name, stats.inference_count, stats.execution_count) == ("echo", 3, 3)
                assert stats.inference_stats.success.count == 3
                assert stats.inference_stats.success.ns > 0
            (model,) = client.get_model_repository_index().models
            assert (model.name, model.version, model.state) == ("echo", "1", "READY")
            with pytest.raises(InferenceServerException, match="no route for"):
                client.get_inference_statistics("other")

    against(talk)


def test_an_index_of_ready_models_leaves_out_what_has_no_instance() -> None:
    def talk(address: str) -> None:
        with grpc.insecure_channel(address) as channel:
            for ready, states in ((True, []), (False, ["UNAVAILABLE"])):
                found = call(channel, "RepositoryIndex", service_pb2.RepositoryIndexRequest(ready=ready))
                assert [one.state for one in found.models] == states

    against(talk, agents=0)


def test_an_index_is_for_who_has_the_token() -> None:
    def talk(address: str) -> None:
        with grpc.insecure_channel(address) as channel:
            for method in ("RepositoryIndex", "ModelStatistics"):
                assert refused(channel, b"\xff", method).code() == StatusCode.UNAUTHENTICATED

    against(talk, token="0123456789abcdef", agents=0)


async def test_tritonclient_in_an_event_loop() -> None:
    async with (
        serving() as (_, server),
        triton_aio.InferenceServerClient(f"127.0.0.1:{server.port}") as client,
    ):
        assert await client.is_server_live()
        assert await client.is_server_ready()
        assert await client.is_model_ready("echo")
        assert (await client.get_model_metadata("echo")).name == "echo"
        assert (await client.get_model_config("echo")).config.name == "echo"
        results = await asyncio.gather(*(client.infer("echo", asked(VALUES + n)) for n in range(20)))
        for number, result in enumerate(results):
            np.testing.assert_array_equal(result.as_numpy("x"), VALUES + number)
        with pytest.raises(InferenceServerException, match="no route for"):
            await client.infer("other", asked())


@pytest.mark.parametrize("values", [np.array([[b"a", b"\0\xff"]], dtype=object), VALUES.astype(np.float16)])
def test_texts_and_halves_come_back_as_they_went(values: np.ndarray[Any, Any]) -> None:
    def talk(address: str) -> None:
        with triton.InferenceServerClient(address) as client:
            result = client.infer("echo", asked(values, "BYTES" if values.dtype.kind == "O" else "FP16"))
            np.testing.assert_array_equal(result.as_numpy("x"), values)

    against(talk)


def test_typed_contents_are_answered_typed() -> None:
    def talk(address: str) -> None:
        with grpc.insecure_channel(address) as channel:
            answer, told = channel.unary_unary(
                f"/{SERVICE}/ModelInfer",
                request_serializer=service_pb2.ModelInferRequest.SerializeToString,
                response_deserializer=service_pb2.ModelInferResponse.FromString,
            ).with_call(typed())
            assert list(answer.outputs[0].contents.fp32_contents) == [1.5, 2.5]
            assert not answer.raw_output_contents
            trailing = dict(told.trailing_metadata())
            assert trailing["x-mark-served-by"] == "instance"
            assert trailing["x-mark-request-id"].startswith("g1")

    against(talk)


def refused(channel: Any, message: Any, method: str = "ModelInfer", **options: Any) -> Any:
    with pytest.raises(grpc.RpcError) as error:
        call(channel, method, message, **options)
    return error.value


def test_what_is_wrong_is_said() -> None:
    both = typed()
    both.raw_input_contents.append(bytes(8))
    spare = typed()
    spare.raw_input_contents.extend([bytes(8), b""])
    foreign = typed(int_contents=[1, 2])
    half = typed()
    half.inputs[0].datatype = "FP16"

    def talk(address: str) -> None:
        with grpc.insecure_channel(address) as channel:
            for message, text in (
                (both, "contents beside raw_input_contents"),
                (spare, "2 entries for 1 inputs"),
                (foreign, "FP32 goes into fp32_contents, not int_contents"),
                (half, "no typed contents, send raw_input_contents"),
                (b"\xff", "the message is no ModelInferRequest"),
                (service_pb2.ModelInferRequest(model_name="echo"), "at least one tensor"),
                (b"\x0b" * 70_000, "the message is no ModelInferRequest"),
                (b"\x2a\x00" * 40_000, "more than 2048 fields"),
            ):
                error = refused(channel, message)
                assert error.code() in (StatusCode.INVALID_ARGUMENT, StatusCode.RESOURCE_EXHAUSTED)
                assert text in error.details()
            for metadata, text in (
                ((("x-mark-deadline-ms", "soon"),), "whole number of milliseconds"),
                ((("x-mark-request-id", "a"), ("x-mark-request-id", "b")), "x-mark-request-id twice"),
            ):
                error = refused(channel, typed(), metadata=metadata)
                assert (error.code(), text in error.details()) == (StatusCode.INVALID_ARGUMENT, True)
            missing = refused(channel, service_pb2.ModelReadyRequest(name="other"), "ModelReady")
            assert missing.code() == StatusCode.NOT_FOUND
            assert refused(channel, b"", "RepositoryModelLoad").code() == StatusCode.UNIMPLEMENTED

    against(talk)


def test_a_message_that_unpacks_beyond_the_limit_is_refused() -> None:
    def talk(address: str) -> None:
        options = [("grpc.max_send_message_length", -1)]
        with grpc.insecure_channel(address, options, grpc.Compression.Gzip) as channel:
            bomb = bytes(8 * 2**20)
            assert len(gzip.compress(bomb)) < 10_000
            assert refused(channel, bomb).code() == StatusCode.RESOURCE_EXHAUSTED
            assert list(call(channel, "ModelInfer", typed()).outputs[0].contents.fp32_contents) == [1.5, 2.5]

    against(talk, limits=HttpLimits(body_bytes=2**20))


def test_keys_are_asked_for_before_the_message_is_read() -> None:
    def talk(address: str) -> None:
        with grpc.insecure_channel(address) as channel:
            for metadata in ((), (("authorization", "Bearer wrong"),)):
                for method, message in (
                    ("ModelInfer", typed()),
                    ("ModelMetadata", service_pb2.ModelMetadataRequest(name="echo")),
                    ("ServerMetadata", b""),
                ):
                    error = refused(channel, message, method, metadata=metadata)
                    assert error.code() == StatusCode.UNAUTHENTICATED
                    assert "a bearer token is required" in error.details()
            assert call(channel, "ServerLive", b"").live
            told = (("authorization", "Bearer 0123456789abcdef"),)
            assert call(
                channel, "ModelMetadata", service_pb2.ModelMetadataRequest(name="echo"), metadata=told
            ).name

    against(talk, token="0123456789abcdef", agents=0)


def test_a_service_without_instances_is_not_ready() -> None:
    def talk(address: str) -> None:
        with triton.InferenceServerClient(address) as client:
            assert client.is_server_live()
            assert not client.is_server_ready()
            assert not client.is_model_ready("echo")

    against(talk, agents=0)


def health(channel: Any, service: bytes = b"", method: str = "Check", **options: Any) -> bytes:
    """The bytes of a check's answer, by what the protocol's .proto says and no code of ours."""
    request = b"\x0a" + bytes([len(service)]) + service if service else b""
    found: bytes = channel.unary_unary(f"/grpc.health.v1.Health/{method}")(request, **options)
    return found


def test_grpcs_own_health_check() -> None:
    def talk(address: str) -> None:
        with grpc.insecure_channel(address) as channel:
            for service in (b"", SERVICE.encode()):
                assert health(channel, service) == b"\x08\x01"
            for service, method, code in (
                (b"other", "Check", StatusCode.NOT_FOUND),
                (b"", "Watch", StatusCode.UNIMPLEMENTED),
            ):
                with pytest.raises(grpc.RpcError) as error:
                    health(channel, service, method)
                assert error.value.code() == code

    against(talk, agents=0)


def test_the_health_check_of_a_stranger_is_not_read() -> None:
    def talk(address: str) -> None:
        with grpc.insecure_channel(address) as channel:
            assert health(channel) == health(channel, b"other") == b"\x08\x01"
            told = (("authorization", "Bearer 0123456789abcdef"),)
            with pytest.raises(grpc.RpcError, match="no service 'other'"):
                health(channel, b"other", metadata=told)

    against(talk, token="0123456789abcdef", agents=0)


async def _infer(server: GrpcServer, *, timeout: float | None = None, **metadata: str) -> Any:
    pairs = tuple((name.replace("_", "-"), value) for name, value in metadata.items())
    async with aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        return await call(channel, "ModelInfer", typed(), metadata=pairs, timeout=timeout)


async def test_ids_are_executed_once() -> None:
    async with serving() as (running, server):
        first, second = [await _infer(server, x_mark_request_id="mine") for _ in range(2)]
        assert first == second
        assert len(running.agents["i-0"].backend.requests) == 1


async def test_a_call_that_runs_out_of_time_ends_and_the_gateway_goes_on() -> None:
    async with serving() as (running, server):
        backend = running.agents["i-0"].backend
        backend.free.clear()
        with pytest.raises(aio.AioRpcError) as error:
            await _infer(server, timeout=0.2)
        assert error.value.code() == StatusCode.DEADLINE_EXCEEDED
        backend.free.set()
        assert (await _infer(server)).outputs


async def test_a_model_that_streams_is_refused_before_it_works() -> None:
    backend = ScriptedBackend(b"data: 1\n\n", None)
    async with serving(model=streaming(), agents=0) as (running, server):
        await running.add_agent("i-0", backend=cast("EchoBackend", backend))
        with pytest.raises(aio.AioRpcError, match="streams its answers") as error:
            await _infer(server)
        assert error.value.code() == StatusCode.UNIMPLEMENTED
        assert not backend.scripts


async def test_nobody_works_for_a_call_that_was_cancelled() -> None:
    patient = Client(
        name="nightly", keys=(HashedKey(sha256=hash_of_key(b"a-key")),), priority=Priority.ASYNC, deadline_s=3600.0
    )

    async with serving(model=served(latency_s=60.0, batch_s=(0.002,))) as (running, server):
        running.store.directory = ClientDirectory(version=1, clients=(patient,))

        async def asks_keys() -> bool:
            return (await running.ask()).status == 401

        await until(asks_keys)
        backend = running.agents["i-0"].backend
        backend.free.clear()
        calls = [asyncio.ensure_future(_infer(server, authorization="Bearer a-key")) for _ in range(8)]
        waiting = 'mark_gateway_async_waiting{model="echo"}'
        await running.until_metric(waiting, 7)
        for one in calls:
            one.cancel()
        await running.until_metric(waiting, 0)
        backend.free.set()


async def test_a_gateway_that_ends_answers_what_it_has() -> None:
    async with serving() as (running, server):
        backend = running.agents["i-0"].backend
        backend.free.clear()
        asking = asyncio.ensure_future(_infer(server))
        while not backend.requests:
            await asyncio.sleep(0.001)
        running.gateway_stop.set()
        await asyncio.sleep(0)
        backend.free.set()
        assert (await asking).outputs


async def test_limits_of_a_client_hold_for_grpc() -> None:
    limits = Limits(rate_rps=0.01, burst=1)
    key = HashedKey(sha256=hash_of_key(b"a-key"))
    known = Client(name="shop", keys=(key,), limits=limits, models=("echo",))
    elsewhere = Client(name="other", keys=(HashedKey(sha256=hash_of_key(b"b-key")),), models=("another",))

    async with serving() as (running, server):
        running.store.directory = ClientDirectory(version=1, clients=(known, elsewhere))

        async def code(**metadata: str) -> StatusCode:
            try:
                await _infer(server, **metadata)
            except aio.AioRpcError as error:
                return error.code()
            return StatusCode.OK

        async def asks_keys() -> bool:
            return await code() == StatusCode.UNAUTHENTICATED

        await until(asks_keys)
        assert await code(authorization="Bearer a-key") == StatusCode.OK
        with pytest.raises(aio.AioRpcError, match="above its rate") as limited:
            await _infer(server, authorization="Bearer a-key")
        assert limited.value.code() == StatusCode.RESOURCE_EXHAUSTED
        assert int(str(dict(limited.value.trailing_metadata() or ())["retry-after"])) > 1
        assert await code(authorization="Bearer b-key") == StatusCode.PERMISSION_DENIED


async def test_a_burst_above_the_streams_of_a_connection_waits_in_its_client() -> None:
    model = served(latency_s=60.0)
    async with (
        serving(model=model) as (_, server),
        aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        await call(channel, "ModelInfer", typed())
        answers = await asyncio.gather(*(call(channel, "ModelInfer", typed()) for _ in range(3 * STREAMS)))
        assert all(answer.outputs for answer in answers)


async def test_what_is_shed_is_unavailable_with_a_time_to_retry() -> None:
    async with serving(agents=0) as (_, server):
        with pytest.raises(aio.AioRpcError) as error:
            await _infer(server)
        assert error.value.code() == StatusCode.UNAVAILABLE
        assert "no capacity to meet the deadline" in str(error.value.details())
        assert dict(error.value.trailing_metadata() or ())["retry-after"] == "1"


def test_a_version_is_named_by_the_message() -> None:
    def talk(address: str) -> None:
        with triton.InferenceServerClient(address) as client:
            np.testing.assert_array_equal(client.infer("echo", asked(), model_version="1").as_numpy("x"), VALUES)
            with pytest.raises(InferenceServerException, match="no route for"):
                client.infer("echo", asked(), model_version="7")

    against(talk)


def test_tls_with_the_gateways_certificate(tmp_path: Path) -> None:
    certified(tmp_path)
    chain, key = ((tmp_path / name).read_bytes() for name in ("cert.pem", "key.pem"))

    def talk(address: str) -> None:
        with grpc.secure_channel(address, grpc.ssl_channel_credentials(chain)) as channel:
            assert call(channel, "ModelInfer", typed()).outputs

    against(talk, config=GrpcConfig(host="127.0.0.1", port=0, identity=(key, chain)))


def test_a_port_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        async def test() -> None:
            with pytest.raises(Misconfigured, match=f"cannot serve gRPC on 127.0.0.1:{port}"):
                async with serving(GrpcConfig(host="127.0.0.1", port=port), agents=0):
                    pass

        run(test())


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame of HTTP/2."""
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def opening(*calls: int, extra: Mapping[str, str] = MappingProxyType({}), data: bytes = b"") -> bytes:
    """The bytes that open a connection with these calls of ModelInfer, which go on; each begins with `data`."""
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": f"/{SERVICE}/ModelInfer",
        ":authority": "localhost",
        "te": "trailers",
        "content-type": "application/grpc",
        **extra,
    }
    literal = b"".join(
        bytes([0, len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in headers.items()
    )
    begun = b"".join(frame(1, 4, call, literal) + frame(0, 0, call, data) for call in calls)
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + begun


def test_messages_that_are_still_to_come_stay_within_the_memory_for_bodies() -> None:
    async def test() -> None:
        async with serving() as (_, server):
            limits, budget = server._http.limits, server._http.budget
            fit, calls = budget.limit // limits.body_bytes, 40
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            prefix = b"\0" + limits.body_bytes.to_bytes(4) + b"x"
            writer.write(opening(*range(1, 2 * calls, 2), data=prefix))
            refused = 0
            while refused < calls - fit:
                size, kind, flags = int.from_bytes(await reader.readexactly(3)), *(await reader.readexactly(2))
                await reader.readexactly(4 + size)
                refused += kind == 1 and bool(flags & 1)
            assert budget.held == fit * limits.body_bytes
            with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
                assert await asyncio.to_thread(call, channel, "ModelInfer", typed())
            writer.close()
            await until(lambda: budget.has_room(budget.limit, budget.limit))

    gc.disable()  # nothing that ends with a call may wait for the collector
    try:
        run(test())
    finally:
        gc.enable()


async def test_a_client_that_writes_line_ends_into_its_metadata_is_refused() -> None:
    async with serving() as (_, server):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        message = typed().SerializeToString()
        begun = opening(1, extra={"x-mark-request-id": "a\r\n\r\nGET / HTTP/1.1"})
        writer.write(begun + frame(0, 1, 1, b"\0" + len(message).to_bytes(4) + message))
        assert b"has control characters" in await reader.readuntil(b"control characters")
        writer.close()
