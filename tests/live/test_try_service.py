"""`mark try` takes the way that reaches the service, and says who answered."""

from __future__ import annotations

import io
import json
from contextvars import copy_context
from functools import partial
from typing import Any

import boto3
import pytest
import typer
from moto import mock_aws

from mark.config.settings import Settings
from mark.domain.errors import Misconfigured
from mark.live.commands import try_service as command
from mark.live.local.run_dir import RunFolder
from mark.live.local.running import Running
from mark.protocols.probe import ProbeReply
from tests.aws.builders import aws

DIGITS = {"model": "digits", "backend": {"kind": "python", "target": "mark.models.digits:Digits"}}
SHOP = Settings.model_validate({"service": {"name": "shop", "serve": [{"model": "inception-v3"}, DIGITS]}})
ANSWERED: ProbeReply = {"status": 200, "served_by": "instance", "ms": 21.0, "body": '{"outputs":[1]}'}


class Functions:
    """Lambda as far as a probe goes: what it was asked, and its answer."""

    def __init__(self, answer: Any, *, failed: bool = False) -> None:
        self.asked: list[Any] = []
        self._answer, self._failed = answer, failed

    def invoke(self, FunctionName: str, Payload: bytes) -> dict[str, Any]:  # noqa: N803 - boto3's names
        self.asked.append((FunctionName, json.loads(Payload)))
        failed = {"FunctionError": "Unhandled"} if self._failed else {}
        return {"Payload": io.BytesIO(json.dumps(self._answer).encode()), **failed}


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An account in which the service stands in the shape lean, and its function answers."""
    with mock_aws():
        there = aws()
        keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-east-1"}
        boto3.client("secretsmanager", **keys).create_secret(Name="mark-shop-token", SecretString="secret")
        functions = Functions(ANSWERED)
        monkeypatch.setattr(type(there), "lambda_", functions)
        yield there, functions
        there.close()


def test_an_account_is_asked_through_its_function_with_the_clients_token(account: Any) -> None:
    there, functions = account
    route = command.route_to_account(SHOP, there, None, None)
    assert (route.model, route.through) == ("digits", "mark-shop-probe in us-east-1"), (
        "an emulated one is not there"
    )
    assert route.ask() == ANSWERED
    [(name, asked)] = functions.asked
    assert name == "mark-shop-probe"
    assert (asked["url"], asked["token"]) == ("https://shop.mark.internal/v2/models/digits/infer", "secret")
    assert json.loads(asked["body"])["inputs"][0]["data"]


def test_the_nodes_name_or_an_address_that_is_given_is_asked(account: Any) -> None:
    there, _ = account
    named = Settings.model_validate(SHOP.model_dump() | {"rollout": {"node": {"name": "api.example.com"}}})
    assert command.route_to_account(named, there, None, None).url.startswith("https://api.example.com/v2/")
    assert command.route_to_account(named, there, None, "10.0.0.1:8443").url.startswith(
        "https://10.0.0.1:8443/v2/"
    )
    with pytest.raises(Misconfigured, match="have no model other; they have inception-v3, digits"):
        command.route_to_account(named, there, "other", None)


def test_a_function_that_fails_says_why(account: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    there, _ = account
    monkeypatch.setattr(type(there), "lambda_", Functions({"errorMessage": "no libraries"}, failed=True))
    with pytest.raises(Misconfigured, match=r"mark-shop-probe failed: .*no libraries"):
        command.route_to_account(SHOP, there, None, None).ask()


def test_where_no_service_stands_it_says_how_to_start_one() -> None:
    with mock_aws():
        there = aws()
        with pytest.raises(Misconfigured, match=r"neither up on this machine .* nor deployed there"):
            command.route_to_account(SHOP, there, None, None).ask()
        there.close()


def test_a_service_on_this_machine_is_asked_at_its_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "ask", lambda *asked: ANSWERED | {"body": json.dumps(asked)})
    models: Any = ({"name": "digits", "example": {"inputs": []}, "latency_ms": 1.0, "target": 0.9},)
    here = Running(name="shop", pid=1, gateway="http://127.0.0.1:8080", token="t", models=models)
    route = command.route_to_machine(here, None)
    document = command.described(route, route.ask(), 30.04)
    assert document["answer"] == ["http://127.0.0.1:8080/v2/models/digits/infer", '{"inputs":[]}', "t"]
    assert (document["through"], document["served_by"], document["total_ms"]) == ("this machine", "instance", 30.0)


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        ({"status": 503, "body": "no instance"}, "status 503: no instance; instances take some minutes to boot"),
        ({"status": 401, "body": "who?"}, "status 401: who?"),
        ({"status": 0, "body": "timed out"}, "nothing answered at https://shop.mark.internal/v2/models/digits"),
    ],
    ids=["no instance", "refused", "nothing"],
)
def test_what_was_not_answered_says_why_and_is_a_failure(
    account: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    reply: dict[str, Any],
    says: str,
) -> None:
    there, _ = account
    monkeypatch.setattr(type(there), "lambda_", Functions(ANSWERED | {"served_by": ""} | reply))
    monkeypatch.setattr(command, "service_aws", lambda *_: there)
    tried = partial(command.try_service, SHOP, model=None, address=None, as_json=True)
    with pytest.raises(typer.Exit) as ended:
        copy_context().run(tried)  # as the command line does: that a document was shown stays there
    out, err = capsys.readouterr()
    assert ended.value.exit_code == 1
    assert json.loads(out)["served_by"] is None
    assert says in err


def test_a_service_here_that_asks_for_a_key_names_the_flag_that_passes_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    models: Any = ({"name": "digits", "example": {"inputs": []}, "latency_ms": 1.0, "target": 0.9},)
    here = Running(name="shop", pid=1, gateway="http://127.0.0.1:8080", models=models)
    monkeypatch.setattr(RunFolder, "running", lambda _folder: here)
    monkeypatch.setattr(command, "ask", lambda *_: ANSWERED | {"status": 401, "served_by": "", "body": "who?"})
    with pytest.raises(typer.Exit):
        command.try_service(SHOP, model=None, address=None, as_json=False)
    assert "status 401: who?; requests need a client's key: name a file that holds it by --key-file" in (
        capsys.readouterr().err
    )
