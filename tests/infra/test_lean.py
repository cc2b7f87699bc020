"""The lean shape: nodes with everything on them, and nothing that costs more than they do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from aws_cdk import App, Stack, aws_autoscaling

from mark.aws.names import AGENTS_PASSWORD
from mark.aws.permissions.calls import ROLES
from mark.aws.permissions.policies import needs
from mark.config.footprint import footprint_of, front_machines
from mark.config.settings import Settings
from mark.deployment.synth import Synthesis, synthesise
from mark.domain.errors import Misconfigured, RetryLater
from mark.infra.app import what_is_missing
from mark.infra.roles import store_secret
from mark.infra.stacks.gateways import wait_for_answers
from mark.live.aws_resources import launches_of
from mark.live.processes.cloud_controller import deployed, resources
from mark.live.processes.cloud_gateway import start_of
from mark.live.store_link import at_node, follows_lease, port_of, table_of
from mark.store.connect import connect
from mark.store.embedded import EmbeddedRedis
from mark.store.keys import Keys
from mark.store.users import StoreUser, for_user, url_of
from tests.infra.conftest import ACCOUNT, GRPC_PORT, LEAN, REGION, Template, by_part, of_type, plain, settings
from tests.infra.test_bill import BILLED, ELSEWHERE, FREE, count, the_one, types_in
from tests.store.tls import certificate

PASSWORD = "p" * 64
URL = f"rediss+lease://controller:{PASSWORD}@mark-shop-lease.us-east-1:6379?ssl_cert_reqs=none"


@pytest.fixture
def script(lean: dict[str, Template]) -> str:
    """A node's user data."""
    [one] = of_type(lean["nodes"], "AWS::EC2::LaunchTemplate").values()
    found: str = plain(one["LaunchTemplateData"]["UserData"])
    return found


def test_nothing_is_made_that_costs_more_than_the_nodes(lean: dict[str, Template]) -> None:
    made = types_in(lean)
    assert not {kind for kind in made if kind.split("::")[1] in ("ECS", "ElastiCache", "ElasticLoadBalancingV2")}
    endpoints = of_type(lean["network"], "AWS::EC2::VPCEndpoint").values()
    assert [one["VpcEndpointType"] for one in endpoints] == ["Gateway", "Gateway"]
    assert made - BILLED.keys() - ELSEWHERE.keys() - FREE.keys() == set(), "give it a line, or a reason"


def test_the_footprint_counts_what_the_stacks_make(lean: dict[str, Template], tmp_path: Path) -> None:
    footprint = footprint_of(settings(tmp_path, **LEAN))
    group = the_one(lean, "AWS::AutoScaling::AutoScalingGroup")
    assert footprint.gateways.count == int(group["DesiredCapacity"])
    [node] = of_type(lean["nodes"], "AWS::EC2::LaunchTemplate").values()
    data = node["LaunchTemplateData"]
    assert footprint.gateways.instance_type == data["InstanceType"]
    assert footprint.gateways.disk_gib == data["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"]
    assert footprint.zones == count(lean, "AWS::EC2::Subnet")
    assert footprint.secrets == count(lean, "AWS::SecretsManager::Secret") + 2, (
        "the certificate and the webhook's address are the team's"
    )
    assert footprint.hosted_zones == count(lean, "AWS::Route53::HostedZone")
    watched = footprint.monitoring
    assert watched.alarms == count(lean, "AWS::CloudWatch::Alarm")
    assert watched.dashboards == count(lean, "AWS::CloudWatch::Dashboard") == 0
    assert (footprint.lease_table is not None) == (count(lean, "AWS::DynamoDB::Table") == 1)
    assert (footprint.endpoints, footprint.store, footprint.controllers) == (0, None, None)


def test_the_mailed_report_needs_neither_network_nor_endpoint(lean: dict[str, Template], script: str) -> None:
    """Its function reads the service's last snapshot from the bucket."""
    found = of_type(lean["functions"], "AWS::Lambda::Function")
    [report] = [one for one in found.values() if one["FunctionName"] == "mark-shop-report"]
    assert "VpcConfig" not in report
    variables = plain(report["Environment"]["Variables"])
    assert variables["MARK_REPORT_TABLE"] == "mark-shop-lease"
    assert not {"MARK_STORE_SECRET", "MARK_STORE_URL"} & variables.keys()
    assert "\nMARK_SNAPSHOT=1\n" in script, "and controllers write it"
    [role] = [
        one for name, one in of_type(lean["functions"], "AWS::IAM::Role").items() if name.startswith("Report")
    ]
    written = plain(role["Policies"][0]["PolicyDocument"]["Statement"])
    assert {one["Sid"] for one in written} == {"Journals", "Lease", "Logs", "Mail", "Reports"}


def test_the_probe_reaches_https_in_the_network_and_nothing_else(lean: dict[str, Template]) -> None:
    found = of_type(lean["functions"], "AWS::Lambda::Function")
    [probe] = [one for one in found.values() if one["FunctionName"] == "mark-shop-probe"]
    [(name, group)] = of_type(lean["functions"], "AWS::EC2::SecurityGroup").items()
    assert plain(probe["VpcConfig"]["SecurityGroupIds"]) == [f"<{name}.GroupId>"]
    assert [(rule["FromPort"], rule["CidrIp"]) for rule in group["SecurityGroupEgress"]] == [(443, "10.77.0.0/16")]
    assert "SecurityGroupIngress" not in group
    [role] = [
        one for name, one in of_type(lean["functions"], "AWS::IAM::Role").items() if name.startswith("Probe")
    ]
    written = plain(role["Policies"][0]["PolicyDocument"]["Statement"])
    assert {one["Sid"] for one in written} == {"Logs", "Network"}


def test_the_probe_gets_in_where_clients_are_named_that_leave_the_network_out(
    lean: dict[str, Template], others: dict[str, Template], too_large: tuple[Settings, Synthesis]
) -> None:
    assert not of_type(lean["functions"], "AWS::EC2::SecurityGroupIngress"), "the network's own range has it"
    for found, entrance in ((by_part(too_large[1]), "nodes"), (others, "balancer")):
        [(name, _)] = of_type(found["functions"], "AWS::EC2::SecurityGroup").items()
        [rule] = of_type(found["functions"], "AWS::EC2::SecurityGroupIngress").values()
        assert plain(rule["SourceSecurityGroupId"]) == f"<{name}.GroupId>"
        assert rule["GroupId"] == {"Fn::ImportValue": f"mark-shop-{entrance}-group"}
        assert (rule["FromPort"], rule["ToPort"], rule["IpProtocol"]) == (443, 443, "tcp")


@pytest.mark.parametrize(("nodes", "stay", "most"), [(1, 0, 1), (2, 2, 3)])
def test_an_update_replaces_two_nodes_one_by_one_and_a_single_one_in_place(
    nodes: int, stay: int, most: int
) -> None:
    """A new account's 5 vCPUs hold a node and an instance, and no second node beside them."""
    if lacking := what_is_missing():
        pytest.skip(lacking)
    app = App()
    stack = Stack(app, "nodes")
    size = {"min_size": str(nodes), "max_size": str(nodes), "desired_capacity": str(nodes)}
    wait_for_answers(aws_autoscaling.CfnAutoScalingGroup(stack, "Nodes", **size), nodes)
    group = app.synth().get_stack_by_name("nodes").template["Resources"]["Nodes"]
    assert group["UpdatePolicy"]["AutoScalingRollingUpdate"]["MinInstancesInService"] == stay
    assert group["Properties"]["MaxSize"] == str(most)
    assert front_machines(Settings.model_validate({"rollout": {"nodes": nodes}})).vcpus == 2 * most


def test_nobody_is_let_in_from_everywhere(lean: dict[str, Template]) -> None:
    groups = of_type(lean["launch"], "AWS::EC2::SecurityGroup")
    assert sorted(groups) == ["AgentsGroup", "NodesGroup"]
    assert [rule["FromPort"] for rule in groups["NodesGroup"]["SecurityGroupIngress"]] == [443, GRPC_PORT]
    for group in groups.values():
        for rule in group.get("SecurityGroupIngress", ()):
            assert rule.get("CidrIp") in (None, "10.77.0.0/16"), group["GroupDescription"]
    rules = of_type(lean["launch"], "AWS::EC2::SecurityGroupIngress").values()
    assert sorted((rule["FromPort"], rule["Description"]) for rule in rules) == [
        (6379, "agents"),
        (6379, "the other store"),
        (8080, "the other gateways"),
    ]


def test_a_node_may_do_what_its_processes_do_and_no_more(lean: dict[str, Template]) -> None:
    [role] = of_type(lean["nodes"], "AWS::IAM::Role").values()
    written = plain(role["Policies"][0]["PolicyDocument"]["Statement"])
    told = {
        action
        for one in written
        for action in ([one["Action"]] if isinstance(one["Action"], str) else one["Action"])
    }
    calls = [call for name in ("controller", "gateway", "node") for call in ROLES[name]]
    needed = {need.action for call in calls for need in needs(call.service, call.action)}
    starts = {
        "cloudformation:SignalResource",
        "ecr:BatchCheckLayerAvailability",
        "ecr:BatchGetImage",
        "ecr:GetAuthorizationToken",
        "ecr:GetDownloadUrlForLayer",
        "logs:CreateLogStream",
        "logs:PutLogEvents",
        "secretsmanager:GetSecretValue",
    }
    assert told == needed | starts
    [record] = [one for one in written if one["Sid"] == "Record"]
    assert record["Condition"]["ForAllValues:StringEquals"] == {
        "route53:ChangeResourceRecordSetsNormalizedRecordNames": ["shop.example.org"]
    }
    [agent] = of_type(lean["launch"], "AWS::IAM::Role").values()
    leases = [one for one in plain(agent["Policies"][0]["PolicyDocument"]["Statement"]) if one["Sid"] == "Lease"]
    assert [(one["Action"], one["Resource"]) for one in leases] == [
        (["dynamodb:GetItem"], [f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/mark-shop-lease"])
    ]


def test_a_node_starts_its_three_processes(script: str, tmp_path: Path) -> None:
    """As far as a shell can tell without running them; and the script holds no password."""
    (tmp_path / "script").write_text(script)
    done = subprocess.run(["bash", "-n", str(tmp_path / "script")], capture_output=True, text=True, check=False)  # noqa: S603, S607
    assert done.returncode == 0, done.stderr
    runs = [line for line in script.splitlines() if line.startswith("ExecStart=/usr/bin/docker run ")]
    assert [run.rpartition(" ")[2] for run in runs] == [
        "/run/mark/store.conf",
        "mark.live.processes.cloud_controller",
        "mark.live.processes.cloud_gateway",
    ]
    assert all("--read-only" in run and "--log-driver awslogs" in run for run in runs)


def made_certificate(folder: Path) -> dict[str, str]:
    """A new chain and its key, as a secret holds them."""
    folder.mkdir()
    chain, key = certificate(folder)
    return {"certificate": chain.read_text().strip(), "key": key.read_text().strip()}


def prepared(
    script: str, folder: Path, *, identity: Mapping[str, str] | None = None, runs: str = "prepare"
) -> list[str]:
    """Run what prepares a node's processes; the calls of `aws`, `docker pull` and `systemctl`.

    identity: the certificate in its secret; None: AWS does not answer.
    """
    answers = identity is not None
    for name in ("prepare", "renew"):
        text = script.partition(f"/usr/local/bin/mark-{name} <<'MARK'\n")[2].partition("MARK\n")[0]
        text = text.replace("/run/mark", f"{folder}/run").replace("/etc/pki/tls/certs", str(folder))
        text = text.replace("/usr/local/bin/mark-prepare", f"bash {folder}/prepare")
        (folder / name).write_text(text.replace("exec 2> >(tee /dev/console >&2)", ": "))
    (folder / "ca-bundle.crt").write_text("AUTHORITIES\n")
    (folder / "identity.json").write_text(json.dumps(identity))
    noted = f'echo "$*" >> {folder}/calls'
    fakes = {
        "aws": f"""{noted}; {"" if answers else "exit 1"}
case "$*" in
  *mark-shop-store-controller*) echo '{PASSWORD}' ;;
  *mark-shop-store-agent*) echo agents ;;
  *mark-shop-token*) echo token ;;
  *shop-tls*) cat {folder}/identity.json ;;
esac""",
        "docker": f"""case "$1" in
  image) test -e {folder}/pulled ;;
  pull) {noted}; {f"touch {folder}/pulled" if answers else "exit 1"} ;;
esac""",
        "chown": ":",
        "install": 'shift 3; case "$1" in -o) shift 2 ;; esac; mkdir -p "$@"',
        "systemctl": noted,
        "jq": f"{sys.executable} -c \"import json,sys; print(json.load(sys.stdin)['$2'[1:]])\"",
        "sleep": ":",
    }
    for name, body in fakes.items():
        (folder / name).write_text(f"#!/bin/bash\n{body}\n")
        (folder / name).chmod(0o755)
    (folder / "calls").write_text("")
    environment = {"PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(  # noqa: S603
        ["bash", str(folder / runs)],  # noqa: S607
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise Misconfigured(done.stderr)
    return (folder / "calls").read_text().splitlines()


def let_a_minute_pass(folder: Path) -> None:
    for kept in (folder / "run").glob("secret.*"):
        os.utime(kept, (0, 0))


def test_nodes_take_the_next_certificate_of_the_secret(script: str, tmp_path: Path) -> None:
    first, second = (made_certificate(tmp_path / name) for name in ("first", "second"))
    prepared(script, tmp_path, identity=first)
    tls = tmp_path / "run/tls"
    there = tls.stat().st_ino
    for identity in (first, None, second):
        let_a_minute_pass(tmp_path)
        prepared(
            script, tmp_path, identity=identity
        )  # one process starts again: the others would keep the old one
        restarts = [one for one in prepared(script, tmp_path, identity=identity, runs="renew") if "restart" in one]
        assert restarts == ["--no-block restart mark-store.service mark-gateway.service"] * (identity is second)
    written = {name: (tls / f"{name}.pem").read_text().strip() for name in second}
    assert written == second
    assert tls.stat().st_ino == there, "containers that run see it, too"
    let_a_minute_pass(tmp_path)
    with pytest.raises(Misconfigured, match="KEY_VALUES_MISMATCH"):
        prepared(script, tmp_path, identity={**first, "key": second["key"]}, runs="renew")
    assert {name: (tls / f"{name}.pem").read_text().strip() for name in second} == second


def test_a_process_of_a_node_starts_again_while_aws_does_not_answer(script: str, tmp_path: Path) -> None:
    first = prepared(script, tmp_path, identity=made_certificate(tmp_path / "made"))
    assert [one for one in first if one.startswith("pull")]
    run = tmp_path / "run"
    files = ("store.conf", "controller", "gateway", "tls/certificate.pem", "tls/key.pem")
    written = {name: (run / name).read_text() for name in files}
    assert prepared(script, tmp_path) == [], "what was read a moment ago is not read again"
    let_a_minute_pass(tmp_path)
    asked = prepared(script, tmp_path)
    assert asked, "a secret may have changed"
    assert all("get-secret-value" in one for one in asked), "the image is here"
    assert {name: (run / name).read_text() for name in files} == written
    assert all(kept.stat().st_mode & 0o077 == 0 for kept in run.glob("secret.*"))


def test_the_store_of_a_node_gets_password_and_certificate_of_the_secrets(script: str, tmp_path: Path) -> None:
    identity = made_certificate(tmp_path / "made")
    prepared(script, tmp_path, identity=identity)
    written = (tmp_path / "run/store.conf").read_text()
    conf = dict(line.split(" ", 1) for line in written.splitlines())
    assert (conf["masteruser"], conf["masterauth"], conf["port"]) == ("replica", PASSWORD, "0")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert int(conf["maxmemory"]) == memory // 4, "writes are refused before the kernel ends a process"
    read = {name: environment_of(tmp_path / "run" / name) for name in ("controller", "gateway")}
    assert read["controller"] == {"MARK_STORE_URL": URL}, "it needs no token"
    assert read["gateway"]["MARK_TOKEN"] == "token"
    url = urlsplit(read["gateway"]["MARK_STORE_URL"])
    assert (url.username, url.hostname, url.port) == ("gateway", "mark-shop-lease.us-east-1", 6379)
    assert url.password is not None
    assert PASSWORD not in url.password
    users = "".join(f"{line}\n" for line in written.splitlines() if line.startswith("user "))
    passwords = {"controller": PASSWORD, "node": PASSWORD, "gateway": url.password, "agent": "agents"}
    keys = Keys("shop")
    with EmbeddedRedis(tmp_path / "redis", users=users) as server:
        for user, password in passwords.items():
            link = connect(url_of(server.url, user, password))
            if user == "node":
                assert link.call("ROLE")[0] == b"master"
            else:
                assert link.call("GET", keys.of("clock")) is None
            link.close()
        link = connect(url_of(server.url, "agent", "agents"))
        with pytest.raises(RetryLater, match="no permissions"):
            link.call("GET", keys.of("spec"))
        link.close()
    assert conf["replicaof"] == "127.0.0.1 1", "it serves nobody before its controller says what it is"
    assert (tmp_path / "run/tls/key.pem").read_text() == f"{identity['key']}\n"
    assert (tmp_path / "run/tls/authorities.pem").read_text() == f"{identity['certificate']}\nAUTHORITIES\n"


def environment_of(file: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in file.read_text().splitlines())


def test_processes_of_a_node_understand_what_the_templates_say(script: str) -> None:
    file = script.partition("/etc/mark/environment <<'MARK'\n")[2].partition("MARK\n")[0]
    environment = dict(line.split("=", 1) for line in file.splitlines()) | {"MARK_STORE_URL": URL}
    made, running = deployed(environment)
    assert (made.service.gateways, made.service.controllers) == (2, 2), "one of each on a node"
    gateway = start_of(environment)
    assert (gateway.service, gateway.store, gateway.tls_key) == ("shop", URL, Path("/run/mark/tls/key.pem"))
    assert running.store == URL
    assert launches_of(resources(environment))["owner"] == "team@example.com"
    assert (environment["MARK_PORT"], environment["MARK_HOST"]) == ("443", "shop.example.org")


def test_the_stores_url_names_the_table_of_the_lease(lean: dict[str, Template]) -> None:
    one = of_type(lean["launch"], "AWS::EC2::LaunchTemplate")["TemplateMarkShopServing"]
    script = plain(one["LaunchTemplateData"]["UserData"])
    host = "mark-shop-lease.us-east-1:6379?ssl_cert_reqs=none"
    assert f"printf 'MARK_STORE_URL=rediss+lease://agent:%s@{host}\\n' \"$value\"" in script
    assert f"-e MARK_STORE_URL=rediss+lease://{host} -e MARK_SERVICE=shop " in script, "it reads the password"
    assert store_secret(StoreUser.AGENT) == AGENTS_PASSWORD
    assert "\nMARK_LEADER=metadata\n" in script
    [table] = of_type(lean["state"], "AWS::DynamoDB::Table").values()
    assert table_of(URL) == (table["TableName"], REGION)
    assert follows_lease(URL)
    assert at_node(URL, "10.0.0.1") == f"rediss://controller:{PASSWORD}@10.0.0.1:6379?ssl_cert_reqs=none"
    own = for_user(at_node(URL, "10.0.0.1"), "node")
    assert own == f"rediss://node:{PASSWORD}@10.0.0.1:6379?ssl_cert_reqs=none"
    assert for_user("redis://10.0.0.1:6379", "node") == "redis://10.0.0.1:6379", "a store without users"
    assert port_of(URL) == 6379
    assert not follows_lease("rediss://:x@store:6379")


@pytest.mark.parametrize(
    ("differs", "says"),
    [
        ({"node": {}}, r"rollout\.node\.name is missing"),
        ({"node": {"name": "shop.example.org"}}, r"rollout\.node\.certificate is missing"),
        ({"gateway": {"scheme": "internet-facing"}}, r"internet-facing needs rollout\.node\.zone"),
    ],
    ids=["no name", "no certificate", "from the internet"],
)
def test_what_the_shape_lacks_or_needs_is_said(tmp_path: Path, differs: dict[str, Any], says: str) -> None:
    with pytest.raises(Misconfigured, match=says):
        synthesise(settings(tmp_path, **LEAN | differs))


def test_an_instance_by_ipv6_has_no_public_address_and_asks_only_where_ipv6_answers(
    lean: dict[str, Template],
) -> None:
    agents = of_type(lean["launch"], "AWS::EC2::LaunchTemplate").values()
    for agent in agents:
        data = agent["LaunchTemplateData"]
        assert "SecurityGroupIds" not in data, "EC2 takes them of the interface or of the instance"
        [interface] = data["NetworkInterfaces"]
        assert (interface["AssociatePublicIpAddress"], interface["Ipv6AddressCount"]) == (False, 1)
        script = plain(data["UserData"])
        assert ".dkr-ecr." in script, "images at the registry's name that has IPv6"
        assert ".dkr.ecr." not in script
        assert "awslogs-endpoint=https://logs." in script
    [node] = of_type(lean["nodes"], "AWS::EC2::LaunchTemplate").values()
    assert "NetworkInterfaces" not in node["LaunchTemplateData"], "nodes call what has IPv4 alone"
    [route] = [
        one for one in of_type(lean["network"], "AWS::EC2::Route").values() if "DestinationIpv6CidrBlock" in one
    ]
    assert route["DestinationIpv6CidrBlock"] == "::/0"
    assert "EgressOnlyInternetGatewayId" in route, "nobody comes in"
