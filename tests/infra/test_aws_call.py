"""The calls of start scripts: signed as boto3 signs them, in a Python that the machine has, installing nothing."""

from __future__ import annotations

import ast
import base64
import io
import json
import re
import sys
from pathlib import Path
from typing import Any
from urllib.request import Request

import pytest
from aws_cdk.assertions import Template
from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from mark.infra import aws_call
from tests.infra.conftest import of_type, plain

AT = "20261122T220000Z"
KEYS = {
    "AccessKeyId": "AKIDEXAMPLE",
    "SecretAccessKey": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
    "Token": "t/o==",
}
SECRET = "secretsmanager get-secret-value --region us-east-1 --secret-id mark-shop-store --query SecretString"
PASSWORD = "ecr get-login-password --region cn-north-1"
OBJECT = "s3 cp --region eu-west-1 s3://mark-shop-1/artifacts/my+model.tar.gz -"
SIGNAL = (
    "cloudformation signal-resource --region us-east-1 --stack-name mark-shop-gateways "
    "--logical-resource-id Group --unique-id i-1 --status SUCCESS"
)


@pytest.mark.parametrize("command", [SECRET, PASSWORD, OBJECT, SIGNAL])
def test_a_call_is_signed_as_boto3_signs_it(command: str) -> None:
    words = command.split()
    region = words[words.index("--region") + 1]
    call = aws_call.call_of(words)
    headers = aws_call.signed(call, region, KEYS, AT)

    service, host, path, asked, body = call
    request = AWSRequest(method="POST" if body else "GET", url=f"https://{host}{path}", data=body, headers=asked)
    request.context["timestamp"] = AT
    signer = S3SigV4Auth if service == "s3" else SigV4Auth
    auth = signer(Credentials(KEYS["AccessKeyId"], KEYS["SecretAccessKey"], KEYS["Token"]), service, region)
    request.headers["X-Amz-Date"] = AT
    request.headers["X-Amz-Security-Token"] = KEYS["Token"]
    if service == "s3":
        request.headers["X-Amz-Content-SHA256"] = headers["X-Amz-Content-SHA256"]
    canonical = auth.canonical_request(request)
    signature = auth.signature(auth.string_to_sign(request, canonical), request)
    assert headers["Authorization"].endswith(f"Signature={signature}")
    assert f"SignedHeaders={auth.signed_headers(auth.headers_to_sign(request))}," in headers["Authorization"]


@pytest.mark.parametrize(
    ("command", "reply", "said"),
    [
        (SECRET, {"SecretString": "rediss://:secret@store"}, "rediss://:secret@store"),
        (
            PASSWORD,
            {"authorizationData": [{"authorizationToken": base64.b64encode(b"AWS:a-token").decode()}]},
            "a-token",
        ),
        (OBJECT, {"bytes": "of the model"}, '{"bytes": "of the model"}'),
        (SIGNAL, {}, ""),
    ],
)
def test_a_call_is_made_as_the_role_and_answers_as_the_cli(
    command: str, reply: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any
) -> None:
    answers = {
        "api/token": "a-session",
        "security-credentials/": "mark-shop-agent",
        "mark-shop-agent": json.dumps(KEYS),
    }
    hosts: list[str] = []

    def answer(asked: Request, timeout: float) -> io.BytesIO:
        url = asked.full_url
        if not url.startswith(aws_call.METADATA):
            hosts.append(asked.host)
            assert KEYS["AccessKeyId"] in (asked.get_header("Authorization") or "")
            return io.BytesIO(json.dumps(reply).encode())
        if asked.get_method() == "GET":
            assert asked.get_header("X-aws-ec2-metadata-token") == "a-session"
        [text] = [text for end, text in answers.items() if url.endswith(end)]
        return io.BytesIO(text.encode())

    monkeypatch.setattr(aws_call, "urlopen", answer)
    aws_call.main(command.split())
    sys.stdout.flush()
    assert capfdbinary.readouterr().out.decode() == said
    assert hosts == [aws_call.call_of(command.split())[1]]


def test_the_machines_own_python_runs_it() -> None:
    """Amazon Linux 2023 has 3.9, without packages."""
    tree = ast.parse(Path(aws_call.__file__).read_text(encoding="utf-8"), feature_version=(3, 9))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert {name.partition(".")[0] for name in modules if name} <= sys.stdlib_module_names


@pytest.mark.parametrize("shape", ["lean", "ha"])
def test_no_start_installs_anything_but_docker_and_each_has_the_calls(
    shape: str, templates: dict[str, Template], lean: dict[str, Template]
) -> None:
    for part in (lean if shape == "lean" else templates).values():
        for one in of_type(part, "AWS::EC2::LaunchTemplate").values():
            script = plain(one["LaunchTemplateData"]["UserData"])
            docker = "command -v docker > /dev/null || dnf install -y -q docker"
            assert not re.search(r"\b(dnf|yum|apt-get|pip)\b", script.replace(docker, "", 1))
            text = script.partition("cat > /usr/local/lib/mark/aws <<'MARK'\n")[2].partition("\nMARK\n")[0]
            assert text.startswith("#!/usr/bin/python3\n")
            defined: dict[str, Any] = {"__name__": "aws"}
            exec(compile(text, "aws", "exec"), defined)  # noqa: S102 - our own script
            for command in (SECRET, PASSWORD, OBJECT, SIGNAL):
                call = aws_call.call_of(command.split())
                assert defined["call_of"](command.split()) == call
                assert defined["signed"](call, "r", KEYS, AT) == aws_call.signed(call, "r", KEYS, AT)
