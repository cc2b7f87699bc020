"""The first run in an account, whole, on the emulated one; a node's processes stand in for CloudFormation."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from mark.aws.names import PROBE, TOKEN, name_of
from mark.aws.provision import end_instances
from mark.aws.session import Aws
from mark.config.settings import Settings
from mark.domain.errors import RetryLater
from scripts.real_account import run as real
from scripts.real_account.run import Run, Way, telling_how_to_end
from scripts.real_account.settings import on_spot
from tests.emulator.conftest import World, stub_zip
from tests.end_to_end.lean import TOKEN as CLIENTS_TOKEN
from tests.end_to_end.lean import Node, lean_nodes
from tests.waiting import until

pytestmark = pytest.mark.slow
SETTINGS: dict[str, Any] = {
    "service": {
        "name": "shop",
        "serve": [
            {
                "model": "inception-v3",
                "offerings": {"types": ["c5.large"]},
                "expected_rps": 10,
            }
        ],
    },
    "simulate": {"world": "ideal"},
}
DAY_S = 86_400.0


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[World, Aws, Node]]:
    """The account with the service's resources, and a node that was not started."""
    key, chain = tmp_path / "key.pem", tmp_path / "chain.pem"
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=x", "-days", "2")
    subprocess.run(  # noqa: S603
        ["openssl", "req", "-x509", *curve, "-keyout", key, "-out", chain],  # noqa: S607
        check=True,
        capture_output=True,
    )
    tls = {"MARK_TLS_KEY": str(key), "MARK_TLS_CERTIFICATE": str(chain)}
    settings = on_spot(Settings.model_validate(SETTINGS))
    with lean_nodes(tmp_path, settings, {"node": "127.0.0.1"}, cold_start_s=1.5, **tls) as (world, aws, [node]):
        for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
            monkeypatch.setenv(name, node.environment[name])
        monkeypatch.setenv("MARK_STATE", str(tmp_path / "state"))
        aws.secrets.create_secret(Name=name_of("shop", TOKEN), SecretString=CLIENTS_TOKEN)
        [role] = [one["Arn"] for one in aws.iam.list_roles()["Roles"]][:1]
        aws.lambda_.create_function(
            FunctionName=name_of("shop", PROBE),
            Runtime="python3.12",
            Role=role,
            Handler="mark.lambda_handlers.probe.handler",
            Code={"ZipFile": stub_zip()},
            Timeout=60,
            Environment={"Variables": {"AWS_XRAY_SDK_ENABLED": "false"}},
        )
        yield world, aws, node


def is_up(node: Node) -> bool:
    """Whether its gateway listens; as systemd does, who ended is started again."""
    node.keep_up("gateway")
    try:
        socket.create_connection(("127.0.0.1", node.port), timeout=1.0).close()
    except OSError:
        return False
    return True


def test_both_commands_whole(
    account: tuple[World, Aws, Node],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    world, aws, node = account
    for name, value in (("LOAD_S", 3.0), ("POLL_S", 0.2), ("ROUNDS", 1)):
        monkeypatch.setattr(real, name, value)
    lost: list[Path] = []

    def deploy(config: Path) -> None:
        lost.append(config)
        if len(lost) == 1:
            raise KeyboardInterrupt
        node.start("controller")
        until(lambda: is_up(node))

    def destroy(_: Path) -> None:
        node.close()
        end_instances(aws, "shop")

    way = Way(check=lambda _: None, deploy=deploy, destroy=destroy, settings=on_spot)
    folder, address = tmp_path / "run", f"127.0.0.1:{node.port}"
    begun = Run(folder, way, address=address)
    with pytest.raises(KeyboardInterrupt), telling_how_to_end(begun):
        begun.go(Settings.model_validate(SETTINGS))
    assert f"mark destroy --all --yes --config {folder}/settings.json" in capsys.readouterr().err

    run = Run(folder, way, address=address)  # the same command again
    run.go(None)
    assert list(run.state.done) == [
        "check",
        "deploy",
        "answer",
        "load",
        "cold starts",
        "interruption 1",
        "pause",
        "journal",
        "destroy",
    ]
    run.report()
    found = {one.name: one for one in run.quantities()}
    assert found["launch to serving"].measured_s
    assert all(60 < seconds < 600 for seconds in found["launch to serving"].measured_s)
    assert len(found["spot notice to decision"].measured_s) >= 1
    assert len(found["cold start of Lambda"].measured_s) == real.COLD_CALLS
    assert all(1.0 < seconds < 20 for seconds in found["cold start of Lambda"].measured_s)
    assert len(found["answer of c5.large:spot"].measured_s) >= 5
    told = yaml.safe_load((folder / "table.md").read_text().partition("```yaml\n")[2].partition("```")[0])
    assert told["simulate"]["launch"]["median_s"] > 60
    assert not [one for one in world.instances().values() if one["state"] not in ("terminated", "shutting-down")]
    assert not [one for one in aws.iam.list_roles()["Roles"] if "interrupt" in one["RoleName"].split(".")]

    with pytest.raises(RetryLater, match="ask again"):
        Run(folder, way).bill()
    ended_at = float(world.state()["service_time"])
    world.mark("POST", "clock", {"wall_at": 0.0, "service_at": ended_at + 2 * DAY_S, "speed": 0.0})
    text = Run(folder, way).bill()
    assert "the whole account" in text
    assert "AWS may still change it" in text
    parts = [line.split("|")[2:4] for line in text.splitlines()[2:7]]
    spot, on_demand, lambda_, rest, both = ((float(expected), float(billed)) for expected, billed in parts)
    assert 0 < spot[1] < 2 * spot[0], "what EC2 takes within an hour is not billed"
    assert 0.5 < on_demand[1] / on_demand[0] < 2
    assert 0 < lambda_[0] <= lambda_[1], "gateways and controllers call it, too"
    assert rest[1] == 0, "the emulated account meters nothing else"
    assert both[1] > 0
