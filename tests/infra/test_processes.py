"""What the templates tell the service's processes, and what these make of it."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mark.deployment.synth import Synthesis
from mark.domain.errors import Misconfigured, RetryLater
from mark.domain.fleet.instances import InstanceState, Role
from mark.domain.load.traffic import ModelTraffic
from mark.live.aws_resources import launches_of
from mark.live.background.cloudwatch import metric_line, spend, watch_metrics
from mark.live.cloud_process import exit_after
from mark.live.gateway_settings import lambda_calls
from mark.live.processes import cloud_controller, cloud_gateway
from mark.live.processes.cloud_controller import (
    deployed,
    first_versions,
    in_versions,
    live_models,
    main,
    resources,
)
from mark.store.published_status import (
    MODEL,
    RESOURCES,
    FailedTraining,
    ForecasterStatus,
    PublishedInstance,
    PublishedModel,
)
from tests.infra.conftest import Template, of_type, plain, settings
from tests.planner.builders import offering


@pytest.fixture
def environment(templates: dict[str, Template]) -> dict[str, str]:
    """As ECS gives it to a controller."""
    [task] = of_type(templates["control"], "AWS::ECS::TaskDefinition").values()
    told = {item["Name"]: plain(item["Value"]) for item in task["ContainerDefinitions"][0]["Environment"]}
    return {**told, "MARK_STORE_URL": "rediss://:secret@store:6379"}


def gateway_environment(templates: dict[str, Template]) -> dict[str, str]:
    """As its unit gives it to a gateway."""
    [template] = of_type(templates["gateways"], "AWS::EC2::LaunchTemplate").values()
    script = plain(template["LaunchTemplateData"]["UserData"])
    file = script.partition("/etc/mark/environment <<'MARK'\n")[2].partition("MARK\n")[0]
    return dict(line.split("=", 1) for line in file.splitlines())


def test_controllers_understand_what_the_templates_say(environment: dict[str, str]) -> None:
    settings, running = deployed(environment)
    assert (running.name, running.aws_endpoint, running.store) == ("shop", "", "rediss://:secret@store:6379")
    told = launches_of(resources(environment))
    assert (told["owner"], told["tags"]) == ("team@example.com", {"cost-centre": "research"})

    assert told["templates"][Role.SERVING, "amd64"] == "mark-shop-serving"
    assert told["templates"][Role.STANDBY, "amd64"] == "mark-shop-standby"
    assert told["templates"][Role.STANDBY, "arm64"] == "mark-shop-standby-arm64"
    assert told["owner"] == "team@example.com"
    assert [zone for zone, _ in told["subnets"]] == ["us-east-1a", "us-east-1b"]
    provisioned = int(environment["MARK_PROVISIONED"])
    [model] = live_models(settings, environment["MARK_QUALIFIER"], provisioned)
    assert model.served.function == "mark-shop-inception-v3:live"
    assert model.served.overflow is not None
    assert model.served.overflow.provisioned == 2
    [plain] = live_models(settings, "", 0)
    assert plain.served.overflow is not None
    assert plain.served.overflow.provisioned == 0


def test_controllers_begin_with_the_versions_of_the_deploy(
    synthesis: Synthesis, environment: dict[str, str]
) -> None:
    settings, _ = deployed(environment)
    [version] = first_versions(live_models(settings, ""), environment)
    bundle = synthesis.versions["inception-v3"]
    assert (version.version, version.backend) == (bundle.version, bundle.backend)
    assert first_versions(live_models(settings, ""), {}) == ()
    told = json.loads(environment["MARK_VERSIONS"])
    for has_versions in (True, False):
        changed = {name: one | {"function_versions": has_versions} for name, one in told.items()}
        [model] = in_versions(live_models(settings, ""), {"MARK_VERSIONS": json.dumps(changed)})
        assert model.served.function_versions is has_versions
    assert not in_versions(live_models(settings, ""), {})[0].served.function_versions


def test_what_is_missing_is_named(environment: dict[str, str]) -> None:
    del environment["MARK_STORE_URL"]
    for start in (deployed, cloud_gateway.start_of):
        with pytest.raises(Misconfigured, match="MARK_STORE_URL"):
            start(environment)


def test_a_gateway_starts_from_what_the_templates_say(templates: dict[str, Template], tmp_path: Path) -> None:
    environment = gateway_environment(templates) | {"MARK_STORE_URL": "rediss://:secret@store:6379"}
    start = cloud_gateway.start_of({**environment, "MARK_TOKEN": "clients", "MARK_OTLP_HEADERS": "key=1%202"})
    assert (start.service, start.store, start.token) == ("shop", "rediss://:secret@store:6379", "clients")
    assert (start.aws.role, start.tls_certificate, start.collector) == ("gateway", None, {"key": "1 2"})
    assert start.lambda_calls == lambda_calls(settings(tmp_path)) > 1
    assert "MARK_SETTINGS" not in environment


def test_other_settings_replace_the_gateways_which_read_the_spec_when_they_start(
    templates: dict[str, Template], others: dict[str, Template]
) -> None:
    before, after = gateway_environment(templates), gateway_environment(others)
    assert before.pop("MARK_SETTINGS_SHA256") != after.pop("MARK_SETTINGS_SHA256")
    assert before == after


def test_what_keeps_a_process_from_being_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def away(_environment: object) -> int:
        raise RetryLater("the metadata service gave no session: 403")

    with pytest.raises(SystemExit) as ended:
        exit_after(away)
    assert ended.value.code == 2
    assert capsys.readouterr().err == "mark: the metadata service gave no session: 403\n"


def test_a_controller_that_starts_leaves_what_another_said(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release that fails before it acts is rolled back: the store must still be the older one's."""
    told: list[str] = []
    store = SimpleNamespace(
        share_wall=lambda offset_s: offset_s,
        put_spec=lambda spec: told.append(spec.name),
        put_status=lambda name, _: told.append(name),
        continue_versions=lambda models, _: told.extend(one.name for one in models),
    )

    def leader(*_: object, publish: Callable[[], None], **__: object) -> object:
        def run(_stop: object) -> None:
            assert told == []
            publish()

        return SimpleNamespace(run=run)

    monkeypatch.setattr(cloud_controller, "connect", lambda _url: None)
    monkeypatch.setattr(cloud_controller, "ServiceStore", lambda *_: store)
    monkeypatch.setattr(cloud_controller, "Leader", leader)
    monkeypatch.setattr(cloud_controller, "_measure", lambda *_: None)
    monkeypatch.setattr(cloud_controller, "log_json", lambda _process: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert main(environment) == 0
    assert told == ["shop", "inception-v3", RESOURCES.name()]


def traffic(**counts: Any) -> ModelTraffic:
    return ModelTraffic(model="m", **counts)


def test_a_minute_becomes_one_line_of_metrics() -> None:
    before = traffic(instance=100, late=5, shed=1)
    now = traffic(instance=180, lambda_=16, late=7, shed=5, gateways=2)
    told = json.loads(metric_line("shop", before, now, target=0.98, usd_per_hour=1.5, at=1000.0))

    assert told["BurnRate"] == pytest.approx((2 + 4) / 100 / 0.02)
    assert told["OverflowShare"] == pytest.approx(16 / 96)
    assert (told["UsdPerHour"], told["Gateways"], told["service"], told["model"]) == (1.5, 2.0, "shop", "m")
    [described] = told["_aws"]["CloudWatchMetrics"]
    assert {metric["Name"] for metric in described["Metrics"]} == {
        "BurnRate",
        "Gateways",
        "OverflowShare",
        "UsdPerHour",
    }


def test_an_alarm_rings_for_what_fails_and_not_for_what_clients_got_wrong() -> None:
    def burn(now: ModelTraffic) -> float:
        told = json.loads(metric_line("shop", traffic(), now, target=0.98, usd_per_hour=0.0, at=1.0))
        return float(told.get("BurnRate", 0.0))

    assert burn(traffic(failed=10)) == pytest.approx(1 / 0.02)
    assert burn(traffic(rejected=10)) == 0.0
    assert burn(traffic(instance=90, failed=10, rejected=500)) == pytest.approx(0.1 / 0.02)


def test_a_quiet_minute_says_that_a_controller_acts_and_that_no_gateway_serves() -> None:
    told = json.loads(metric_line("shop", traffic(), traffic(), target=1.0, usd_per_hour=0.0, at=1.0))
    assert "BurnRate" not in told
    assert told["Gateways"] == 0.0


def test_spend_is_of_what_runs() -> None:
    rented = offering("c5.large", usd_per_hour=0.1)
    served: Any = SimpleNamespace(offerings=(rented,))
    states = (InstanceState.READY, InstanceState.DRAINING, InstanceState.STOPPED, InstanceState.PENDING)
    there = tuple(PublishedInstance(id=state.value, offering=rented.name, state=state) for state in states)
    assert spend(served, PublishedModel(observed=there)) == pytest.approx(0.2)
    assert spend(served, None) == 0.0
    now = tuple(replace(one, usd_per_hour=0.3) for one in there)
    assert spend(served, PublishedModel(observed=now)) == pytest.approx(0.6), "as the last tick priced them"


def test_what_all_models_spend_is_told_of_the_service() -> None:
    rented = offering("c5.large", usd_per_hour=0.1)
    models: Any = [
        SimpleNamespace(name=name, offerings=(rented,), slo=SimpleNamespace(target=0.9)) for name in ("a", "b")
    ]
    store: Any = Store(("me", 0), ("me", 0))
    ready = PublishedInstance(id="i-1", offering=rented.name, state=InstanceState.READY)
    store.status = lambda _name: MODEL.dump(PublishedModel(observed=(ready,)))
    stop: Any = Minutes(2)
    lines = [
        json.loads(line) for line in watch_metrics("shop", models, store, holder="me", stop=stop, shared=models[0])
    ]
    assert ["model" in line for line in lines] == [True, True, False]
    total = lines[-1]
    assert total["UsdPerHour"] == pytest.approx(0.3), "both models', and that of the instance that they share"
    [described] = total["_aws"]["CloudWatchMetrics"]
    assert described["Dimensions"] == [["service"]]
    assert described["Metrics"] == [{"Name": "UsdPerHour"}]


def test_a_model_whose_training_failed_is_told_until_one_does_not() -> None:
    """Wherever it was trained: its controller knows, of the function too."""
    models: Any = [SimpleNamespace(name=name, offerings=(), slo=SimpleNamespace(target=0.9)) for name in "abc"]
    failed = FailedTraining(why="schedule", error="no memory")

    def told(**failures: FailedTraining) -> list[dict[str, Any]]:
        known = {
            f"model:{name}": PublishedModel(trained=ForecasterStatus(forecaster="own", failed=failures.get(name)))
            for name in "ab"
        }
        store: Any = Store(("me", 0), ("me", 0))
        store.status = lambda name: MODEL.dump(known.get(name, PublishedModel()))
        stop: Any = Minutes(2)
        lines = [json.loads(line) for line in watch_metrics("shop", models, store, holder="me", stop=stop)]
        assert not any("FailedTrainings" in line for line in lines if "model" in line)
        return [line for line in lines if "model" not in line]

    [line] = told(a=failed, b=failed)
    assert line["FailedTrainings"] == 2.0
    [described] = line["_aws"]["CloudWatchMetrics"]
    assert {"Name": "FailedTrainings"} in described["Metrics"]
    assert [line.get("FailedTrainings") for line in (*told(b=failed), *told())] == [1.0, None]


class Minutes:
    """A stop event that is set after some minutes, which pass at once."""

    def __init__(self, count: int) -> None:
        self.left = count

    def wait(self, seconds: float) -> bool:
        assert seconds == 60.0
        self.left -= 1
        return self.left == 0


class Store:
    """A store whose holder and traffic change by the minute; None: it is unreachable."""

    def __init__(self, *minutes: tuple[str, int] | None) -> None:
        self.minutes = list(minutes)
        self.leases = self

    def held_by(self) -> str:
        now = self.minutes.pop(0)
        if now is None:
            raise RetryLater("away")
        holder, self.count = now
        return holder

    def traffic(self, model: str) -> ModelTraffic:
        return traffic(instance=self.count, late=self.count // 10)

    def status(self, name: str) -> None:
        return None


def test_who_acts_writes_a_line_each_minute() -> None:
    served: Any = SimpleNamespace(name="m", offerings=(), slo=SimpleNamespace(target=0.9))
    store: Any = Store(("me", 0), ("me", 100), None, ("me", 300), ("other", 400))
    stop: Any = Minutes(5)
    own = {"CertificateDaysLeft": 3.0}
    told = watch_metrics("shop", [served], store, holder="me", stop=stop, beside=lambda _: own)
    lines = [json.loads(line) for line in told]
    assert [line["BurnRate"] for line in lines if "model" in line] == [pytest.approx(1.0), pytest.approx(1.0)]
    total = [line for line in lines if "model" not in line]
    assert [line.get("UsdPerHour") for line in total] == [0.0, 0.0, None]
    assert all(line["CertificateDaysLeft"] == 3.0 for line in total), "of a node that stands by, too"
    assert stop.left == 0
