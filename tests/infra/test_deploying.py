"""What a deploy makes of CloudFormation's answers, without one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from mark.aws.account.linked_roles import linked_services, make_linked_roles
from mark.aws.stacks.cloudformation import StackEvent, StackState
from mark.config.settings import Settings
from mark.deployment import destroy
from mark.deployment.deploy import refuse_images
from mark.deployment.stack_progress import finish, settle
from mark.domain.errors import Misconfigured
from mark.live.models import make_live_models
from mark.report.terminal import agreed
from tests.infra.conftest import Template

NAME = "mark-shop-events"
SHOP = Settings.model_validate({"service": {"name": "shop"}})


def state(name: str, status: str) -> StackState:
    return StackState(name=name, id=name, status=status, tags={"mark:service": "shop"})


class Answers:
    """Stacks by name; removing one is remembered."""

    def __init__(self, *states: StackState) -> None:
        self.there = {one.name: one for one in states}
        self.done: list[str] = []

    def state(self, name: str) -> StackState | None:
        return self.there.get(name)

    def named(self, prefix: str) -> tuple[StackState, ...]:
        return tuple(one for name, one in sorted(self.there.items()) if name.startswith(prefix))

    def follow(self, name: str) -> tuple[StackEvent, ...]:
        self.done.append(f"wait {name}")
        return ()

    def remove(self, one: StackState) -> tuple[StackEvent, ...]:
        self.done.append(one.name.removeprefix("mark-shop-"))
        del self.there[one.name]
        return ()


def failed(reason: str) -> StackEvent:
    return StackEvent(
        id="1", at=1.0, resource="Raw", type="AWS::SQS::Queue", status="UPDATE_FAILED", reason=reason
    )


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ("UPDATE_ROLLBACK_COMPLETE", "it is as it was before"),
        ("ROLLBACK_COMPLETE", "deploying again replaces it"),
        ("UPDATE_ROLLBACK_FAILED", "CloudFormation could not take it back"),
        ("DELETE_FAILED", "What is left of it is still there"),
        ("UPDATE_FAILED", "It is UPDATE_FAILED"),
    ],
)
def test_a_failure_is_named_with_what_it_left(status: str, said: str) -> None:
    there: Any = Answers(state(NAME, status))
    with pytest.raises(Misconfigured, match=rf"{NAME} failed at Raw \(AWS::SQS::Queue\): too long\. .*{said}"):
        finish(there, NAME, [failed("too long")])


REGISTRY = "123456789012.dkr.ecr.us-east-1.amazonaws.com"
ONE, SEVERAL = "manifest.v1+json", "index.v1+json"


def registry(kind: str = "", asked: list[str] | None = None, refuses: str = "") -> Any:
    """ECR whose images are all of this kind, of which it says nothing where empty; or that refuses with a code."""

    def describe_images(**call: Any) -> dict[str, Any]:
        if asked is not None:
            asked.append(call["repositoryName"])
        if refuses:
            error: Any = {"Error": {"Code": refuses, "Message": "as AWS says it"}}
            raise ClientError(error, "DescribeImages")
        known = {"imageManifestMediaType": f"application/vnd.oci.image.{kind}"} if kind else {}
        return {"imageDetails": [known]}

    ecr = SimpleNamespace(describe_images=describe_images)
    return SimpleNamespace(images=ecr, settings=SimpleNamespace(region="us-east-1"))


def with_images(**images: Any) -> Settings:
    return Settings.model_validate({"service": {"name": "shop"}, "rollout": images})


def test_an_image_that_lacks_a_processor_is_not_deployed() -> None:
    """Nodes are Graviton, instances mostly are not: either would fail at its first boot."""
    shop = with_images(image=f"{REGISTRY}/shop/mark:1")
    models = make_live_models(shop)
    with pytest.raises(
        Misconfigured, match=r"rollout\.image: .* its processes run on amd64 and arm64; "
    ) as refused:
        refuse_images(shop, models, registry(ONE))
    assert "--platform linux/amd64,linux/arm64" in str(refused.value)
    refuse_images(shop, models, registry(SEVERAL))


def test_each_image_is_asked_for_what_runs_it_alone() -> None:
    """One processor is enough for agents where no type of another is rented."""
    asked: list[str] = []
    images = {"image": f"{REGISTRY}/shop/mark:1", "agent_image": f"{REGISTRY}/shop/agent:1"}
    shop = with_images(**images, node={"instance_type": "t3.small", "architecture": "amd64"}, machines=[{}])
    refuse_images(shop, make_live_models(shop), registry(ONE, asked))
    assert asked == ["shop/mark", "shop/agent"]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("AccessDeniedException", "ECR could not be asked for the processors of {image}: "),
        ("ImageNotFoundException", "{image} is not in ECR"),
    ],
)
def test_a_registry_that_does_not_know_is_named_and_stops_nothing(
    code: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    image = f"{REGISTRY}/shop/mark:1"
    shop = with_images(image=image)
    refuse_images(shop, make_live_models(shop), registry(refuses=code))
    assert said.format(image=image).replace(" ", "") in "".join(capsys.readouterr().err.split())


FUNCTIONS = {
    "training_image": {"training_image": f"{REGISTRY}/shop/training:1"},
    "functions.infer_image": {"functions": {"infer_image": f"{REGISTRY}/shop/infer:1"}},
}


@pytest.mark.parametrize("key", FUNCTIONS)
def test_a_function_s_image_that_lambda_would_refuse_is_not_deployed(key: str) -> None:
    """CloudFormation would find it out when half of the stacks stand."""
    service = {"name": "shop", "serve": [{"model": "inception-v3"}]}
    shop = Settings.model_validate({"service": service, "profiles": ["assumed-lambda"], "rollout": FUNCTIONS[key]})
    models = make_live_models(shop)
    for right in (ONE, ""):  # of the second ECR says no media type
        refuse_images(shop, models, registry(right))
    with pytest.raises(Misconfigured, match=rf"^rollout\.{key}: .*list of images by processor.*provenance=false"):
        refuse_images(shop, models, registry(SEVERAL))
    with pytest.raises(Misconfigured, match=rf"^rollout\.{key}: .* is not in ECR; "):
        refuse_images(shop, models, registry(refuses="ImageNotFoundException"))
    refuse_images(shop, models, registry(refuses="AccessDeniedException"))


def test_an_image_that_no_function_needs_is_not_asked_for() -> None:
    asked: list[str] = []
    service = {"name": "shop", "serve": [{"model": "inception-v3"}]}
    tree = {"service": service, "offerings": {"overflow": False}, "rollout": FUNCTIONS["functions.infer_image"]}
    shop = Settings.model_validate(tree)
    refuse_images(shop, make_live_models(shop), registry(SEVERAL, asked))
    assert asked == []


def test_where_nobody_can_answer_nothing_seems_to_be_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", StringIO(""))
    with pytest.raises(Misconfigured, match="--yes goes on"):
        agreed("Do this?")
    monkeypatch.setattr("sys.stdin", StringIO("n\n"))
    assert not agreed("Do this?")


def test_what_went_well_says_nothing() -> None:
    there: Any = Answers(state(NAME, "UPDATE_COMPLETE"))
    finish(there, NAME, [])
    finish(there, "mark-shop-gone", [], gone=True)
    with pytest.raises(Misconfigured, match="its events say why"):
        finish(there, NAME, [], gone=True)


def test_what_a_killed_rollout_left_under_way_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    there: Any = Answers(
        state("mark-shop-a", "UPDATE_IN_PROGRESS"),
        state("mark-shop-b", "REVIEW_IN_PROGRESS"),
        state("mark-shop-c", "CREATE_COMPLETE"),
    )
    settle(there, "shop")
    assert there.done == ["wait mark-shop-a"]
    assert "left by an earlier rollout" in capsys.readouterr().err


def test_what_launches_goes_before_instances_end(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = ("archive", "control", "events", "future", "gateways", "launch", "network")
    there: Any = Answers(*(state(f"mark-shop-{part}", "CREATE_COMPLETE") for part in parts))
    account: Any = SimpleNamespace(aws=None, stacks=there)
    held: Any = SimpleNamespace(confirm=lambda: there.done.append("lock") if len(there.there) == 7 else None)
    left = iter([("i-1",), (), (), ()])

    def end(aws: object, service: str) -> tuple[str, ...]:
        there.done.append("end instances")
        return next(left)

    monkeypatch.setattr(destroy, "end_instances", end)
    monkeypatch.setattr(destroy, "POLL_S", 0.0)
    destroy.remove_stacks(account, destroy.in_order(there.named("mark-shop-"), "shop"), SHOP, held)
    assert there.done == [
        "lock",
        "control",
        "gateways",
        "end instances",
        "end instances",
        "future",
        "events",
        "launch",
        "end instances",
        "network",
        "end instances",
    ]
    assert list(there.there) == ["mark-shop-archive"]


@pytest.mark.parametrize("shape", ["lean", "ha"])
def test_no_stack_goes_before_one_that_imports_from_it(
    shape: str, templates: dict[str, Template], lean: dict[str, Template]
) -> None:
    """CloudFormation removes no export that is in use."""
    templates = templates if shape == "ha" else lean
    exported = {
        json.dumps(output["Export"]["Name"]): name
        for name, template in templates.items()
        for output in template.get("Outputs", {}).values()
        if "Export" in output
    }
    places = {part: place for place, part in enumerate(destroy.ORDER)}
    imports = [
        (name, exported[json.dumps(value)]) for name, template in templates.items() for value in _imports(template)
    ]
    assert len(imports) > 10
    for name, source in imports:
        assert source == "archive" or places[name] < places[source], (name, source)


def _imports(part: Any) -> Iterator[Any]:
    if isinstance(part, list):
        for item in part:
            yield from _imports(item)
    elif isinstance(part, dict):
        for key, value in part.items():
            if key == "Fn::ImportValue":
                yield value
            else:
                yield from _imports(value)


def test_the_nodes_name_goes_before_its_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hosted zone that still has a name cannot be removed."""
    parts = ("launch", "nodes", "state")
    exports = {"mark-shop-zone": "Z1"}
    there: Any = Answers(
        *(replace(state(f"mark-shop-{part}", "CREATE_COMPLETE"), exports=exports) for part in parts)
    )
    account: Any = SimpleNamespace(aws=SimpleNamespace(names="route53"), stacks=there)
    lean = {"rollout": {"shape": "lean", "node": {"name": "shop.example.org"}}}
    settings = Settings.model_validate({"service": {"name": "shop"}, **lean})
    monkeypatch.setattr(destroy, "end_instances", lambda *_: ())
    monkeypatch.setattr(
        destroy, "remove_all_addresses", lambda names, zone: there.done.append(f"{names} {zone}, all")
    )
    held: Any = SimpleNamespace(confirm=lambda: None)
    destroy.remove_stacks(account, destroy.in_order(there.named("mark-shop-"), "shop"), settings, held)
    assert there.done == ["nodes", "route53 Z1, all", "state", "launch"]


class NewAccount:
    """IAM of an account that has the roles of some services: what is taken is refused, as AWS does."""

    def __init__(self, *there: str) -> None:
        self.there = {*there}
        self.iam = self

    def create_service_linked_role(self, AWSServiceName: str) -> None:  # noqa: N803 - boto3's
        if AWSServiceName in self.there:
            taken: Any = {"Error": {"Code": "InvalidInput", "Message": "Service role name has been taken"}}
            raise ClientError(taken, "CreateServiceLinkedRole")
        self.there.add(AWSServiceName)


def test_the_roles_of_aws_s_services_are_made_once() -> None:
    account: Any = NewAccount("autoscaling.amazonaws.com")
    services = linked_services(lean=False, spot=True)
    assert make_linked_roles(account, services) == ("ecs", "elasticache", "elasticloadbalancing", "spot")
    assert make_linked_roles(account, services) == ()
    assert linked_services(lean=True, spot=False) == ("autoscaling",)


def test_a_removal_names_the_images_that_stay_with_the_commands_that_remove_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shop = with_images(image=f"{REGISTRY}/shop/mark:1", agent_image=f"{REGISTRY}/agent@sha256:{'0' * 64}")
    account: Any = SimpleNamespace(stacks=Answers())
    destroy._say_what_stays(account, "mark-shop-archive", shop)
    said = capsys.readouterr().out
    delete = "  aws ecr batch-delete-image --region us-east-1 --repository-name"
    assert f"{delete} shop/mark --image-ids imageTag=1\n" in said
    assert f"{delete} agent --image-ids imageDigest=sha256:{'0' * 64}\n" in said
