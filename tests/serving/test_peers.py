"""Real clients against a gateway: tritonclient, boto3's SageMaker runtime, and TLS."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import botocore.exceptions
import numpy as np
import pytest
import tritonclient.http as triton
from botocore.config import Config
from tritonclient.utils import InferenceServerException

from mark.protocols.oip import error_reply
from tests.serving.harness import Live, live, run, served


def against(talk: Callable[[Live], None], **options: Any) -> None:
    """Let blocking code talk to a gateway."""

    async def test() -> None:
        async with live(**options) as running:
            await asyncio.to_thread(talk, running)

    run(test())


@pytest.mark.parametrize("binary", [True, False])
def test_tritonclient(binary: bool) -> None:
    def talk(running: Live) -> None:
        client = triton.InferenceServerClient(f"127.0.0.1:{running.port}")
        try:
            assert client.is_server_live()
            assert client.is_server_ready()
            assert client.is_model_ready("echo")
            assert client.is_model_ready("echo", "1")
            assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
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
            with pytest.raises(InferenceServerException, match="nothing is served"):
                client.infer("other", [wanted])
            with pytest.raises(InferenceServerException, match="compressed"):
                client.infer("echo", [wanted], request_compression_algorithm="gzip")
        finally:
            client.close()

    against(talk)


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
        client = sagemaker(running.port)
        try:
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
        finally:
            client.close()

    against(talk, model=served(variants=("small",)))


def test_sagemaker_runtime_is_told_what_the_model_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def talk(running: Live) -> None:
        monkeypatch.setattr(
            running.agents["i-0"].backend, "_answer", lambda _: error_reply(400, "the body is not JSON")
        )
        client = sagemaker(running.port)
        try:
            with pytest.raises(botocore.exceptions.ClientError, match="the body is not JSON") as error:
                client.invoke_endpoint(EndpointName="echo", Body=b"{")
            assert error.value.response["Error"]["Code"] == "ValidationError"
        finally:
            client.close()

    against(talk)


def test_sagemaker_runtime_is_told_when_nobody_serves() -> None:
    def talk(running: Live) -> None:
        client = sagemaker(running.port)
        try:
            with pytest.raises(botocore.exceptions.ClientError) as error:
                client.invoke_endpoint(EndpointName="echo", Body=b"{}")
            assert error.value.response["Error"]["Code"] == "ServiceUnavailable"
        finally:
            client.close()

    against(talk, agents=0)


def test_tls(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=localhost"
    )
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command.split(), *names], check=True, capture_output=True)  # noqa: S603
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    trusting = ssl.create_default_context(cafile=str(certificate))

    async def test() -> None:
        async with live(agents=0, tls=server) as running:
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=trusting)
            writer.write(b"GET /v2/health/live HTTP/1.1\r\nconnection: close\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
            writer.close()
            await writer.wait_closed()
            plain = await running.client()
            plain.send("/v2/health/live", None, "GET")
            assert await plain.is_closed()
            await plain.close()

    run(test())
