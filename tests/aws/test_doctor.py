"""What `mark doctor` asks, on the emulated AWS: quotas, prices, mail, images; and the role's calls."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mark.aws.account.preflight import (
    available_zones,
    caller,
    configuration_set,
    has_secret,
    is_on_free_plan,
    is_verified,
    machine_image,
    mail_account,
    manifest_type,
    without_ipv6,
)
from mark.aws.account.quotas import lambda_concurrency, read_quotas
from mark.aws.account.role_checks import simulate, take_role
from mark.aws.alarms import read_alerts
from mark.aws.ec2.inventory import list_inventory
from mark.aws.outside_pause import read_pause
from mark.aws.permissions.policies import statements
from mark.aws.prices import free_plan_types, on_demand_usd_per_hour, spot_usd_per_hour, type_facts, zones_by_type
from mark.aws.session import Aws
from mark.aws.stacks.cloudformation import Stacks
from mark.catalog.load import load_prices
from mark.catalog.machines import FREE_PLAN_TYPES
from mark.config.settings import Settings
from mark.deployment.checks.doctor import check_credentials, check_disks, check_image, check_machine_images
from mark.deployment.refresh_prices import refresh_prices
from mark.domain.alerts import AlertsStatus
from mark.domain.errors import Misconfigured, RetryLater
from mark.domain.offerings.offering import Market
from mark.domain.offerings.quota import VcpuQuota
from mark.emulator.pricing import PAGE
from mark.live.models import make_live_models
from tests.aws.builders import aws
from tests.aws.iam import NAMES
from tests.aws.recording import Recorder
from tests.emulator.conftest import TYPES, World, config_for

REGISTRY = "123456789012.dkr.ecr.us-east-1.amazonaws.com"
MANIFEST_TYPE = "application/vnd.docker.distribution.manifest.v2+json"
MANIFEST = json.dumps(
    {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": {"size": 1, "digest": f"sha256:{'0' * 64}"},
        "layers": [],
    }
)
TODAY = date(2026, 11, 21)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(config_for(tmp_path_factory.mktemp("doctor"), quotas={"L-34B43A08": 5.0}))
    yield made
    made.stop()


@pytest.fixture
def there(world: World, called: Recorder) -> Iterator[Aws]:
    made = aws(endpoint_url=world.url, role="doctor")
    yield made
    made.close()


def test_the_doctor_asks_what_is_listed_for_it_and_understands_the_answers(
    world: World, there: Aws, called: Recorder
) -> None:
    world.client("ecr").create_repository(repositoryName="shop/agent")
    world.client("sesv2").create_email_identity(EmailIdentity="example.org", ConfigurationSetName="all")
    world.mark("POST", "mail", {"verify": ["a@example.org"]})

    assert caller(there).account == "123456789012"
    quotas = read_quotas(there)
    assert VcpuQuota(family="standard", market=Market.SPOT, vcpus=5.0) in quotas
    assert VcpuQuota(family="g", market=Market.ON_DEMAND, vcpus=2000.0) in quotas
    assert len({(item.family, item.market) for item in quotas}) == len(quotas) == 8
    assert lambda_concurrency(there).limit == 1000
    assert on_demand_usd_per_hour(there, ["c5.large", "none"]) == {"c5.large": 0.085}
    assert spot_usd_per_hour(there, ["c5.large"], time.time()) == {"c5.large": pytest.approx(0.085 / 3, abs=1e-6)}
    assert set(available_zones(there)) >= {"us-east-1a", "us-east-1b"}
    facts = type_facts(there, ["c5.large", "g4dn.xlarge", "g6f.large", "none"])
    assert (facts["c5.large"].vcpus, facts["c5.large"].memory_gib, facts["c5.large"].architectures) == (
        2,
        4.0,
        ("amd64",),
    )
    assert facts["c5.large"].accelerator_count == facts["c5.large"].accelerator_memory_gib == 0
    assert facts["g4dn.xlarge"].accelerator_count == 1
    part = facts["g6f.large"]
    assert (part.accelerator_count, round(part.accelerator_memory_gib, 3)) == (1, 2.794), "an eighth of an L4"
    assert set(facts) == {"c5.large", "g4dn.xlarge", "g6f.large"}
    assert zones_by_type(there, ["c5.large", "none"])["c5.large"] >= {"us-east-1a", "us-east-1b"}
    assert not is_on_free_plan(there)
    assert {*FREE_PLAN_TYPES} <= free_plan_types(there)
    assert zones_by_type(there, ["none"]) == {"none": frozenset()}
    with pytest.raises(Misconfigured):
        without_ipv6(there, ["subnet-0123456789abcdef0"])
    assert manifest_type(there, f"{REGISTRY}/shop/agent:1") is None
    assert manifest_type(there, f"{REGISTRY}/shop/none:1") is None
    assert is_verified(there, "a@example.org") is True
    assert is_verified(there, "b@example.org") is False
    assert is_verified(there, "b@example.net") is None
    assert configuration_set(there, "b@example.org") == "all"
    assert mail_account(there).sandbox
    assert not has_secret(there, "mark/webhook")
    world.client("secretsmanager").create_secret(Name="mark/webhook", SecretString="x")
    assert has_secret(there, "mark/webhook")
    assert list_inventory(there, "shop") == ()
    assert read_pause(there, "shop") is None
    assert machine_image(there, "ami-0abcdef1234567890") is None
    sqs = world.client("sqs")
    assert read_alerts(there, "shop", at=0.0).dead_letters is None
    sqs.create_queue(QueueName="mark-shop-raw-dead")
    assert read_alerts(there, "shop", at=0.0) == AlertsStatus(dead_letters=0, ringing=())
    assert Stacks(there).state("mark-shop-archive") is None
    node = NAMES.role("node")
    take_role(there, node, "node").close()
    with pytest.raises(RetryLater):  # nobody's policies are known to this account
        list(simulate(there, node, statements("member", NAMES), region=NAMES.region, without=()))
    ours = frozenset(
        {
            ("ecr", "CreateRepository"),
            ("sesv2", "CreateEmailIdentity"),
            ("secretsmanager", "CreateSecret"),
            ("sqs", "CreateQueue"),
        }
    )
    several = replace(NAMES, repository="shop/*")
    called.assert_permitted("doctor", several, by="", but=ours)


def test_an_image_that_is_pushed_is_found(world: World, there: Aws) -> None:
    images = world.client("ecr")
    images.create_repository(repositoryName="there")
    digest = images.put_image(repositoryName="there", imageManifest=MANIFEST, imageTag="1.0")["image"]["imageId"][
        "imageDigest"
    ]
    assert manifest_type(there, f"{REGISTRY}/there:1.0") is not None
    assert manifest_type(there, f"{REGISTRY}/there@{digest}") is not None
    assert manifest_type(there, f"{REGISTRY}/there:2.0") is None
    for wrong in ("docker.io/library/redis:7", f"{REGISTRY.replace('us-east-1', 'eu-west-1')}/there:1.0"):
        with pytest.raises(Misconfigured):
            manifest_type(there, wrong)


@pytest.mark.parametrize(
    ("rollout", "kind", "state"),
    [
        ({}, MANIFEST_TYPE, "error"),
        ({}, "application/vnd.oci.image.manifest.v1+json", "error"),
        ({}, "application/vnd.oci.image.index.v1+json", "ok"),
        ({"node": {"instance_type": "t3.small", "architecture": "amd64"}}, MANIFEST_TYPE, "ok"),
        ({"shape": "ha"}, MANIFEST_TYPE, "error"),
        ({"shape": "ha", "machines": [{}]}, MANIFEST_TYPE, "ok"),
    ],
    ids=["docker", "oci", "both processors", "no Graviton", "gateways on Graviton", "gateways on x86"],
)
def test_an_image_of_one_processor_is_not_enough_for_two(rollout: dict[str, Any], kind: str, state: str) -> None:
    """Nodes are Graviton, instances mostly are not."""
    image = f"{REGISTRY}/shop/mark:1"
    ecr = SimpleNamespace(describe_images=lambda **_: {"imageDetails": [{"imageManifestMediaType": kind}]})
    there: Any = SimpleNamespace(images=ecr, settings=SimpleNamespace(region="us-east-1"))
    settings = Settings.model_validate({"rollout": {"image": image, **rollout}})
    found = next(iter(check_image(settings, make_live_models(settings), there)))
    assert found.state == state
    if state == "error":
        assert "one processor, and its processes run on amd64 and arm64" in found.message
        assert f"--target models --platform linux/amd64,linux/arm64 -t {image} --push ." in found.remedy


@pytest.mark.parametrize(
    ("written", "state", "remedy"),
    [
        ({"root_device": "/dev/sda1"}, "ok", ""),
        ({}, "error", "write rollout.machines[0].root_device: /dev/sda1"),
        (
            {"root_device": "/dev/sda1", "architecture": "arm64", "disk_gib": 8},
            "error",
            "write rollout.machines[0].architecture: amd64 and rollout.machines[0].disk_gib: 15",
        ),
    ],
    ids=["as it is", "AWS's root device", "other processor, small disk"],
)
def test_a_machine_image_must_be_as_the_settings_say(written: dict[str, Any], state: str, remedy: str) -> None:
    """A disk at another name than the root's would be a second one, and stay when its instance goes."""
    disk = {"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 15, "SnapshotId": "snap-1"}}
    ubuntu = {"Architecture": "x86_64", "RootDeviceName": "/dev/sda1", "BlockDeviceMappings": [disk]}
    ec2 = SimpleNamespace(describe_images=lambda **_: {"Images": [ubuntu]})
    there: Any = SimpleNamespace(ec2=ec2, settings=SimpleNamespace(region="us-east-1"))
    settings = Settings.model_validate({"rollout": {"machines": [{"ami": "ami-1e749f67", **written}]}})
    [found] = check_machine_images(settings, there)
    assert (found.state, found.remedy) == (state, remedy)


@pytest.mark.parametrize(
    ("machine", "image_gib", "remedy"),
    [
        ({}, 0.5, ""),
        ({}, 3.0, "rollout.machines[0].disk_gib: 12"),
        ({"accelerator": "nvidia"}, 8.0, ""),
        ({"accelerator": "nvidia"}, 17.0, "rollout.machines[0].disk_gib: 63"),
        ({"accelerator": "nvidia", "disk_gib": 30}, 8.0, "rollout.machines[0].disk_gib: 36"),
    ],
)
def test_a_disk_must_hold_the_image_while_it_is_pulled(
    machine: dict[str, Any], image_gib: float, remedy: str
) -> None:
    """Compressed, and three times as much until it is unpacked."""
    details = {"imageDetails": [{"imageSizeInBytes": int(image_gib * 2**30)}]}
    ecr = SimpleNamespace(describe_images=lambda **_: details)
    there: Any = SimpleNamespace(images=ecr, settings=SimpleNamespace(region="us-east-1"))
    rollout = {"image": f"{REGISTRY}/shop/mark:1", "machines": [machine]}
    found = [*check_disks(Settings.model_validate({"rollout": rollout}), there)]
    assert [one.remedy for one in found] == ([f"write {remedy}"] if remedy else [])


def test_prices_are_renewed_and_kept_where_aws_does_not_answer(world: World, there: Aws, tmp_path: Path) -> None:
    file, floor = tmp_path / "prices.json", load_prices()
    done = refresh_prices(there, floor, file, TODAY)
    assert (done.state, done.check) == ("ok", "prices renewed")
    found = load_prices(file)
    assert found.date == "2026-11-21"
    assert found.instance_type("c5.large").on_demand_usd_per_hour == TYPES["c5.large"].on_demand_usd_per_hour
    assert len(found.types) == len(floor.types)

    before = file.read_text()
    gone = aws(endpoint_url="http://127.0.0.1:9")
    failed = refresh_prices(gone, floor, file, date(2026, 12, 1))
    assert failed.state == "warning"
    assert "stays, 10 days old" in failed.message
    assert file.read_text() == before
    with pytest.raises(RetryLater):
        read_quotas(gone)
    gone.close()


def test_the_price_list_is_read_page_by_page(tmp_path: Path) -> None:
    types = {item.name: item for item in load_prices().types}
    many = World(config_for(tmp_path / "logs", types=types))
    try:
        there = aws(endpoint_url=many.url)
        assert len(types) > PAGE
        assert on_demand_usd_per_hour(there, types) == {
            name: pytest.approx(item.on_demand_usd_per_hour) for name, item in sorted(types.items())
        }
        there.close()
    finally:
        many.stop()


@pytest.mark.parametrize(("partition", "state"), [("aws", "ok"), ("aws-us-gov", "error"), ("aws-cn", "error")])
def test_an_account_of_another_partition_is_refused_at_once(partition: str, state: str) -> None:
    who = {"Account": "123456789012", "Arn": f"arn:{partition}:iam::123456789012:user/anna"}
    there: Any = SimpleNamespace(identity=SimpleNamespace(get_caller_identity=lambda: who))
    found = check_credentials(Settings(), there)
    assert found.state == state
    assert bool(found.remedy) == (state == "error")
