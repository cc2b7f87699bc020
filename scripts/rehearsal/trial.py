"""Rehearsed as a stranger's first day, by "A trial" of docs/deploy.md alone, within the limits of a new account.

`mark init` -> `doctor --trial` -> `deploy --trial` -> `try` -> `report` -> `destroy`, in one of three regions. The
commands of `mark` are the page's own lines (`LINES`); what else the page has is not run, each for a reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

import yaml

from mark.emulator.ec2.account_limits import NEW_MEMORY_MB
from mark.live.processes.cloud_controller import deployed, live_models
from scripts.rehearsal.folder import RehearsalFolder, check
from scripts.rehearsal.ministack import ACCOUNT, HOME, free_port, recorded_zones
from scripts.rehearsal.page import console_lines, words_of
from scripts.rehearsal.region_prices import lay_instance_prices, lay_service_prices

HERE = "here.yaml"
AMI = "ami-0123456789abcdef0"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
"""Media type of an image for one processor."""
REGIONS = (HOME, "ap-northeast-1", "eu-west-1")
"""With MArk's own prices; without a zone `b`; one more that has no prices of ours."""
PAGE, SECTION = "docs/deploy.md", "A trial"
INIT, DOCTOR = "mark init", "mark doctor --trial --config mark.yaml"
DEPLOY, TRY = "mark deploy --trial --config mark.yaml", "mark try --config mark.yaml"
DESTROY, REPORT = "mark destroy --config mark.yaml", "mark report --trial --archive kept --config mark.yaml"
PRICES = "mark doctor --trial --prices prices.json --config mark.yaml"
LINES = (INIT, DOCTOR, DEPLOY, TRY, PRICES, DESTROY, REPORT)
"""The page's commands of `mark`, in their order."""
BUILDS = "python -P -m mark.infra.bundles.build interruption orphans probe warm"
NO_DOCKER = "there is no Docker here; a manifest is laid into the registry instead"
NO_CLI = "a boto3 call does the same; part `cdk` runs the AWS CLI"
NOT_RUN: Mapping[str, str] = MappingProxyType(
    {
        "ECR=123456789012.dkr.ecr.us-east-1.amazonaws.com": NO_DOCKER,
        "aws ecr create-repository --repository-name mark --region us-east-1": NO_CLI,
        (
            "aws ecr get-login-password --region us-east-1 | docker login --username AWS --password-stdin $ECR"
        ): NO_DOCKER,
        "MARK=$(python -P -c 'import mark; print(mark.__path__[0])')": "it is where the image's file lies",
        "python -P -m mark.infra.wheel": "it is for the image",
        "docker build -f $MARK/infra/image/Dockerfile --platform linux/amd64 -t $ECR/mark:1 .": NO_DOCKER,
        "docker push $ECR/mark:1": NO_DOCKER,
        "cp $MARK/catalog/data/services_us_east_1_*.json services.json": "as a reader would edit it, too",
        "aws s3 sync s3://BUCKET/journal/mark kept": NO_CLI,
        "aws ecr delete-repository --repository-name mark --region us-east-1 --force": NO_CLI,
    }
)
"""Commands of the page that are not run, and why."""
TOKEN, KEY, CERTIFICATE = "token", "key.pem", "certificate.pem"


def begins_with_a_file(there: RehearsalFolder) -> str:
    """`mark init`, and the lines that docs/deploy.md names: three, and in another region three more."""
    _page(there, INIT)
    path = there.folder / "mark.yaml"
    text = path.read_text(encoding="utf-8")
    for line in ("rollout:", "  owner: ", "  image: "):
        text = re.sub(rf"^# ({re.escape(line)})", r"\1", text, flags=re.MULTILINE)
    # ministack publishes no machine images
    text = text.replace("\nrollout:\n", f"\nrollout:\n  machines: [{{ami: {AMI}}}]\n  node: {NODE}\n")
    region = _region(there)
    path.write_text(text.replace(HOME, region), encoding="utf-8")
    if region == HOME:
        return "the marks taken off `rollout`, `owner` and `image`"
    return f"the marks taken off; {_names_its_prices(there, region)}"


def _names_its_prices(there: RehearsalFolder, region: str) -> str:
    """MArk ships the prices of one region: in another each missing file is said, and then written.

    ministack has no price list, so `region_prices` writes the files.
    """
    path = there.folder / "mark.yaml"
    said = there.run("deploy", "--trial", "--yes", expect=2).strip().splitlines()[-1]
    check(f"the prices are of {HOME}, the service is in {region}" in said, f"instances have no prices: {said}")
    listed = _page(there, PRICES, expect=1)
    check("prices renewed" in listed, f"AWS is asked for its prices: {listed}")
    lay_instance_prices(there.folder, region)
    path.write_text(f"{path.read_text(encoding='utf-8')}prices: prices.json\n", encoding="utf-8")
    said = there.run("deploy", "--trial", "--yes", expect=2).strip().splitlines()[-1]
    check(f"nothing says what AWS's services cost in {region}" in said, f"services have no prices: {said}")
    lay_service_prices(there.folder, region)
    path.write_text(f"{path.read_text(encoding='utf-8')}service_prices: services.json\n", encoding="utf-8")
    return "the two files of prices are asked for by name"


NODE = f"{{ami: {AMI}, architecture: amd64, instance_type: t3.small}}"


def builds_what_the_deploy_asks_for(there: RehearsalFolder) -> str:
    """A deploy without bundles says what differs, and the command that builds them."""
    said = _page(there, DEPLOY, "--yes", expect=2)
    check("service.serve: digits" in said and "rollout.nodes: 1" in said, f"what differs is said: {said}")
    found = re.search(r"`(\S+ -P -m mark\.infra\.bundles\.build .*?)` makes it", said)
    check(found is not None, f"the command is said: {said}")
    assert found is not None
    there.call("bash", "-c", f"{found[1]} interruption orphans probe warm --runtime here")
    return "what differs is said; bundles of four functions"


def asks_the_doctor(there: RehearsalFolder) -> str:
    """The image alone is missing: nothing of mail, certificate or a second processor."""
    first = _errors(there, expect=1)
    check(first == ["image"], f"the image is missing and nothing else: {first}")
    images = there.client("ecr")
    images.create_repository(repositoryName="mark")
    manifest = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "layers": []})
    images.put_image(repositoryName="mark", imageManifest=manifest, imageManifestMediaType=MANIFEST, imageTag="1")
    left = _errors(there, expect=0)
    check(not left, f"nothing is missing any more: {left}")
    return "to mend: image; afterwards nothing"


def deploys(there: RehearsalFolder) -> str:
    """The service stands, and could in a new account: ministack has no such limits, so they are compared here."""
    said = _page(there, DEPLOY, "--yes")
    cost = re.search(r"A day costs about [\d.]+ USD", said)
    check(cost is not None, f"what it costs is said: {said}")
    assert cost is not None
    there.run("diff", "--trial")
    functions = there.client("lambda").list_functions()["Functions"]
    names = sorted(one["FunctionName"] for one in functions)
    check(
        names == [f"mark-mark-{name}" for name in ("interruption", "orphans", "probe", "warm")],
        f"four functions: {names}",
    )
    check(all(one["MemorySize"] <= NEW_MEMORY_MB for one in functions), f"{NEW_MEMORY_MB} MB at most: {functions}")
    subnets = there.client("ec2").describe_subnets(Filters=[{"Name": "tag:mark:service", "Values": ["mark"]}])
    stands = sorted(one["AvailabilityZone"] for one in subnets["Subnets"])
    check(stands == list(recorded_zones(_region(there))[:2]), f"in the account's first zones: {stands}")
    _its_node_can_begin(there)
    return f"{len(there.stacks())} stacks in {' and '.join(stands)}. {cost[0]}"


def _its_node_can_begin(there: RehearsalFolder) -> None:
    """With what its start script says, and no file of this machine."""
    script = there.node_script("mark-mark-nodes")
    told = re.findall(r"^(MARK_SETTINGS|MARK_FILES)=(.*)$", script, re.MULTILINE)
    check(str(there.folder) not in script, "no folder of this machine is in the start script")
    settings, _ = deployed({**dict(told), "MARK_STORE_URL": "rediss+lease://x"})
    [model] = live_models(settings, "")
    check(model.prices.region == _region(there), f"it plans with the region's prices: {model.prices.region}")


def tries_it(there: RehearsalFolder) -> str:
    """Through the deployed function, with the deployed token.

    ministack runs no nodes. So the gateway is that of a service on this machine, whose emulated AWS has the limits
    of a new account.
    """
    token = there.client("secretsmanager").get_secret_value(SecretId="mark-mark-token")["SecretString"]
    with _up(there, token) as address:
        told = there.document(*_words(TRY), "--address", address)
        local = _beside(there).document("try", "--config", "mark.yaml")
        there.client("secretsmanager").put_secret_value(SecretId="mark-mark-token", SecretString="another" * 4)
        refused = there.run("try", "--address", address, expect=1)
        spent = _beside(there).document("report", "--since", "24h", "--policy", "none")
    check(told["status"] == 200 and told["model"] == "digits", f"digits answered: {told}")
    check(told["through"] == f"mark-mark-probe in {_region(there)}", f"through the function: {told}")
    check(told["answer"]["outputs"] == local["answer"]["outputs"], "the same answer as from here")
    check("answered with status 401" in refused, f"another token is refused: {refused}")
    return (
        f"{told['model']} on {told['served_by']} in {told['latency_ms']:.0f} ms, {told['total_ms']:.0f} ms "
        f"through {told['through']}; {spent['cost_usd']['total']:.4f} USD, says `mark report`"
    )


@contextmanager
def _up(there: RehearsalFolder, token: str) -> Iterator[str]:
    """A service with that token and a certificate of its own on this machine; its address."""
    beside, port = _beside(there), free_port()
    (there.folder / TOKEN).write_text(token, encoding="ascii")
    (there.folder / TOKEN).chmod(0o600)
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=x", "-days", "2")
    there.call("openssl", "req", "-x509", *curve, "-keyout", KEY, "-out", CERTIFICATE)
    backend = {"kind": "python", "target": "mark.models.digits:Digits"}
    offerings = {"overflow": False, "types": ["t3.small"]}
    served = {"model": "digits", "backend": backend, "offerings": offerings}  # as the trial serves it
    service = {
        "serve": [served],
        "port": port,
        "gateways": 1,
        "controllers": 1,
        "token_file": TOKEN,
        "tls_certificate": CERTIFICATE,
        "tls_key": KEY,
        "aws": {"account": "free"},
    }
    (there.folder / HERE).write_text(
        yaml.safe_dump({"service": service, "rollout": {"nodes": 1}}), encoding="utf-8"
    )
    beside.bare("up", "--detach", "--config", HERE)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        beside.bare("down")


def _beside(there: RehearsalFolder) -> RehearsalFolder:
    """The same folder, for commands that see the service on this machine."""
    beside = RehearsalFolder(there.folder, there.aws, service=there.service)
    beside.environment["MARK_STATE"] = str(there.folder / "beside")
    return beside


def goes_over_or_says_why_not(there: RehearsalFolder) -> str:
    """A deploy of the whole service with a name of its own is refused before anything is touched.

    It is the same everywhere, so one region tells.
    """
    if _region(there) != HOME:
        return "left out here"
    path = there.folder / "mark.yaml"
    trial = path.read_text(encoding="utf-8")
    node = NODE.replace("{", "{name: api.example.com, self_signed: true, ")
    whole = re.sub(r"\n    - model: resnet-50.*?(?=\n    - model: digits)", "", trial, flags=re.DOTALL)
    whole = whole.replace(NODE, node).replace("# offerings: {overflow", "offerings: {overflow")
    path.write_text(whole, encoding="utf-8")
    said = there.run("deploy", "--yes", expect=2)
    check("mark destroy" in said and "api.example.com" in said, f"it says to destroy first: {said}")
    path.write_text(whole.replace("api.example.com", "mark.mark.internal"), encoding="utf-8")
    there.run("deploy", "--yes")
    path.write_text(trial, encoding="utf-8")
    return "another name is refused; with the trial's own the whole service follows in place"


def removes_it_all(there: RehearsalFolder) -> str:
    """As docs/deploy.md ends."""
    _page(there, DESTROY, "--yes")
    check(list(there.stacks()) == ["mark-mark-archive"], "the archive alone stays")
    left = [what for what in _standing(there) if "archive" not in what]
    check(not left, f"nothing else of the service is left: {left}")
    (there.folder / "kept").mkdir()
    said = _page(there, REPORT, expect=2)
    check("kept holds no figures of digits" in said, f"a trial of less than an hour leaves no report: {said}")
    return "the archive stays, and nothing else; it has no full hour to report"


def _standing(there: RehearsalFolder) -> Iterator[str]:
    """What bears the service's name in the account, beside stacks, logs and images."""
    of = there.client
    yield from (f"function {one['FunctionName']}" for one in of("lambda").list_functions()["Functions"])
    yield from (f"queue {one}" for one in of("sqs").list_queues().get("QueueUrls", ()))
    yield from (f"secret {one['Name']}" for one in of("secretsmanager").list_secrets()["SecretList"])
    yield from (f"table {one}" for one in of("dynamodb").list_tables()["TableNames"])
    yield from (f"zone {one['Name']}" for one in of("route53").list_hosted_zones()["HostedZones"])
    yield from (f"alarm {one['AlarmName']}" for one in of("cloudwatch").describe_alarms()["MetricAlarms"])
    yield from (f"rule {one['Name']}" for one in of("events").list_rules()["Rules"])
    yield from (
        f"role {one['RoleName']}" for one in of("iam").list_roles()["Roles"] if one["RoleName"].startswith("mark")
    )
    ec2 = of("ec2")
    templates = ec2.describe_launch_templates()["LaunchTemplates"]
    yield from (f"launch template {one['LaunchTemplateName']}" for one in templates)
    tagged = [{"Name": "tag:mark:service", "Values": [there.service]}]
    yield from (f"network {one['VpcId']}" for one in ec2.describe_vpcs(Filters=tagged)["Vpcs"])
    yield from (f"volume {one['VolumeId']}" for one in ec2.describe_volumes(Filters=tagged)["Volumes"])
    instances = (i for one in ec2.describe_instances(Filters=tagged)["Reservations"] for i in one["Instances"])
    yield from (f"instance {one['InstanceId']}" for one in instances if one["State"]["Name"] != "terminated")
    yield from (f"budget {one['BudgetName']}" for one in _budgets(there))


def _budgets(there: RehearsalFolder) -> list[dict[str, str]]:
    found: list[dict[str, str]] = there.client("budgets").describe_budgets(AccountId=ACCOUNT).get("Budgets", [])
    return found


def _errors(there: RehearsalFolder, *, expect: int) -> list[str]:
    """The checks that the doctor wants mended."""
    told = there.document(*_words(DOCTOR), expect=expect)
    return list(dict.fromkeys(found["check"] for found in told["findings"] if found["state"] == "error"))


def _page(there: RehearsalFolder, line: str, *more: str, expect: int = 0) -> str:
    """Run a line of the page, with words that only a rehearsal needs; what it said."""
    return there.bare(*_words(line), *more, expect=expect)


def _words(line: str) -> tuple[str, ...]:
    assert line in console_lines(PAGE, SECTION), line
    return words_of(line)


def _region(there: RehearsalFolder) -> str:
    return there.aws["AWS_REGION"]
