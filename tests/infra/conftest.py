"""The service's templates, synthesised once a session."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from mark.config.settings import Settings
from mark.deployment import synth
from mark.deployment.synth import Synthesis, draft, synthesise
from mark.deployment.trial import trial_settings
from mark.infra import app
from mark.infra.app import what_is_missing
from scripts.rehearsal.ministack import recorded_zones
from scripts.rehearsal.region_prices import PRICES, SERVICES, lay_prices
from tests.once import once_a_run

REGION, ACCOUNT = "us-east-1", "123456789012"
ZONES = [f"{REGION}a", f"{REGION}b"]
GRPC_PORT = 9000
TOKYO = "ap-northeast-1"
Template = Mapping[str, Any]
WEBHOOK = f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:shop-webhook-AbCdEf"


PRIVATE: dict[str, Any] = {
    "store": {"engine": "redis"},
    "network": {"egress": "private", "zones": ZONES},
    "gateway": {"scheme": "internal", "clients": ["192.0.2.0/24"]},
    "report": {"sender": "mark@example.com", "to": ["team@example.com"], "reconcile": True},
}
"""Differences of `others`."""


LEAN: dict[str, Any] = {
    "shape": "lean",
    "ends_on": "2099-12-31",
    "certificate": None,
    "network": {"egress": "ipv6", "zones": ZONES},
    "node": {
        "name": "shop.example.org",
        "certificate": f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:shop-tls-AbCdEf",
    },
}
"""Differences of `lean`."""


COLLECTOR_SECRET = f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:shop-collector-AbCdEf"
TELEMETRY = {
    "endpoint": "http://10.77.0.9:4318",
    "headers_secret": COLLECTOR_SECRET,
    "traces": {"ratio": 0.01},
}
"""A collector in the service's network, of `others` and `lean`."""


def settings(folder: Path, *, telemetry: Mapping[str, Any] | None = None, **rollout: Any) -> Settings:
    """A service in the shape `ha` with all that a rollout can have."""
    for name in ("infer", "interruption", "orphans", "probe", "report", "warm", "webhook"):
        (folder / f"{name}.zip").write_bytes(f"the code of {name}".encode())
    given = {
        "shape": "ha",
        "owner": "team@example.com",
        "tags": {"cost-centre": "research"},
        "image": f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/shop/mark:1",
        "agent_image": f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/shop/agent:1",
        "training_image": f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/shop/training:1",
        "model_image": f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/shop/model:1",
        "bundle": "artifacts/model.tar.gz",
        "certificate": f"arn:aws:acm:{REGION}:{ACCOUNT}:certificate/0000",
        "network": {"zones": ZONES},
        "machines": [{}, {"architecture": "arm64"}, {"accelerator": "nvidia"}],
        "functions": {"bundles": str(folder), "provisioned": 2, "probe": True},
        "report": {"sender": "mark@example.com", "to": ["team@example.com"]},
        "archive": {"journals_days": 400},
        "alarms": {"to": ["team@example.com"], "webhook": WEBHOOK, "max_usd_per_hour": 5},
    }
    service = {"name": "shop", "grpc_port": GRPC_PORT, "serve": [{"model": "inception-v3"}]}
    whole = {"service": service, "rollout": given | rollout, "telemetry": telemetry or {}}
    return Settings.model_validate(whole)


def made_here(make: Callable[[Settings], Synthesis], asked: Settings) -> Synthesis:
    """A synthesis in this process: to import the CDK takes longer than to make a service's stacks."""

    def run_app(source: Path, target: Path) -> None:
        assert app.main([str(source), str(target)]) == 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synth, "_run_app", run_app)
        return make(asked)


@pytest.fixture(scope="session")
def synthesis(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    lacking = what_is_missing()
    if lacking:
        pytest.skip(lacking)
    made = partial(made_here, synthesise, settings(tmp_path_factory.mktemp("bundles")))
    return once_a_run(tmp_path_factory, "synthesis", made)


@pytest.fixture(scope="session")
def templates(synthesis: Synthesis) -> dict[str, Template]:
    """By part: archive, network, launch, ..."""
    return by_part(synthesis)


@pytest.fixture(scope="session")
def others_synthesis(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    """The same service with other settings, all at once: each synthesis takes seconds."""
    lacking = what_is_missing()
    if lacking:
        pytest.skip(lacking)
    made = partial(
        made_here, synthesise, settings(tmp_path_factory.mktemp("bundles"), telemetry=TELEMETRY, **PRIVATE)
    )
    return once_a_run(tmp_path_factory, "other_synthesis", made)


@pytest.fixture(scope="session")
def others(others_synthesis: Synthesis) -> dict[str, Template]:
    """The service as `others_synthesis` has it, by part."""
    return by_part(others_synthesis)


@pytest.fixture(scope="session")
def lean_synthesis(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    lacking = what_is_missing()
    if lacking:
        pytest.skip(lacking)
    made = partial(
        made_here, synthesise, settings(tmp_path_factory.mktemp("bundles"), telemetry=TELEMETRY, **LEAN)
    )
    return once_a_run(tmp_path_factory, "lean_synthesis", made)


@pytest.fixture(scope="session")
def too_large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Settings, Synthesis]:
    """A lean service with files and recipients that AWS would not take, and clients outside of its network."""
    if lacking := what_is_missing():
        pytest.skip(lacking)
    folder = tmp_path_factory.mktemp("large")
    asked: dict[str, Any] = {
        "machines": None,
        "report": {
            "sender": "mark@example.com",
            "to": [f"{'a' * 50}.{number}@example.org" for number in range(70)],
        },
        "gateway": {"scheme": "internal", "clients": ["192.0.2.0/24"]},
    }
    whole = settings(folder, **LEAN | asked)
    profile = min(Path("mark/catalog/data/profiles").glob("*.json"))
    document = json.loads(profile.read_text(encoding="utf-8"))
    # 24,000 letters that hardly get smaller when they are packed
    document["profiles"][0]["source"] = "".join(sha256(b"%d" % number).hexdigest() for number in range(375))
    (folder / "mine.json").write_text(json.dumps(document), encoding="utf-8")
    whole = whole.model_copy(update={"profiles": (*whole.profiles, str(folder / "mine.json"))})
    return whole, once_a_run(tmp_path_factory, "too_large", partial(made_here, draft, whole))


@pytest.fixture(scope="session")
def trial_synthesis(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    """A trial in Tokyo, which has no zone `b` and no prices of ours."""
    lacking = what_is_missing()
    if lacking:
        pytest.skip(lacking)
    made = partial(made_here, synthesise, trial_in(TOKYO, tmp_path_factory.mktemp("tokyo")))
    return once_a_run(tmp_path_factory, "trial_synthesis", made)


def trial_in(region: str, folder: Path) -> Settings:
    """A trial of `digits` as docs/deploy.md has it, in the first two zones that an account sees there."""
    whole = settings(folder, **LEAN | {"network": {"zones": recorded_zones(region)[:2]}, "machines": None})
    tree = whole.model_dump(mode="json", exclude_defaults=True)
    backend = {"kind": "python", "target": "mark.models.digits:Digits"}
    tree["service"] |= {"serve": [{"model": "digits", "backend": backend}], "aws": {"region": region}}
    tree["rollout"]["node"] = {}
    if region != REGION:
        lay_prices(folder, region)
        tree |= {"prices": str(folder / PRICES), "service_prices": str(folder / SERVICES)}
    made, _ = trial_settings(Settings.model_validate(tree), fits=lambda _: False)
    return made


@pytest.fixture(scope="session")
def lean(lean_synthesis: Synthesis) -> dict[str, Template]:
    """The service in the lean shape."""
    return by_part(lean_synthesis)


def by_part(synthesis: Synthesis) -> dict[str, Template]:
    return {name.removeprefix("mark-shop-"): template for name, template in synthesis.templates.items()}


def of_type(template: Template, kind: str) -> dict[str, dict[str, Any]]:
    """The properties of a template's resources of a type, by logical name."""
    found = template["Resources"].items()
    return {name: resource.get("Properties", {}) for name, resource in found if resource["Type"] == kind}


def unpacked(user_data: str) -> str:
    """The script that a machine runs from its user data, which is a small one that unpacks it."""
    blob, puts = re.findall(r"<<< (\S+) \| gunzip \| sed(.*) > ", user_data)[0]
    script = gzip.decompress(base64.b64decode(blob)).decode()
    for place, value in re.findall(r"-e 's\|(@@\d+@@)\|([^|]*)\|g'", puts):
        script = script.replace(place, value)
    return script


KNOWN = {"AWS::Partition": "aws", "AWS::Region": REGION, "AWS::AccountId": ACCOUNT}


def plain(value: Any) -> Any:
    """A value with CloudFormation's functions resolved as far as a test needs: names of what is referred to."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    [function, *_] = value or [""]
    return (
        FUNCTIONS[function](value[function]) if function in FUNCTIONS else {k: plain(v) for k, v in value.items()}
    )


FUNCTIONS = {
    "Fn::Join": lambda value: value[0].join(str(plain(part)) for part in value[1]),
    "Ref": lambda value: KNOWN.get(value, f"<{value}>"),
    "Fn::GetAtt": lambda value: f"<{'.'.join(value)}>",
    "Fn::ImportValue": lambda value: f"<{value}>",
    "Fn::Base64": lambda value: unpacked(plain(value)),
}
