"""Rehearsed as a newcomer: from `mark init` in an empty folder to the first report, by docs/deploy.md alone."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import yaml

from mark.aws.archive import snapshot_key
from mark.store.connect import connect
from mark.store.embedded import EmbeddedRedis
from mark.store.service import ServiceStore
from mark.store.snapshot import take_snapshot
from scripts.rehearsal.folder import Failed, RehearsalFolder, check
from scripts.rehearsal.ministack import free_port

SENDER = "mark@example.com"
BUNDLES_S, EVENT_S, DEAD_S, MAIL_S = 30.0, 60.0, 90.0, 150.0
HERE = "here.yaml"
AMI = "ami-0123456789abcdef0"
INDEX = "application/vnd.oci.image.index.v1+json"
"""Media type of an image for several processors."""
REPORT = ("report", "--since", "24h", "--policy", "none", "--config", HERE)
NOTICE = {
    "version": "0",
    "id": "1e5527d7-bb36-4607-3370-4164db56a40e",
    "detail-type": "EC2 Spot Instance Interruption Warning",
    "source": "aws.ec2",
    "account": "123456789012",
    "region": "us-east-1",
    "resources": ["arn:aws:ec2:us-east-1a:instance/i-0b662ef9931388ba0"],
    "detail": {"instance-id": "i-0b662ef9931388ba0", "instance-action": "terminate"},
}
"""As EventBridge's guide has it; it takes no event of `aws.ec2` from anybody but AWS, so this is put behind it."""


def begins_with_a_file(there: RehearsalFolder) -> str:
    """`mark init`, the keys that docs/deploy.md names, and the emulated model taken out."""
    there.bare("init")
    path = there.folder / "mark.yaml"
    text = re.sub(r"^# (rollout:)$", r"\1", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    text = re.sub(r"^#   (\w+: )", r"  \1", text, flags=re.MULTILINE)
    text = text.replace("# offerings:", "offerings:").replace(
        f"sender: {SENDER}, ", f'sender: {SENDER}, schedule: "rate(1 minute)", '
    )
    text = re.sub(
        r"\n    # A model whose latency is emulated.*?(?=\n    # A model in torch)", "", text, flags=re.DOTALL
    )
    # ministack publishes no machine images, and every one that it does not know is x86's
    text = text.replace("rollout:\n", f"rollout:\n  machines: [{{ami: {AMI}}}]\n")
    root = {"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 30}}
    graviton = there.client("ec2").register_image(
        Name="graviton", Architecture="arm64", RootDeviceName="/dev/xvda", BlockDeviceMappings=[root]
    )
    text = text.replace("node: {", f"node: {{ami: {graviton['ImageId']}, ")
    path.write_text(text, encoding="utf-8")
    return "the marks taken off `rollout`, and a schedule of each minute"


def builds_what_the_deploy_asks_for(there: RehearsalFolder) -> str:
    """A deploy without bundles says the exact command; they are built for the Python that ministack runs."""
    said = there.run("deploy", "--yes", expect=2)
    found = re.search(r"`(\S+ -P -m mark\.infra\.bundles\.build .*?)` makes it", said)
    check(found is not None, f"the command is said: {said}")
    assert found is not None
    built = there.call("bash", "-c", f"{found[1]} --runtime here")
    sizes = ", ".join(re.findall(r"(\w+)\.zip +([\d.]+ MiB)", built)[0])
    return f"{len(built.splitlines())} bundles, {sizes} the first"


def asks_the_doctor(there: RehearsalFolder) -> str:
    """Before anything is mended, and after."""
    first = _findings(there)
    check({"image", "sender"} <= set(first), f"image and sender are missing, of {first}")
    images = there.client("ecr")
    images.create_repository(repositoryName="mark")
    manifest = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": []})
    images.put_image(repositoryName="mark", imageManifest=manifest, imageManifestMediaType=INDEX, imageTag="1")
    there.client("sesv2").create_email_identity(EmailIdentity=SENDER)
    left = _findings(there, expect=0)
    check(not left, f"nothing is missing any more: {left}")
    return f"to mend: {', '.join(first)}; afterwards nothing"


def deploys(there: RehearsalFolder) -> str:
    """The service stands."""
    there.run("deploy", "--yes")
    there.run("diff")
    return f"{len(there.stacks())} stacks, with the bundles' own code"


def hears_of_an_interruption(there: RehearsalFolder) -> str:
    """Queue `raw` -> the deployed function -> queue `events`, as the controllers' words."""
    queues, began = there.client("sqs"), time.monotonic()
    notice = {**NOTICE, "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
    queues.send_message(QueueUrl=_queue(there, "raw"), MessageBody=json.dumps(notice))
    [message] = _until(
        lambda: queues.receive_message(QueueUrl=_queue(there, "events")).get("Messages"), EVENT_S, "a word"
    )
    word = json.loads(message["Body"])
    check(word["kind"] == "spot-warned" and word["instance"] == "i-0b662ef9931388ba0", f"the notice, not {word}")
    return f"{word['kind']} of {word['instance']} after {time.monotonic() - began:.1f} s, cold"


def keeps_what_nobody_can_read(there: RehearsalFolder) -> str:
    """After five attempts it is a dead letter; only the pause between them is made shorter here."""
    queues, raw = there.client("sqs"), _queue(there, "raw")
    kept = queues.get_queue_attributes(QueueUrl=raw, AttributeNames=["VisibilityTimeout"])["Attributes"]
    queues.set_queue_attributes(QueueUrl=raw, Attributes={"VisibilityTimeout": "1"})
    queues.send_message(QueueUrl=raw, MessageBody="no JSON at all")
    dead = _queue(there, "raw-dead")
    [message] = _until(lambda: queues.receive_message(QueueUrl=dead).get("Messages"), DEAD_S, "a dead letter")
    queues.set_queue_attributes(QueueUrl=raw, Attributes=kept)
    check(message["Body"] == "no JSON at all", f"the very message, not {message}")
    words = queues.receive_message(QueueUrl=_queue(there, "events")).get("Messages")
    check(not words, f"nothing of it reached the controllers: {words}")
    return "in raw-dead after five attempts; nothing in events"


def gets_its_first_report(there: RehearsalFolder) -> str:
    """By Scheduler, and once more for the very period that `mark report` tells of.

    ministack runs no nodes, so the service runs on this machine; its snapshot is put where a node would put it.
    """
    port = free_port()
    with EmbeddedRedis(there.folder / "store", options={"port": str(port), "bind": "127.0.0.1"}):
        url = f"redis://127.0.0.1:{port}"
        answered = _serves_for_a_while(there, url)
        told = there.document(*REPORT)
        snapshot = take_snapshot(ServiceStore(connect(url), there.service), max(time.time(), float(told["until"])))
        there.client("s3").put_object(Bucket=_bucket(there), Key=snapshot_key(there.service), Body=snapshot)
        first = _until(lambda: _mails(there), MAIL_S, "the scheduled mail")[0]
        check(first["To"] == ["team@example.com"], f"it is for the team: {first['To']}")
        mailed = _mail_of(there, float(told["until"]))
    total = f"{told['cost_usd']['total']:.4f}"
    check(f"Spent: {total} USD" in mailed["BodyText"], f"{total} USD, as told: {mailed['BodyText'][:300]}")
    return f"{answered}. By Scheduler: {first['Subject']}. For the same period: {total} USD, as `mark report` says"


def _serves_for_a_while(there: RehearsalFolder, url: str) -> str:
    """A small service of the same name on this machine."""
    served = {"model": "inception-v3", "expected_rps": 20}
    service = {"name": there.service, "store": url, "gateways": 1, "controllers": 1, "serve": [served]}
    (there.folder / HERE).write_text(yaml.safe_dump({"market": "spot", "service": service}), encoding="utf-8")
    there.bare("up", "--detach", "--config", HERE)
    try:
        said = there.bare("load", "--model", "inception-v3", "--rate", "20", "--duration", "10")
    finally:
        there.bare("down")
    return said.strip().splitlines()[0]


def _mail_of(there: RehearsalFolder, until: float) -> Any:
    """Call the deployed function for the period up to an instant; the mail that it sent."""
    moment = datetime.fromtimestamp(until, UTC).isoformat()
    event = {"resources": ["by hand"], "time": moment}
    done = there.client("lambda").invoke(FunctionName="mark-mark-report", Payload=json.dumps(event))
    said = json.loads(done["Payload"].read())
    if "message" not in said:
        raise Failed(f"the report function answers {said}")
    return next(mail for mail in _mails(there) if mail["MessageId"].startswith(said["message"].partition("@")[0]))


def _mails(there: RehearsalFolder) -> list[Any]:
    """The mails in ministack's outbox."""
    outbox = f"{there.aws['AWS_ENDPOINT_URL']}/_ministack/ses/messages"
    with urllib.request.urlopen(outbox, timeout=10) as reply:  # noqa: S310 - our own server
        messages: dict[str, list[Any]] = json.loads(reply.read())["messages"]
    return [mail for account in messages.values() for mail in account]


def removes_it_all(there: RehearsalFolder) -> str:
    """As docs/deploy.md ends."""
    there.run("destroy", "--yes")
    check(list(there.stacks()) == ["mark-mark-archive"], "the archive alone stays")
    return "the archive stays"


def _findings(there: RehearsalFolder, *, expect: int = 1) -> list[str]:
    """The checks that the doctor wants mended."""
    told = there.document("doctor", "--config", "mark.yaml", expect=expect)
    return list(dict.fromkeys(found["check"] for found in told["findings"] if found["state"] == "error"))


def _bucket(there: RehearsalFolder) -> str:
    found = there.client("cloudformation").list_exports()["Exports"]
    return next(str(one["Value"]) for one in found if one["Name"] == f"mark-{there.service}-bucket")


def _queue(there: RehearsalFolder, part: str) -> str:
    found = there.client("sqs").get_queue_url(QueueName=f"mark-mark-{part}")
    return str(found["QueueUrl"])


def _until(look: Callable[[], Any], limit_s: float, what: str) -> Any:
    """The first finding of a repeated look."""
    until = time.monotonic() + limit_s
    while not (found := look()):
        if time.monotonic() > until:
            raise Failed(f"{what} did not come within {limit_s:g} s")
        time.sleep(0.5)
    return found
