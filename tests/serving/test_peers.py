"""Real clients against a gateway: tritonclient, boto3's SageMaker runtime, and TLS."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import subprocess
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import botocore.exceptions
import numpy as np
import pytest
import tritonclient.http as triton
from botocore.config import Config
from tritonclient.utils import InferenceServerException

from mark.domain.fleet.member import Peer
from mark.protocols.oip.bodies import error_reply
from mark.serving.certificate import make_certificate
from mark.serving.gateway.peers import PeerGateway
from tests.serving.harness import INFER, Client, Live, live, run, served


def against(talk: Callable[[Live], None], **options: Any) -> None:
    """Let blocking code talk to a gateway."""

    async def test() -> None:
        async with live(**options) as running:
            await asyncio.to_thread(talk, running)

    run(test())


@pytest.mark.parametrize("binary", [True, False])
def test_tritonclient(binary: bool) -> None:
    def talk(running: Live) -> None:
        with closing(triton.InferenceServerClient(f"127.0.0.1:{running.port}")) as client:
            assert client.is_server_live()
            assert client.is_server_ready()
            assert client.is_model_ready("echo")
            assert client.is_model_ready("echo", "1")
            assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
            assert client.get_model_metadata("echo")["inputs"][0]["name"] == "x"
            values = np.array([[1.5, 2.5]], dtype=np.float32)
            wanted = triton.InferInput("x", [1, 2], "FP32")
            wanted.set_data_from_numpy(values, binary_data=binary)
            for outputs in (None, [triton.InferRequestedOutput("x", binary_data=binary)]):
                result = client.infer("echo", [wanted], outputs=outputs, request_id="r-1")
                np.testing.assert_array_equal(result.as_numpy("x"), values)
                assert result.get_response()["id"] == "r-1"
            several = [client.async_infer("echo", [wanted]) for _ in range(5)]
            for answer in several:
                np.testing.assert_array_equal(answer.get_result().as_numpy("x"), values)
            with pytest.raises(InferenceServerException, match="no route for"):
                client.infer("other", [wanted])

    against(talk)


@pytest.mark.parametrize("rows", [1, 40_000])
@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_tritonclient_compresses(coding: str, binary: bool, rows: int) -> None:
    def talk(running: Live) -> None:
        with closing(triton.InferenceServerClient(f"127.0.0.1:{running.port}")) as client:
            values = np.full((rows, 2), 0.5, dtype=np.float32)
            wanted = triton.InferInput("x", [rows, 2], "FP32")
            wanted.set_data_from_numpy(values, binary_data=binary)
            result = client.infer(
                "echo",
                [wanted],
                outputs=[triton.InferRequestedOutput("x", binary_data=binary)],
                request_compression_algorithm=coding,
                response_compression_algorithm=coding,
            )
            np.testing.assert_array_equal(result.as_numpy("x"), values)

    against(talk)


def test_tritonclient_learns_what_there_is() -> None:
    def talk(running: Live) -> None:
        with closing(triton.InferenceServerClient(f"127.0.0.1:{running.port}")) as client:
            ready = {"name": "echo", "version": "1", "state": "READY", "reason": ""}
            assert client.get_model_repository_index() == [ready]
            config = client.get_model_config("echo")
            assert config["max_batch_size"] == 4
            assert config["input"] == [{"name": "x", "data_type": "TYPE_FP32", "dims": [2]}]
            assert client.get_model_config("echo", "1") == config
            wanted = triton.InferInput("x", [1, 2], "FP32")
            wanted.set_data_from_numpy(np.zeros((1, 2), dtype=np.float32))
            for _ in range(3):
                client.infer("echo", [wanted])
            for found in (client.get_inference_statistics(), client.get_inference_statistics("echo")):
                (entry,) = found["model_stats"]
                assert (entry["name"], entry["version"], entry["inference_count"]) == ("echo", "1", 3)
                assert entry["inference_stats"]["success"]["count"] == 3
                assert entry["inference_stats"]["success"]["ns"] > 0
            with pytest.raises(InferenceServerException, match="trace settings"):
                client.get_trace_settings()
            with pytest.raises(InferenceServerException, match="loading models"):
                client.load_model("echo")
            with pytest.raises(InferenceServerException, match="shared memory"):
                client.get_system_shared_memory_status()
            with pytest.raises(InferenceServerException, match="no route for"):
                client.get_model_config("other")

    against(talk)


async def test_the_index_says_who_is_not_ready() -> None:
    async with live(agents=0) as running:
        (entry,) = (await running.ask("/v2/repository/index", b"")).document
        assert (entry["state"], entry["reason"]) == ("UNAVAILABLE", "no instance accepts requests")
        assert (await running.ask("/v2/repository/index", b'{"ready": true}')).document == []
        assert (await running.ask("/v2/repository/index", b"{")).status == 400
        assert (await running.ask("/v2/repository/index", None, "GET")).status == 405


@pytest.mark.parametrize(
    "path",
    [
        "/v1/models/echo:predict",
        "/v1/models/echo",
        "/v2/trace/setting",
        "/v2/models/echo/trace/setting",
        "/v2/models/echo/generate_stream",
        "/v2/logging",
        "/endpoints/echo/invocations-response-stream",
        "/endpoints/echo/async-invocations",
    ],
)
async def test_what_is_not_offered_is_said(path: str) -> None:
    async with live(agents=0) as running:
        reply = await running.ask(path, b"{}")
        assert reply.status == 501
        assert "not supported: " in reply.body.decode()


async def test_an_agents_own_port_knows_nothing_of_a_gateways() -> None:
    async with live() as running:
        client = Client(*await asyncio.open_connection("127.0.0.1", running.agents["i-0"].http_port))
        for path in ("/v2/models/echo/config", "/v2/models/stats", "/v2/repository/index"):
            assert (await client.ask(path, None, "GET")).status == 404
        await client.close()


def sagemaker(port: int) -> Any:
    return boto3.client(
        "sagemaker-runtime",
        endpoint_url=f"http://127.0.0.1:{port}",
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(retries={"total_max_attempts": 1}),
    )


def test_sagemaker_runtime() -> None:
    def talk(running: Live) -> None:
        with closing(sagemaker(running.port)) as client:
            body = json.dumps({"instances": [[1, 2]]})
            answer = client.invoke_endpoint(EndpointName="echo", ContentType="application/json", Body=body)
            with answer["Body"] as stream:
                assert json.loads(stream.read()) == {"instances": [[1, 2]]}
            assert answer["InvokedProductionVariant"] == "AllTraffic"
            variant = client.invoke_endpoint(EndpointName="echo", Body=body, TargetVariant="small")
            with variant["Body"] as stream:
                stream.read()
            assert variant["InvokedProductionVariant"] == "small"
            with pytest.raises(client.exceptions.ClientError, match="no variant 'large'") as error:
                client.invoke_endpoint(EndpointName="echo", Body=body, TargetVariant="large")
            assert error.value.response["Error"]["Code"] == "ValidationError"
            with pytest.raises(botocore.exceptions.ClientError):
                client.invoke_endpoint(EndpointName="other", Body=body)

    against(talk, model=served(variants=("small",)))


def test_sagemaker_runtime_is_told_what_the_model_said() -> None:
    def talk(running: Live) -> None:
        running.agents["i-0"].backend.answers = error_reply(400, "the body is not JSON")
        with closing(sagemaker(running.port)) as client:
            with pytest.raises(botocore.exceptions.ClientError, match="the body is not JSON") as error:
                client.invoke_endpoint(EndpointName="echo", Body=b"{")
            assert error.value.response["Error"]["Code"] == "ValidationError"

    against(talk)


def test_sagemaker_runtime_is_told_when_nobody_serves() -> None:
    def talk(running: Live) -> None:
        with closing(sagemaker(running.port)) as client:
            with pytest.raises(botocore.exceptions.ClientError) as error:
                client.invoke_endpoint(EndpointName="echo", Body=b"{}")
            assert error.value.response["Error"]["Code"] == "ServiceUnavailable"

    against(talk, agents=0)


def certified(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's side of TLS, and that of a client who trusts it."""
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=localhost"
    )
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command.split(), *names], check=True, capture_output=True)  # noqa: S603
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    return server, ssl.create_default_context(cafile=str(certificate))


async def test_a_client_with_tls_is_told_that_its_token_is_wrong_though_its_body_is_not_read(
    tmp_path: Path,
) -> None:
    server, trusting = certified(tmp_path)

    async with live(agents=0, tls=server, token="secret") as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=trusting)
        writer.write(b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: 9000000\r\n\r\n" % INFER.encode())
        writer.write(b"x" * 2_000_000)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 401 ")
        writer.transport.abort()


async def test_tls(tmp_path: Path) -> None:
    server, trusting = certified(tmp_path)

    async with live(agents=0, tls=server) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=trusting)
        writer.write(b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()
        await writer.wait_closed()
        plain = await running.client()
        plain.send("/v2/health/live", None, "GET")
        assert await plain.is_closed()
        await plain.close()


async def test_peers_reach_a_gateway_with_an_address_and_tls_of_its_own_beside_its_clients(tmp_path: Path) -> None:
    """A node of the lean shape: the other gateway has a port of its own, with a certificate that it announced."""
    server, _ = certified(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    async with live(agents=0, tls=server, own_address="127.0.0.1", peer_port=port) as running:
        me = Peer(name="me", host="127.0.0.1", port=1)
        told = next(peer for peer in await running.store.announce_gateway(me) if peer != me)
        assert told.port == port
        wrong = replace(told, certificate=make_certificate().fingerprint)
        for peer, answers in ((told, True), (wrong, False), (replace(told, certificate=""), False)):
            other = PeerGateway(peer)
            assert await other.is_alive() == answers, peer
            await other.close()
