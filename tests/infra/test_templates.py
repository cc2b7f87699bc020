"""What every template must hold to: names, tags, encryption, nobody let in, nothing left unexplained."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from mark.aws.names import repository_of
from mark.aws.permissions.calls import ROLES
from mark.aws.permissions.policies import Names, statements
from mark.config.rollout import RolloutSettings
from mark.config.settings import Settings
from mark.deployment.deployment_plan import _password_number
from mark.deployment.synth import Synthesis, synthesise
from mark.deployment.templates import ACCESS, write_templates
from mark.domain.offerings.times import CloudTimes
from mark.infra import user_data
from mark.infra.app import what_is_missing
from mark.infra.bundles.build import packed
from mark.infra.stacks.launch import server_ports
from mark.infra.stacks.state import short_id
from mark.infra.user_data import Start, start_script
from mark.live.aws_resources import launches_of
from mark.live.processes.cloud_controller import resources as resources_of_controllers
from mark.live.processes.metadata import PORT
from mark.store.users import PROCESSES, rules_of
from tests.infra.conftest import ACCOUNT, GRPC_PORT, REGION, Template, by_part, of_type, plain, settings

UNTAGGED = {
    "AWS::AutoScaling::ScheduledAction",
    "AWS::Lambda::Permission",
    "AWS::SNS::Subscription",
    "AWS::ApplicationAutoScaling::ScalableTarget",
    "AWS::CloudWatch::Dashboard",
    "AWS::EC2::LaunchTemplate",  # by TagSpecifications, below
    "AWS::EC2::Route",
    "AWS::EC2::SecurityGroupIngress",
    "AWS::EC2::SubnetCidrBlock",
    "AWS::EC2::SubnetRouteTableAssociation",
    "AWS::EC2::VPCCidrBlock",
    "AWS::EC2::VPCEndpoint",
    "AWS::EC2::VPCGatewayAttachment",
    "AWS::ElasticLoadBalancingV2::Listener",
    "AWS::IAM::InstanceProfile",
    "AWS::Lambda::Alias",
    "AWS::Lambda::EventInvokeConfig",
    "AWS::Lambda::Version",
    "AWS::S3::BucketPolicy",
    "AWS::SNS::TopicPolicy",
    "AWS::SQS::QueuePolicy",
    "AWS::Scheduler::Schedule",
}
"""Types that take no tags, or did not yet when CloudFormation's schema was written down."""
TAGS = {"mark:service": "shop", "mark:owner": "team@example.com", "cost-centre": "research"}


def resources(templates: dict[str, Template]) -> Iterator[tuple[str, dict[str, Any]]]:
    for part, template in templates.items():
        for name, resource in template["Resources"].items():
            yield f"{part}/{name}", resource


ORDERS = {
    "templates": [
        "archive",
        "network",
        "launch",
        "state",
        "events",
        "functions",
        "control",  # says what is served, before gateways read it
        "gateways",
        "reports",
        "watch",
    ],
    "lean": ["archive", "network", "launch", "state", "events", "functions", "nodes", "reports", "watch"],
}
"""The stacks of each shape."""


@pytest.fixture(params=ORDERS)
def shape(request: pytest.FixtureRequest) -> tuple[list[str], dict[str, Template]]:
    return ORDERS[request.param], request.getfixturevalue(request.param)


def test_stacks_come_in_an_order_in_which_each_finds_what_it_takes(
    shape: tuple[list[str], dict[str, Template]],
) -> None:
    order, templates = shape
    assert list(templates) == order
    told: set[str] = set()
    for template in templates.values():
        taken = set(json.dumps(template).split('{"Fn::ImportValue": "')[1:])
        assert {part.split('"')[0] for part in taken} <= told
        told |= {out["Export"]["Name"] for out in template.get("Outputs", {}).values()}


def test_templates_are_short_enough_to_be_taken(synthesis: Synthesis) -> None:
    """The first in a call; its bucket is there for the others, of which an address is enough."""
    sizes = {name: len(json.dumps(one, separators=(",", ":"))) for name, one in synthesis.templates.items()}
    assert sizes["mark-shop-archive"] < 51_200
    assert max(sizes.values()) < 100_000


def test_everything_is_tagged_with_owner_and_service_and_every_suppression_has_a_reason(
    shape: tuple[list[str], dict[str, Template]],
) -> None:
    _, templates = shape
    skipped = []
    for name, resource in resources(templates):
        properties = resource.get("Properties", {})
        found = [properties[key] for key in ("Tags", "HostedZoneTags", "ResourceTags") if key in properties]
        if resource["Type"] not in UNTAGGED or found:
            assert found, f"{name} has no tags"
            [tags] = found
            told = tags if isinstance(tags, dict) else {tag["Key"]: tag["Value"] for tag in tags}
            assert TAGS.items() <= told.items(), name
        for skip in resource.get("Metadata", {}).get("checkov", {}).get("skip", []):
            assert len(skip["comment"].split()) >= 4, name
            skipped.append(name)
    assert len(skipped) > 10 or "nodes" in templates
    for template in templates.values():
        for data in of_type(template, "AWS::EC2::LaunchTemplate").values():
            own, launched = data["TagSpecifications"], data["LaunchTemplateData"]["TagSpecifications"]
            for specification in (*own, *launched):
                assert {tag["Key"]: tag["Value"] for tag in specification["Tags"]} == TAGS


def test_no_nat_gateway_and_no_custom_resource(templates: dict[str, Template]) -> None:
    for name, resource in resources(templates):
        assert "Nat" not in resource["Type"], name
        assert not resource["Type"].startswith(("Custom::", "AWS::CloudFormation::Custom")), name


def test_nobody_is_let_in_from_everywhere(templates: dict[str, Template]) -> None:
    groups = [group for part in templates.values() for group in of_type(part, "AWS::EC2::SecurityGroup").values()]
    assert len(groups) == 8
    for group in groups:
        for rule in group.get("SecurityGroupIngress", ()):
            assert rule.get("CidrIp") in (None, "10.77.0.0/16"), group["GroupDescription"]
    controllers = of_type(templates["launch"], "AWS::EC2::SecurityGroup")["ControllersGroup"]
    assert "SecurityGroupIngress" not in controllers
    rules = of_type(templates["launch"], "AWS::EC2::SecurityGroupIngress").values()
    assert [rule["GroupId"] == rule["SourceSecurityGroupId"] for rule in rules] == [True]


def test_instances_ask_for_metadata_by_session_alone(templates: dict[str, Template]) -> None:
    found = {
        **of_type(templates["launch"], "AWS::EC2::LaunchTemplate"),
        **of_type(templates["gateways"], "AWS::EC2::LaunchTemplate"),
    }
    assert sorted(one["LaunchTemplateName"] for one in found.values()) == [
        "mark-shop-gateway",
        "mark-shop-serving",
        "mark-shop-serving-amd64-nvidia",
        "mark-shop-serving-arm64",
        "mark-shop-standby",
        "mark-shop-standby-amd64-nvidia",
        "mark-shop-standby-arm64",
    ]
    for one in found.values():
        data = one["LaunchTemplateData"]
        assert data["MetadataOptions"]["HttpTokens"] == "required"
        assert data["MetadataOptions"]["HttpPutResponseHopLimit"] == 1
        assert all(disk["Ebs"]["Encrypted"] for disk in data["BlockDeviceMappings"])


def test_start_scripts_run(templates: dict[str, Template], tmp_path: Path) -> None:
    """As far as a shell can tell without running them; and they hold no password."""
    for name, one in of_type(templates["launch"], "AWS::EC2::LaunchTemplate").items():
        script = plain(one["LaunchTemplateData"]["UserData"])
        assert script.startswith("#!/bin/bash\n")
        file = tmp_path / name
        file.write_text(script)
        done = subprocess.run(["bash", "-n", str(file)], capture_output=True, text=True, check=False)  # noqa: S603, S607
        assert done.returncode == 0, done.stderr
        assert 'value="$(secret mark-shop-store-agent)"' in script
        assert ("--gpus all" in script) == name.endswith("Nvidia")
        assert "python -m mark.live.processes.agent" in script
        assert "\nMARK_CPU_TIMES=/proc/stat\nMARK_MODEL_USER=10001\nMARK_SERVICE=shop\n" in script


def test_user_data_runs_the_script_that_is_packed_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what CloudFormation fills in."""
    monkeypatch.setattr(user_data, "STARTED", f"{tmp_path}/started")
    token = "${Token[Store.Url.12]}"
    for script, said in (
        (f"echo '{token}&' {token}", "rediss://x:6379/0& rediss://x:6379/0\n"),
        ("echo 1", "1\n"),
    ):
        packed = user_data.packed(f"{script}\n").replace(token, "rediss://x:6379/0")
        done = subprocess.run(["bash", "-c", packed], capture_output=True, text=True, check=True)  # noqa: S603, S607
        assert done.stdout == said


def test_each_process_pulls_and_runs_its_own_image(
    templates: dict[str, Template], lean: dict[str, Template]
) -> None:
    def scripts(template: Template) -> list[str]:
        found = of_type(template, "AWS::EC2::LaunchTemplate").values()
        return [plain(one["LaunchTemplateData"]["UserData"]) for one in found]

    def read(template: Template) -> set[str]:
        """Repositories that the template's roles may pull."""
        return set(re.findall(r":repository/shop/(\w+)", json.dumps(plain(template))))

    shop = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/shop"
    for script in scripts(templates["launch"]):
        assert f"{shop}/agent:1 python -m mark.live.processes.agent\n" in script
        assert "--tmpfs /scratch:exec,mode=1777 --shm-size 1g " in script
        assert "HOME=/scratch\n" in script
        assert f"docker pull -q {shop}/agent:1; }}\n" in script
    assert read(templates["launch"]) == {"agent", "model"}
    [gateway] = scripts(templates["gateways"])
    assert f"{shop}/mark:1 python -m mark.live.processes.cloud_gateway\n" in gateway
    assert read(templates["gateways"]) == {"mark"}
    [task] = of_type(templates["control"], "AWS::ECS::TaskDefinition").values()
    [container] = task["ContainerDefinitions"]
    assert container["Image"] == f"{shop}/mark:1"
    assert read(templates["control"]) == {"mark"}
    [node] = scripts(lean["nodes"])
    assert f"{shop}/mark:1 python -m mark.live.processes.cloud_gateway\n" in node
    assert f"{shop}/mark:1 python -m mark.live.processes.cloud_controller\n" in node
    assert read(lean["nodes"]) == {"mark"}
    for shape in (templates, lean):
        function = of_type(shape["functions"], "AWS::Lambda::Function")["Train"]
        assert (function["PackageType"], function["Code"]) == ("Image", {"ImageUri": f"{shop}/training:1"})
        assert function["ImageConfig"] == {"Command": ["mark.lambda_handlers.train.handler"]}
        assert read(shape["functions"]) == {"training"}


def test_controllers_know_what_new_instances_run(templates: dict[str, Template]) -> None:
    def version(**rollout: Any) -> str:
        given = {"image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/mark:1", **rollout}
        return RolloutSettings.model_validate(given).agent_version

    [task] = of_type(templates["control"], "AWS::ECS::TaskDefinition").values()
    told = {one["Name"]: one["Value"] for one in task["ContainerDefinitions"][0]["Environment"]}
    assert len(told["MARK_VERSION"]) == 12
    known = {"MARK_EVENTS_URL": "u", "MARK_BUCKET": "b", "MARK_TEMPLATES": "{}", "MARK_SUBNETS": "[]"}
    environment = {**told, **known}
    assert launches_of(resources_of_controllers(environment))["version"] == told["MARK_VERSION"]
    assert version() == version(training_image="123456789012.dkr.ecr.us-east-1.amazonaws.com/mark:2")
    others = (
        {"image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/mark:2"},
        {"agent_image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/mark:2"},
        {"bundle": "artifacts/two.tar.gz"},
        {"machines": [{"disk_gib": 40}]},
    )
    assert len({version(), *(version(**other) for other in others)}) == 4  # an image is an image


def test_an_update_waits_until_a_new_gateway_answers(
    synthesis: Synthesis, templates: dict[str, Template], tmp_path: Path
) -> None:
    found = templates["gateways"]["Resources"]
    [(group, resource)] = [
        (name, one) for name, one in found.items() if one["Type"] == "AWS::AutoScaling::AutoScalingGroup"
    ]
    update = resource["UpdatePolicy"]["AutoScalingRollingUpdate"]
    first = resource["CreationPolicy"]["ResourceSignal"]
    assert str(first["Count"]) == resource["Properties"]["DesiredCapacity"]
    assert first["Timeout"] == update["PauseTime"]
    assert update["WaitOnResourceSignals"] is True
    assert update["MinSuccessfulInstancesPercent"] == 100
    assert update["MinInstancesInService"] == int(resource["Properties"]["DesiredCapacity"])

    [one] = of_type(templates["gateways"], "AWS::EC2::LaunchTemplate").values()
    script = plain(one["LaunchTemplateData"]["UserData"])
    told = signalled(script, tmp_path)
    assert "mark-shop-gateways" in synthesis.templates
    assert told == (
        f"cloudformation signal-resource --region {REGION} --stack-name mark-shop-gateways "
        f"--logical-resource-id {group} --unique-id i-1 --status SUCCESS\n"
    )
    [role] = of_type(templates["gateways"], "AWS::IAM::Role").values()
    [may] = [s for s in plain(role["Policies"][0]["PolicyDocument"]["Statement"]) if s["Sid"] == "Answers"]
    where = f"arn:aws:cloudformation:{REGION}:{ACCOUNT}:stack/mark-shop-gateways/*"
    assert (_listed(may)["Action"], _listed(may)["Resource"]) == (["cloudformation:SignalResource"], [where])


@pytest.mark.parametrize("shape", ["gateways", "nodes"])
def test_nothing_ends_a_gateway_that_still_boots(
    shape: str, templates: dict[str, Template], lean: dict[str, Template]
) -> None:
    """Of all but one launch in twenty, with twice as long again for a large image to come."""
    [group] = of_type(
        (lean if shape == "nodes" else templates)[shape], "AWS::AutoScaling::AutoScalingGroup"
    ).values()
    assert group["HealthCheckGracePeriod"] >= 3 * CloudTimes().launch.p95_s


def signalled(script: str, folder: Path) -> str:
    """What a start script's signal calls the AWS CLI with, where the gateway answers at the second look."""
    fakes = {
        "curl": """case "$*" in
  *health/live) test -e looked || { touch looked; exit 7; } ;;
  *api/token) echo secret ;;
  *"token: secret"*instance-id) echo i-1 ;;
  *) exit 22 ;;
esac""",
        "aws": 'echo "$*" >> told; exit 254',  # where no update waits
        "sleep": ":",
    }
    for name, body in fakes.items():
        (folder / name).write_text(f"#!/bin/bash\n{body}\n")
        (folder / name).chmod(0o755)
    end = script.partition("/usr/local/bin/mark-signal <<'MARK'\n")[2].partition("MARK\n")[0]
    assert script.endswith("\nMARK\nsystemd-run --no-block --unit=mark-signal /usr/local/bin/mark-signal\n")
    environment = {"PATH": f"{folder}:/usr/bin:/bin"}
    subprocess.run(["bash", "-c", end], cwd=folder, env=environment, check=True)  # noqa: S603, S607
    return (folder / "told").read_text()


def test_what_instances_say_is_kept(templates: dict[str, Template]) -> None:
    """In groups that stay, where the machine's role may write, whatever becomes of the machine."""
    kept = {one["LogGroupName"] for one in of_type(templates["archive"], "AWS::Logs::LogGroup").values()}
    for part, process in (("launch", "agent"), ("gateways", "gateway")):
        group = f"/mark/shop/{process}"
        assert group in kept
        [role] = of_type(templates[part], "AWS::IAM::Role").values()
        [log] = [s for s in plain(role["Policies"][0]["PolicyDocument"]["Statement"]) if s["Sid"] == "Log"]
        assert log["Resource"] == [f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:{group}:*"]
        for one in of_type(templates[part], "AWS::EC2::LaunchTemplate").values():
            script = plain(one["LaunchTemplateData"]["UserData"])
            runs = [line for line in script.splitlines() if "docker run " in line]
            assert len(runs) == (3 if process == "agent" else 1)
            assert all(f"--log-driver awslogs --log-opt awslogs-region={REGION} " in run for run in runs)
            assert all(f"awslogs-group={group} " in run for run in runs)


def test_an_agent_does_not_give_up_with_its_model_server(templates: dict[str, Template]) -> None:
    """What systemd requires is never started again for what waits for it; and it gives up at five failures."""
    one = of_type(templates["launch"], "AWS::EC2::LaunchTemplate")["TemplateMarkShopServing"]
    _, model, _, agent = plain(one["LaunchTemplateData"]["UserData"]).split("[Unit]\n")
    assert "Requires=docker.service\n" in agent
    assert "Wants=network-online.target mark-metadata.service mark-model.service\n" in agent
    assert "StartLimitIntervalSec=0\n" in model
    assert "StartLimitIntervalSec=0\n" in agent


def test_the_store_has_tls_and_a_password_that_no_template_holds(templates: dict[str, Template]) -> None:
    [group] = of_type(templates["state"], "AWS::ElastiCache::ReplicationGroup").values()
    assert group["TransitEncryptionEnabled"] is True
    assert group["AtRestEncryptionEnabled"] is True
    assert group["AutomaticFailoverEnabled"] is True
    assert "AuthToken" not in group
    [users] = of_type(templates["state"], "AWS::ElastiCache::UserGroup").values()
    assert plain(group["UserGroupIds"]) == ["<Users>"]
    assert plain(users["UserIds"]) == [f"<User{name.capitalize()}>" for name in (*PROCESSES, "default")]
    told = {one["UserName"]: one for one in of_type(templates["state"], "AWS::ElastiCache::User").values()}
    secrets = of_type(templates["state"], "AWS::SecretsManager::Secret")
    for user in PROCESSES:
        name, kind = user.value, user.value.capitalize()
        password = f"{{{{resolve:secretsmanager:<Password{kind}>:SecretString}}}}"
        assert plain(told[name]["Passwords"]) == [password]
        assert told[name]["AccessString"] == rules_of(user, "shop")
        assert plain(secrets[f"Url{kind}"]["SecretString"]).startswith(f"rediss://{name}:{password}@")
        assert secrets[f"Url{kind}"]["Name"] == f"mark-shop-store-{name}"
    assert told["default"]["AccessString"] == "off -@all"
    assert len({one["UserId"] for one in told.values()}) == len(told) == 5


def test_ids_of_users_are_short_and_stay_apart() -> None:
    names = [f"mark-{'a' * 40}-{user.value}" for user in PROCESSES]
    assert len({*map(short_id, names)}) == len(names)
    assert all(len(short_id(name)) <= 40 for name in names)


@pytest.fixture(scope="module")
def third(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    """A service whose model has versions, with the third passwords of its store."""
    if lacking := what_is_missing():
        pytest.skip(lacking)
    folder = tmp_path_factory.mktemp("third")
    given = settings(folder, functions={"bundles": str(folder)}, store={"passwords": 3})
    tree = given.model_dump(mode="json", exclude_defaults=True)
    backend = {"kind": "python", "target": "mark.models.digits:Digits"}
    tree["service"] |= {"serve": [{"model": "digits", "backend": backend}]}
    (folder / "infer.zip").write_bytes(packed({"mark/models/digits/__init__.py": b""}))
    return synthesise(Settings.model_validate(tree))


def test_new_passwords_of_the_store_count_beside_those_before_and_are_read_once_it_takes_them(
    templates: dict[str, Template], third: Synthesis
) -> None:
    state = third.templates["mark-shop-state"]
    assert (_password_number(templates["state"]), _password_number(state)) == (1, 3)
    secrets = of_type(state, "AWS::SecretsManager::Secret")
    named = {one["Name"] for one in secrets.values()}
    assert len(named) == len(secrets) == third.footprint.secrets - 1, "that of the webhook is the team's"
    users = {one["UserName"]: plain(one["Passwords"]) for one in of_type(state, "AWS::ElastiCache::User").values()}
    for user in PROCESSES:
        name, kind = user.value, user.value.capitalize()
        assert {f"mark-shop-password-{name}-3", f"mark-shop-password-{name}-2"} < named
        assert f"mark-shop-password-{name}" not in named
        valid = [f"{{{{resolve:secretsmanager:<Password{kind}{number}>:SecretString}}}}" for number in (3, 2)]
        assert users[name] == valid
        assert f"rediss://{name}:{valid[0]}@" in plain(secrets[f"Url{kind}"]["SecretString"])
        assert state["Resources"][f"Url{kind}"]["DependsOn"] == ["Users"]
    was, becomes = (found["Outputs"] for found in (templates["state"], state))
    assert was == becomes, "what other stacks take stays"
    changed = {part for part, one in templates.items() if third.templates[f"mark-shop-{part}"] != one}
    assert {"state", "gateways", "control"} <= changed, "who runs is replaced"


def test_each_role_reads_its_own_secret_of_the_store_and_no_other(
    templates: dict[str, Template], lean: dict[str, Template]
) -> None:
    told: dict[str, set[str]] = {}
    for found in (templates, lean):
        for stack in found.values():
            for role in of_type(stack, "AWS::IAM::Role").values():
                for one in plain(role.get("Policies", [{}])[0].get("PolicyDocument", {}).get("Statement", [])):
                    if "secretsmanager:GetSecretValue" in one["Action"]:
                        read = set(re.findall(r"mark-shop-(store-\w+|\w+-secret)", str(one["Resource"])))
                        told.setdefault(role["RoleName"], set()).update(read)
    assert told == {
        "mark-shop-agent": {"store-agent"},
        "mark-shop-gateway": {"store-gateway"},
        "mark-shop-node": {"store-agent", "store-controller"},
        "mark-shop-report-role": {"report-secret"},
        "mark-shop-start": {"controller-secret"},
        "mark-shop-webhook-role": set(),
    }


def test_model_code_reads_its_bundle_whoever_packed_it(templates: dict[str, Template], tmp_path: Path) -> None:
    one = of_type(templates["launch"], "AWS::EC2::LaunchTemplate")["TemplateMarkShopServing"]
    script = plain(one["LaunchTemplateData"]["UserData"])
    [unpacks] = [line for line in script.splitlines() if line.startswith("[ -e /run/mark/unpacked ]")]
    packed, there, tools = tmp_path / "packed", tmp_path / "model", tmp_path / "bin"
    for folder in (packed / "weights", there, tools):
        folder.mkdir(parents=True)
    (packed / "weights" / "w.bin").write_bytes(b"w")
    (packed / "weights" / "w.bin").chmod(0o600)
    (packed / "weights").chmod(0o700)
    (tools / "aws").write_text(f"#!/bin/sh\nexec tar -cz -C {packed} weights\n")
    (tools / "aws").chmod(0o755)
    for name, is_here in (("/run/mark/", f"{tmp_path}/"), ("/opt/mark/model", str(there)), ("<", ""), (">", "")):
        unpacks = unpacks.replace(name, is_here)
    subprocess.run(  # noqa: S603 - the start script's own line
        ["bash", "-euc", f"umask 077; {unpacks}"],  # noqa: S607
        env={"PATH": f"{tools}:{os.environ['PATH']}"},
        check=True,
    )
    found = there / "weights" / "w.bin"
    assert found.read_bytes() == b"w"
    assert [stat.S_IMODE(path.stat().st_mode) & 0o055 for path in (found.parent, found)] == [0o055, 0o044]


def test_model_code_cannot_be_the_instance(templates: dict[str, Template], tmp_path: Path) -> None:
    """Its user, and the network of a server of its own, are kept from the metadata before anything runs."""
    one = of_type(templates["launch"], "AWS::EC2::LaunchTemplate")["TemplateMarkShopServing"]
    script = plain(one["LaunchTemplateData"]["UserData"])
    runs = {line.split("--name ")[1].split(" ")[0]: line for line in script.splitlines() if "docker run " in line}
    rights = [word for word in runs["mark"].split() if word.isupper()]
    assert rights == ["ALL", "SETUID", "SETGID", "KILL", "CHOWN"], "dropped, then given back"
    assert "--user 0:10001 " in runs["mark"]
    assert "--security-opt no-new-privileges" in runs["mark"]
    assert "MARK_MODEL_USER=10001\n" in script
    assert "--user 0 --cap-drop ALL --security-opt no-new-privileges" in runs["mark-metadata"]
    assert "--cap-add" not in runs["mark-metadata"]
    assert "/opt/mark/model" not in runs["mark-metadata"], "it loads no model"
    assert [name for name, run in runs.items() if "-v /opt/mark/versions:/versions " in run] == [
        "mark-metadata",
        "mark",
    ], "who fetches versions, and the agent"
    assert "--network host" not in runs["mark-model"]
    assert f"AWS_EC2_METADATA_SERVICE_ENDPOINT=http://127.0.0.1:{PORT}\n" in script
    prepare = script.partition("/usr/local/bin/mark-prepare <<'MARK'\n")[2].partition("\nMARK\n")[0]
    firewall = prepare[prepare.index("while read -r tables rule") :].partition("\nRULES\n")[0] + "\nRULES\n"
    assert wall(firewall, tmp_path, known="") == [
        "iptables -w -I OUTPUT -d 169.254.169.254 -m owner --uid-owner 10001 -j REJECT",
        "iptables -w -I OUTPUT -d 169.254.169.254 -m owner --gid-owner 10001 -j REJECT",
        "iptables -w -I OUTPUT -d 169.254.169.254 -m owner --uid-owner 20000-20999 -j REJECT",
        f"iptables -w -I OUTPUT -d 127.0.0.1 -p tcp --dport {PORT} -m owner --uid-owner 20000-20999 -j REJECT",
        "iptables -w -I DOCKER-USER -d 169.254.169.254 -j REJECT",
        "ip6tables -w -I OUTPUT -d fd00:ec2::254 -m owner --uid-owner 10001 -j REJECT",
        "ip6tables -w -I OUTPUT -d fd00:ec2::254 -m owner --gid-owner 10001 -j REJECT",
        "ip6tables -w -I OUTPUT -d fd00:ec2::254 -m owner --uid-owner 20000-20999 -j REJECT",
    ]
    assert wall(firewall, tmp_path, known="-C") == [], "rules that stand are not doubled"
    with pytest.raises(subprocess.CalledProcessError):
        wall(firewall, tmp_path, known="none")  # an agent does not start where they cannot be had


def test_a_models_own_server_is_reached_on_loopback() -> None:
    target = {"kind": "tf-serving", "target": "http://localhost:8501/v1"}
    models = [{"backend": target}, {"backend": {"kind": "python", "target": "a.py:B"}}]
    assert server_ports({"service": {"serve": models}}) == (8501,)
    assert server_ports({"target": "http://localhost"}) == (80,)
    start = Start(
        process="agent", image="i", region=REGION, log="l", secrets={}, model_image="m", model_ports=(8500, 8501)
    )
    [run] = [line for line in start_script(start).splitlines() if "--name mark-model " in line]
    assert "-p 127.0.0.1:8500:8500 -p 127.0.0.1:8501:8501 " in run


def wall(script: str, folder: Path, *, known: str) -> list[str]:
    """Rules that the script adds; a call with `known` in it succeeds at once, and with `none` none does."""
    (folder / "added").write_text("")
    body = f"""case " $* " in
  *" {known or "-never"} "*) exit 0 ;;
  *" -C "*) exit 1 ;;
esac
test "{known}" != none && echo "$(basename "$0") $*" >> {folder}/added"""
    for name in ("iptables", "ip6tables"):
        (folder / name).write_text(f"#!/bin/bash\n{body}\n")
        (folder / name).chmod(0o755)
    environment = {"PATH": f"{folder}:/usr/bin:/bin"}
    subprocess.run(["bash", "-euo", "pipefail", "-c", script], env=environment, check=True)  # noqa: S603, S607
    return (folder / "added").read_text().splitlines()


def test_the_store_evicts_nothing(templates: dict[str, Template], others: dict[str, Template]) -> None:
    """The lease and what announces itself have a time to live: they would go first."""
    for template, family in ((templates["state"], "valkey8"), (others["state"], "redis7")):
        [parameters] = of_type(template, "AWS::ElastiCache::ParameterGroup").values()
        assert parameters["Properties"] == {"maxmemory-policy": "noeviction"}
        assert parameters["CacheParameterGroupFamily"] == family
        [group] = of_type(template, "AWS::ElastiCache::ReplicationGroup").values()
        assert plain(group["CacheParameterGroupName"]) == "<Parameters>"
        assert group["ReplicationGroupId"] == "mark-shop-store"


def test_clients_speak_tls(templates: dict[str, Template]) -> None:
    listeners = of_type(templates["gateways"], "AWS::ElasticLoadBalancingV2::Listener")
    assert {(one["Protocol"], one["Port"]) for one in listeners.values()} == {("TLS", 443), ("TLS", GRPC_PORT)}
    for listener in listeners.values():
        assert listener["Certificates"] == [{"CertificateArn": f"arn:aws:acm:{REGION}:{ACCOUNT}:certificate/0000"}]
    assert "AlpnPolicy" not in listeners["Listener"]
    assert listeners["GrpcListener"]["AlpnPolicy"] == ["HTTP2Only"], "gRPC's clients call nothing else"


def test_grpc_has_a_way_to_the_gateways(templates: dict[str, Template]) -> None:
    targets = of_type(templates["gateways"], "AWS::ElasticLoadBalancingV2::TargetGroup")
    ports = {name: (one["Port"], one.get("HealthCheckPort")) for name, one in targets.items()}
    assert ports == {"Targets": (8080, None), "GrpcTargets": (GRPC_PORT, "8080")}
    [group] = of_type(templates["gateways"], "AWS::AutoScaling::AutoScalingGroup").values()
    assert plain(group["TargetGroupARNs"]) == ["<Targets>", "<GrpcTargets>"]
    groups = of_type(templates["launch"], "AWS::EC2::SecurityGroup")

    def open_at(name: str, way: str) -> list[int]:
        return [rule["FromPort"] for rule in groups[name][f"SecurityGroup{way}"]]

    assert open_at("BalancerGroup", "Ingress") == [443, GRPC_PORT]
    assert open_at("BalancerGroup", "Egress") == open_at("GatewaysGroup", "Ingress") == [8080, GRPC_PORT]


def test_what_stays_is_the_bucket_and_the_logs(templates: dict[str, Template]) -> None:
    """They are a stack that stays. What outlived it by a policy of its own could not be made again by its name."""
    for name, resource in resources(templates):
        assert resource.get("DeletionPolicy", "Delete") == "Delete", name
        keeps = resource["Type"] in ("AWS::Logs::LogGroup", "AWS::S3::Bucket")
        assert name.startswith("archive/") or not keeps, name
    groups = of_type(templates["archive"], "AWS::Logs::LogGroup").values()
    assert {
        "/mark/shop/controller",
        "/aws/lambda/mark-shop-inception-v3",
        "/aws/lambda/mark-shop-report",
    } <= {group["LogGroupName"] for group in groups}


@pytest.mark.parametrize(
    ("part", "resource", "role"),
    [
        ("control", "ControllerRole", "controller"),
        ("functions", "InterruptionRole", "interruption"),
        ("functions", "OrphansRole", "orphans"),
        ("functions", "WarmRole", "warm"),
        ("functions", "TrainRole", "train"),
        ("functions", "InferInceptionV3Role", "infer"),
    ],
)
def test_roles_may_do_what_their_calls_need(
    templates: dict[str, Template], part: str, resource: str, role: str
) -> None:
    [policy] = of_type(templates[part], "AWS::IAM::Role")[resource]["Policies"]
    bucket = "<mark-shop-bucket>" if role in ("controller", "orphans", "train") else ""
    infer = ("mark-shop-inception-v3", "mark-shop-inception-v3:live")
    names = Names(
        service="shop", region=REGION, account=ACCOUNT, bucket=bucket, infer=infer, train="mark-shop-train"
    )
    granted = [one for one in plain(policy["PolicyDocument"]["Statement"]) if one["Sid"] != "Image"]
    wanted = [statement.document() for statement in statements(role, names)]
    assert [_listed(one) for one in granted] == [_listed(one) for one in wanted]


def _listed(statement: dict[str, Any]) -> dict[str, Any]:
    """CDK writes a list of one as that one."""
    lists = {key: statement[key] for key in ("Action", "Resource")}
    return {**statement, **{key: [value] if isinstance(value, str) else value for key, value in lists.items()}}


def test_whatever_may_do_something_to_everything_says_why(templates: dict[str, Template]) -> None:
    """Stars stand where AWS lets no resource be named; cdk-nag holds each to a reason."""
    stars = {
        f"{part}/{name}/{statement['Sid']}"
        for part, template in templates.items()
        for name, role in of_type(template, "AWS::IAM::Role").items()
        for policy in role.get("Policies", ())
        for statement in plain(policy["PolicyDocument"]["Statement"])
        if "*" in _listed(statement)["Resource"]
    }
    known = {"AlarmReads", "CostReads", "Ec2Reads", "ImageLogin", "Network", "QuotaReads"}
    assert {star.rpartition("/")[2] for star in stars} <= known, stars


def test_roles_are_taken_by_one_service_each(templates: dict[str, Template]) -> None:
    taken = {
        name: plain(role["AssumeRolePolicyDocument"]["Statement"])
        for template in templates.values()
        for name, role in of_type(template, "AWS::IAM::Role").items()
    }
    assert len(taken) == 14
    for name, [statement] in taken.items():
        service = statement["Principal"]["Service"]
        assert statement["Action"] == "sts:AssumeRole"
        told = service in ("ecs-tasks.amazonaws.com", "scheduler.amazonaws.com")
        assert (statement.get("Condition") == {"StringEquals": {"aws:SourceAccount": ACCOUNT}}) == told, name


def test_controllers_are_told_what_they_launch_from(templates: dict[str, Template]) -> None:
    [task] = of_type(templates["control"], "AWS::ECS::TaskDefinition").values()
    [container] = task["ContainerDefinitions"]
    told = {item["Name"]: plain(item["Value"]) for item in container["Environment"]}
    assert json.loads(told["MARK_TEMPLATES"])["standby/arm64"] == "mark-shop-standby-arm64"
    assert json.loads(told["MARK_SUBNETS"]) == [
        ["us-east-1a", "<mark-shop-subnet-0>"],
        ["us-east-1b", "<mark-shop-subnet-1>"],
    ]
    assert told["MARK_QUALIFIER"] == "live"
    assert json.loads(told["MARK_SETTINGS"])["service"]["name"] == "shop"
    assert [secret["Name"] for secret in container["Secrets"]] == ["MARK_STORE_URL"]


def test_aws_has_a_budget_of_its_own_on_the_service_s_tag_and_may_tell_the_alarms_topic(
    synthesis: Synthesis, templates: dict[str, Template]
) -> None:
    [budget] = of_type(templates["watch"], "AWS::Budgets::Budget").values()
    told = budget["Budget"]
    assert (told["BudgetName"], told["BudgetType"], told["TimeUnit"]) == ("mark-shop-spending", "COST", "MONTHLY")
    assert told["CostFilters"] == {"TagKeyValue": ["user:mark:service$shop"]}
    assert told["BudgetLimit"]["Unit"] == "USD"
    month = synthesis.spending.month_usd
    assert month <= told["BudgetLimit"]["Amount"] <= 1.1 * month
    notifications = budget["NotificationsWithSubscribers"]
    assert [
        (one["Notification"]["NotificationType"], one["Notification"]["Threshold"]) for one in notifications
    ] == [
        ("ACTUAL", 80),
        ("FORECASTED", 100),
    ]
    for one in notifications:
        assert one["Subscribers"] == [{"SubscriptionType": "SNS", "Address": {"Ref": "Alarms"}}]
    assert templates["watch"]["Resources"]["Spending"]["DependsOn"] == ["AlarmsPolicy"]
    [policy] = of_type(templates["watch"], "AWS::SNS::TopicPolicy").values()
    allowed = policy["PolicyDocument"]["Statement"][0]
    assert "budgets.amazonaws.com" in allowed["Principal"]["Service"]
    assert allowed["Condition"] == {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}


def test_alarms_watch_what_matters(templates: dict[str, Template]) -> None:
    alarms = {
        (one["Namespace"], one["MetricName"]): one
        for one in of_type(templates["watch"], "AWS::CloudWatch::Alarm").values()
    }
    dead = alarms["AWS/SQS", "ApproximateNumberOfMessagesVisible"]
    assert dead["Dimensions"] == [{"Name": "QueueName", "Value": "mark-shop-raw-dead"}]
    assert dead["Threshold"] == 0
    silent = alarms["MArk", "Gateways"]
    assert silent["TreatMissingData"] == "breaching", "no controller acts"
    assert (silent["ComparisonOperator"], silent["Threshold"]) == ("LessThanThreshold", 1)
    spend = alarms["MArk", "UsdPerHour"]
    assert spend["Threshold"] == 5
    assert spend["Dimensions"] == [{"Name": "service", "Value": "shop"}], "of all models together"
    memory = alarms["AWS/ElastiCache", "DatabaseMemoryUsagePercentage"]
    assert memory["Dimensions"] == [{"Name": "CacheClusterId", "Value": "mark-shop-store-001"}]
    reached = alarms["AWS/NetworkELB", "HealthyHostCount"]
    assert (reached["ComparisonOperator"], reached["Threshold"]) == ("LessThanThreshold", 1)
    assert reached["TreatMissingData"] == "breaching", "a balancer without targets says nothing"
    assert {plain(one["Value"]) for one in reached["Dimensions"]} == {
        "<mark-shop-balancer-name>",
        "<mark-shop-targets-name>",
    }
    untrained = alarms["MArk", "FailedTrainings"]
    assert untrained["Dimensions"] == [{"Name": "service", "Value": "shop"}], "of all models together"
    assert (untrained["Threshold"], untrained["TreatMissingData"]) == (0, "notBreaching"), "none is not sent"
    assert {"BurnRate", "OverflowShare"} <= {metric for _, metric in alarms}
    made = of_type(templates["watch"], "AWS::CloudWatch::Alarm").values()
    assert all(one["AlarmActions"] == [{"Ref": "Alarms"}] for one in made)


def test_functions_that_nobody_waits_for_ring_where_they_fail(
    templates: dict[str, Template], lean: dict[str, Template]
) -> None:
    def watched(part: Mapping[str, Template]) -> set[str]:
        alarms = of_type(part["watch"], "AWS::CloudWatch::Alarm").values()
        failing = [one for one in alarms if (one["Namespace"], one["MetricName"]) == ("AWS/Lambda", "Errors")]
        assert all((one["Statistic"], one["Threshold"]) == ("Sum", 0) for one in failing)
        return {dimension["Value"] for one in failing for dimension in one["Dimensions"]}

    for part in (templates, lean):
        made = {str(one["FunctionName"]) for one in of_type(part["functions"], "AWS::Lambda::Function").values()}
        assert watched(part) == made & {"mark-shop-report", "mark-shop-train"}
    assert watched(templates) == {"mark-shop-report", "mark-shop-train"}
    for part in (templates, lean):
        [told] = of_type(part["watch"], "AWS::Lambda::EventInvokeConfig").values()
        assert told["FunctionName"] == "mark-shop-orphans"
        assert told["DestinationConfig"] == {"OnFailure": {"Destination": {"Ref": "Alarms"}}}


def test_a_function_is_excused_for_what_is_true_of_it(templates: dict[str, Template]) -> None:
    made = {
        name: resource
        for name, resource in templates["functions"]["Resources"].items()
        if resource["Type"] == "AWS::Lambda::Function"
    }
    excused = {
        name: {skip["id"]: skip["comment"] for skip in resource["Metadata"]["checkov"]["skip"]}
        for name, resource in made.items()
    }
    assert "VpcConfig" in made["Report"]["Properties"]
    assert [name for name, skips in excused.items() if "CKV_AWS_117" not in skips] == ["Probe", "Report"]
    assert len({skips["CKV_AWS_116"] for skips in excused.values()}) == len(made) == 8


def test_a_private_network_reaches_whatever_processes_call(others: dict[str, Template]) -> None:
    made = others["network"]
    reached = {
        plain(one["ServiceName"]).removeprefix(f"com.amazonaws.{REGION}.")
        for one in of_type(made, "AWS::EC2::VPCEndpoint").values()
    }
    called = {call.service for role in ("controller", "gateway", "agent", "report") for call in ROLES[role]}
    known = {"cloudwatch": "monitoring", "service-quotas": "servicequotas", "ses": "email", "sesv2": "email"}
    wanted = {known.get(service, service) for service in called} - {"ce", "ecr", "savingsplans"}
    assert wanted | {"cloudformation", "ecr.api", "ecr.dkr", "logs"} <= reached


@pytest.mark.parametrize("of", ["templates", "others"])
def test_an_interface_endpoint_stands_in_each_zone(of: str, request: pytest.FixtureRequest) -> None:
    made = request.getfixturevalue(of)["network"]
    subnets = set(of_type(made, "AWS::EC2::Subnet"))
    endpoints = [one for one in of_type(made, "AWS::EC2::VPCEndpoint").values() if one.get("PrivateDnsEnabled")]
    assert endpoints
    for one in endpoints:
        assert {subnet["Ref"] for subnet in one["SubnetIds"]} == subnets


def test_cost_explorer_may_be_asked_only_where_the_report_is_to_be_reconciled(
    templates: dict[str, Template], others: dict[str, Template]
) -> None:
    def asks(part: Mapping[str, Template]) -> tuple[bool, bool, bool]:
        text = {name: json.dumps(template) for name, template in part.items()}
        granted = "ce:GetCostAndUsage" in text["functions"]
        return granted, "MARK_REPORT_RECONCILE" in text["functions"], '.ce"' in text["network"]

    assert asks(templates) == (False, False, False)
    assert asks(others) == (True, True, True)


@pytest.mark.slow
def test_a_function_that_is_an_image_may_read_it_and_so_may_who_deploys_it(tmp_path: Path) -> None:
    image = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/shop/infer:1"
    given = settings(tmp_path, functions={"bundles": str(tmp_path), "infer_image": image}, training_image=None)
    (tmp_path / "infer.zip").unlink()
    write_templates(given, tmp_path / "out")
    [path] = (tmp_path / "out").glob("*-mark-shop-functions.template.json")
    functions = json.loads(path.read_text())

    [infer] = [one for name, one in of_type(functions, "AWS::Lambda::Function").items() if "Infer" in name]
    assert (infer["PackageType"], infer["Code"]) == ("Image", {"ImageUri": image})
    assert not {"Handler", "Runtime"} & infer.keys()
    assert infer["Environment"]["Variables"]["MARK_MODEL"] == "inception-v3"
    [policy] = of_type(functions, "AWS::IAM::Role")["InferInceptionV3Role"]["Policies"]
    made = json.loads((tmp_path / "out" / ACCESS).read_text())["Resources"]
    last = [one for name, one in made.items() if name.startswith("Rights")][-1]
    told = last["Properties"]["PolicyDocument"]["Statement"][-1]
    for statement in (_listed(plain(policy["PolicyDocument"]["Statement"])[-1]), told):
        assert statement["Action"] == ["ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
        assert statement["Resource"] == [f"arn:aws:ecr:{REGION}:{ACCOUNT}:repository/shop/infer"]


def test_a_model_with_versions_has_two_functions_that_may_read_its_bundles(third: Synthesis) -> None:
    made = third
    parts = by_part(made)
    both = ("mark-shop-digits", "mark-shop-digits_2")

    functions = of_type(parts["functions"], "AWS::Lambda::Function")
    infer = {name: plain(one) for name, one in functions.items() if "Infer" in name}
    assert sorted(infer) == ["InferDigits", "InferDigitsSecond"]
    assert tuple(one["FunctionName"] for one in infer.values()) == both
    for one in infer.values():
        assert one["Environment"]["Variables"]["MARK_VERSIONS_BUCKET"] == "<mark-shop-bucket>"
        assert "MARK_BACKEND_VERSION" not in one["Environment"]["Variables"], "of a zip nobody knows it"
    roles = of_type(parts["functions"], "AWS::IAM::Role")
    for name in ("InferDigitsRole", "InferDigitsSecondRole"):
        [policy] = roles[name]["Policies"]
        [read] = [one for one in plain(policy["PolicyDocument"]["Statement"]) if one["Sid"] == "VersionFiles"]
        assert _listed(read)["Resource"] == ["arn:aws:s3:::<mark-shop-bucket>/artifacts/versions/*"]
        assert _listed(read)["Action"] == ["s3:GetObject"]
    called = [f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{name}" for name in both]
    callers = {
        name: _listed(one)["Resource"]
        for template in parts.values()
        for name, role in of_type(template, "AWS::IAM::Role").items()
        for policy in role.get("Policies", ())
        for one in plain(policy["PolicyDocument"]["Statement"])
        if one["Sid"] == "Inference"
    }
    assert set(callers) == {"ControllerRole", "GatewayRole", "WarmRole"}
    assert all(found == called for found in callers.values())
    groups = {group["LogGroupName"] for group in of_type(parts["archive"], "AWS::Logs::LogGroup").values()}
    assert {f"/aws/lambda/{name}" for name in both} <= groups
    [task] = of_type(parts["control"], "AWS::ECS::TaskDefinition").values()
    told = {item["Name"]: item["Value"] for item in task["ContainerDefinitions"][0]["Environment"]}
    assert json.loads(told["MARK_VERSIONS"])["digits"]["function_versions"] is True


def test_an_image_is_pulled_from_where_it_is(templates: dict[str, Template]) -> None:
    """Often from an account that all teams share."""
    image = "999999999999.dkr.ecr.eu-west-1.amazonaws.com/team/mark"
    wanted = "arn:aws:ecr:eu-west-1:999999999999:repository/team/mark"
    assert repository_of(f"{image}:1.2", "aws") == wanted
    assert repository_of(f"{image}@sha256:{'0' * 64}", "aws") == wanted
    with pytest.raises(ValidationError, match="image"):
        RolloutSettings.model_validate({"image": "docker.io/library/python:3.11"})
