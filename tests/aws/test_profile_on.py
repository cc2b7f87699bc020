"""`mark profile --on` on the emulated AWS: rents, measures over HTTP, ends it all, keeps to the limit."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.aws.archive import bucket_name
from mark.aws.ec2.rent_instance import Rent, rent, with_switch
from mark.aws.session import Aws, AwsSettings, Credentials
from mark.catalog.load import load_prices
from mark.catalog.schema import parse_profiles
from mark.cli.main import run
from mark.config.settings import Settings
from mark.deployment.profile_on import run as profile_on
from mark.deployment.profile_on.cost import LEAST_S, Meter, Price
from mark.domain.clock import ClockAnchor
from mark.domain.errors import RetryLater
from mark.emulator.config import EmulatedAwsConfig
from mark.live.aws_resources import make_resources
from mark.live.local.running import Running
from mark.live.models import make_live_models, service_spec
from mark.store.connect import connect
from mark.store.embedded import EmbeddedRedis
from mark.store.service import ServiceStore
from tests.aws.iam import NAMES
from tests.aws.recording import Recorder
from tests.emulator.conftest import World, config_for
from tests.waiting import until

TINY = """
import numpy as np
from mark.domain.tensor import TensorSpec


class Tiny:
    inputs = (TensorSpec(name="x", datatype="FP32", shape=(-1, 4)),)
    outputs = (TensorSpec(name="y", datatype="FP32", shape=(-1, 4)),)

    def predict(self, given):
        return {"y": given["x"] * 2.0}
"""
MODEL = {
    "name": "tiny",
    "latency_ms": 200,
    "target_percent": 98,
    "objective_source": "a test",
    "memory_gib": 0.2,
    "memory_source": "a test",
    "payload_mib": 0.001,
    "payload_source": "a test",
    "architectures": ["amd64"],
    "accelerators": [],
    "cpu": True,
    "redispatch": True,
}
PROFILES = [
    {
        "model": "tiny",
        "instance_type": name,
        "evidence": "measured",
        "source": "a test",
        "date": "2026",
        "latency_ms_by_batch": {"1": 5.0},
    }
    for name in ("c5.large", "lambda")
]


@dataclass
class Account:
    """A service in an emulated account, as `mark profile --on` finds it."""

    world: World
    config: Path
    home: Path

    def profile(self, *arguments: str) -> int:
        return run(
            ["profile", "--config", str(self.config), "--yes", "--batches", "1,4", "--seconds", "0.2", *arguments]
        )

    def rented(self) -> dict[str, str]:
        """State of every instance that ever was, by id."""
        return {name: found["state"] for name, found in self.world.instances().items()}


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    home = tmp_path_factory.mktemp("on")
    (home / "tiny.py").write_text(TINY)
    (home / "model.json").write_text(json.dumps({"format": "mark-models/1", "models": [MODEL]}))
    (home / "profile.json").write_text(json.dumps({"format": "mark-profiles/1", "profiles": PROFILES}))
    config = home / "mark.yaml"
    serve = f"{{model: tiny, policy_name: mark, backend: {{kind: python, target: {home}/tiny.py:Tiny}}}}"
    config.write_text(f"service: {{name: onshop, serve: [{serve}]}}\n")
    settings = Settings.model_validate(
        {
            "service": {
                "name": "onshop",
                "serve": [
                    {
                        "model": "tiny",
                        "policy_name": "mark",
                        "backend": {"kind": "python", "target": f"{home}/tiny.py:Tiny"},
                    }
                ],
            }
        }
    )
    anchor = ClockAnchor(wall_at=time.time(), service_at=1_700_000_000.0, speed=200.0)
    redis = EmbeddedRedis(home / "store")
    world = World(_config(home, anchor))
    aws = Aws(
        AwsSettings(
            region="us-east-1",
            endpoint_url=world.url,
            credentials=Credentials(access_key_id="k", secret_access_key="s"),
        )
    )
    try:
        store, models = ServiceStore(connect(redis.url), "onshop"), make_live_models(settings)
        store.put_spec(service_spec(settings, models))
        store.put_clock(anchor)
        make_resources(
            aws,
            Running(name="onshop", pid=os.getpid(), store=redis.url),
            [model.served for model in models],
            settings,
        )
        yield Account(world, config, home)
    finally:
        aws.close()
        world.stop()
        redis.stop()


NAMES_HERE = replace(
    NAMES, service="onshop", bucket=bucket_name("onshop", NAMES.account), infer=("mark-onshop-tiny",)
)


def _config(home: Path, anchor: ClockAnchor) -> EmulatedAwsConfig:
    types = {item.name: item for item in load_prices().types}
    agent = "mark.live.processes.agent:run"
    return config_for(home / "logs", types=types, agent=agent, anchor=anchor, names=NAMES_HERE)


@pytest.fixture(autouse=True)
def there(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("AWS_ENDPOINT_URL", account.world.url),
        ("AWS_ACCESS_KEY_ID", "k"),
        ("AWS_SECRET_ACCESS_KEY", "s"),
        ("MARK_STATE", str(account.home / "state")),
    ):
        monkeypatch.setenv(name, value)


def test_types_are_rented_measured_written_and_ended(
    account: Account, called: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    file = account.home / "measured.json"
    status = account.profile("--on", "c5.large,m5.large,lambda", "--max-usd", "3", "--to", str(file), "--json")
    told = capsys.readouterr()
    assert status == 0, told.err
    document = json.loads(told.out)
    assert [item["instance_type"] for item in document["measured"]] == ["c5.large", "m5.large", "lambda"]
    assert [[p["batch"] for p in item["points"]] for item in document["measured"]] == [[1, 4], [1, 4], [1]]
    least = [0.085 * LEAST_S / 3600, 0.096 * LEAST_S / 3600]
    assert [item["usd"] for item in document["measured"]][:2] == pytest.approx(least)
    assert document["spent_usd"] == pytest.approx(sum(item["usd"] for item in document["measured"]))
    assert document["skipped"] == []
    profiles = {item.instance_type: item for item in parse_profiles(file.read_text(), str(file))}
    assert set(profiles) == {"c5.large", "m5.large", "lambda"}
    assert all(item.provenance.evidence.value == "measured" for item in profiles.values())
    assert set(account.rented().values()) <= {"shutting-down", "terminated"}
    assert len(account.rented()) == 2
    ends = frozenset({("OwnInstances", "ec2:TerminateInstances")})
    called.assert_permitted("profiler", NAMES_HERE, by="", unseen=ends)
    permissions = account.world.state()["permissions"]
    assert permissions["refused"] == {}
    assert permissions["used"]["profiler"]["OwnInstances ec2:TerminateInstances"] >= 2


def test_what_fails_while_it_is_measured_is_ended_too(
    account: Account, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def broken(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(profile_on, "measure", broken)
    assert account.profile("--on", "c5.large") == 130
    assert set(account.rented().values()) <= {"shutting-down", "terminated"}


def test_a_launch_whose_answer_was_lost_is_found_and_ended(
    account: Account, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = profile_on.rent

    def lost(*given: Any) -> str:
        real(*given)
        raise RetryLater("the answer was lost")

    monkeypatch.setattr(profile_on, "rent", lost)
    before = set(account.rented())
    assert account.profile("--on", "c5.large") == 2
    assert "nothing was measured" in capsys.readouterr().err
    (made,) = set(account.rented()) - before
    assert account.rented()[made] in {"shutting-down", "terminated"}


def test_what_cannot_be_had_is_left_out(account: Account, capsys: pytest.CaptureFixture[str]) -> None:
    account.world.mark("POST", "faults", {"kind": "capacity", "action": "RunInstances", "match": "c5.large"})
    try:
        assert account.profile("--on", "c5.large,lambda", "--json") == 0
    finally:
        account.world.mark("DELETE", "faults")
    document = json.loads(capsys.readouterr().out)
    assert [item["instance_type"] for item in document["skipped"]] == ["c5.large"]
    assert [item["instance_type"] for item in document["measured"]] == ["lambda"]


def test_the_limit_stops_a_type_that_takes_too_long(
    account: Account, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A clock that has run on says that the money is gone: the instance ends, and nothing more is rented."""
    real = time.time
    monkeypatch.setattr(profile_on, "answers", lambda *_: monkeypatch.setattr(time, "time", lambda: real() + 7200))
    before = set(account.rented())
    assert account.profile("--on", "c5.large,m5.large", "--max-usd", "0.05") == 2
    monkeypatch.setattr(time, "time", real)
    told = capsys.readouterr().err
    assert "c5.large was not measured" in told
    assert "m5.large was not measured: the limit would be exceeded" in told
    (made,) = set(account.rented()) - before
    assert account.rented()[made] in {"shutting-down", "terminated"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--on", "c5.large", "--max-usd", "0.001"), "more than --max-usd"),
        (("--on", "c5.lrge"), "did you mean 'c5.large'"),
        (("--on", "c5.large", "--model", "tinny"), "did you mean 'tiny'"),
        (("--on", ","), "name types to rent"),
        (("--on", "c5.large", "--batches", "0"), "--batches"),
        (("--target", "nope.py:Model"), "model file nope.py does not exist"),
    ],
)
def test_bad_asks_rent_nothing(
    account: Account, arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = account.rented()
    assert account.profile(*arguments) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1
    assert not account.rented().keys() - before.keys()  # those of other tests are forgotten meanwhile


def test_without_yes_nobody_is_charged(account: Account, capsys: pytest.CaptureFixture[str]) -> None:
    before = account.rented()
    assert run(["profile", "--config", str(account.config), "--on", "c5.large"]) == 2
    assert "about 0.00" in (told := capsys.readouterr().err)
    assert "--yes" in told
    assert not account.rented().keys() - before.keys()  # those of other tests are forgotten meanwhile


def test_an_instance_whose_renter_is_gone_ends_by_itself(account: Account) -> None:
    there = Aws(AwsSettings(region="us-east-1"))
    asked = Rent(
        service="onshop",
        owner="mark",
        model="tiny",
        run="gone",
        instance_type=load_prices().instance_type("c5.large"),
        template="mark-onshop-serving",
        expires_at=time.time() + 1.0,
    )
    made = rent(there, asked, time.time())
    assert rent(there, asked, time.time()) == made  # the same run rents a type once
    until(lambda: account.rented()[made] in {"shutting-down", "terminated"})
    there.close()


def test_the_switch_comes_before_all_else_in_a_script() -> None:
    assert with_switch("#!/bin/bash\nset -e\n", 35) == "#!/bin/bash\nshutdown -h +35\nset -e\n"
    assert with_switch('{"service": "s"}', 35) == '{"service": "s"}'


@given(
    max_usd=st.floats(0.001, 10),
    rates=st.lists(st.floats(0.001, 50), min_size=1, max_size=6),
    seconds=st.floats(1, 600),
    boots=st.lists(st.floats(0, 300), min_size=6, max_size=6),
)
def test_the_meter_never_starts_what_it_cannot_pay(
    max_usd: float, rates: list[float], seconds: float, boots: list[float]
) -> None:
    meter, now = Meter(max_usd), 0.0
    for number, rate in enumerate(rates):
        price = Price(name=str(number), usd_per_hour=rate)
        if not meter.affords(price, seconds):
            continue
        assert meter.lasts_s(price) * rate / 3600 <= max_usd * (1 + 1e-9)
        meter.start(price, now)
        now += boots[number] + seconds
        spent = meter.spent_usd(now)
        meter.stop(now)
        assert meter.spent_usd(now) == pytest.approx(spent)
        assert spent <= max_usd * (1 + 1e-9)
