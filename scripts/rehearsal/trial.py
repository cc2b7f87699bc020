"""Rehearsed as a stranger's first day, by docs/first-deploy.md alone, within the limits of a new account.

`mark init` -> `doctor --trial` -> `deploy --trial` -> `try` -> `report` -> `destroy`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

import yaml

from mark.emulator.ec2.account_limits import NEW_MEMORY_MB
from scripts.rehearsal.folder import RehearsalFolder, check
from scripts.rehearsal.ministack import free_port

HERE = "here.yaml"
AMI = "ami-0123456789abcdef0"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
"""Media type of an image for one processor."""
TOKEN, KEY, CERTIFICATE = "token", "key.pem", "certificate.pem"


def begins_with_a_file(there: RehearsalFolder) -> str:
    """`mark init`, and the three lines that docs/first-deploy.md names."""
    there.bare("init")
    path = there.folder / "mark.yaml"
    text = path.read_text(encoding="utf-8")
    for line in ("rollout:", "  owner: ", "  image: "):
        text = re.sub(rf"^# ({re.escape(line)})", r"\1", text, flags=re.MULTILINE)
    # ministack publishes no machine images
    text = text.replace("\nrollout:\n", f"\nrollout:\n  machines: [{{ami: {AMI}}}]\n  node: {NODE}\n")
    path.write_text(text, encoding="utf-8")
    return "the marks taken off `rollout`, `owner` and `image`"


NODE = f"{{ami: {AMI}, architecture: amd64, instance_type: t3.small}}"


def builds_what_the_deploy_asks_for(there: RehearsalFolder) -> str:
    """A deploy without bundles says what differs, and the command that builds them."""
    said = there.run("deploy", "--trial", "--yes", expect=2)
    check("service.serve: digits" in said and "rollout.nodes: 1" in said, f"what differs is said: {said}")
    found = re.search(r"`\((cd .*)\)` makes it", said)
    check(found is not None, f"the command is said: {said}")
    assert found is not None
    there.call("bash", "-c", f"{found[1]} interruption probe warm --runtime here")
    return "what differs is said; bundles of three functions"


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
    said = there.run("deploy", "--trial", "--yes")
    cost = re.search(r"About [\d.]+ USD/h now", said)
    check(cost is not None, f"what it costs is said: {said}")
    assert cost is not None
    there.run("diff", "--trial")
    functions = there.client("lambda").list_functions()["Functions"]
    names = sorted(one["FunctionName"] for one in functions)
    check(
        names == [f"mark-mark-{name}" for name in ("interruption", "probe", "warm")], f"three functions: {names}"
    )
    check(all(one["MemorySize"] <= NEW_MEMORY_MB for one in functions), f"{NEW_MEMORY_MB} MB at most: {functions}")
    return f"{len(there.stacks())} stacks. {cost[0]}"


def tries_it(there: RehearsalFolder) -> str:
    """Through the deployed function, with the deployed token.

    ministack runs no nodes. So the gateway is that of a service on this machine, whose emulated AWS has the limits
    of a new account.
    """
    token = there.client("secretsmanager").get_secret_value(SecretId="mark-mark-token")["SecretString"]
    with _up(there, token) as address:
        told = json.loads(there.run("try", "--address", address, "--json"))
        local = json.loads(_beside(there).run("try", "--json"))
        there.client("secretsmanager").put_secret_value(SecretId="mark-mark-token", SecretString="another" * 4)
        refused = there.run("try", "--address", address, expect=1)
        spent = json.loads(_beside(there).bare("report", "--since", "24h", "--policy", "none", "--json"))
    check(told["status"] == 200 and told["model"] == "digits", f"digits answered: {told}")
    check(told["through"] == "mark-mark-probe in us-east-1", f"through the function: {told}")
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
    served = {"model": "digits", "backend": {"kind": "python", "target": "models.digits:Digits"}}
    service = {
        "serve": [served],
        "port": port,
        "gateways": 1,
        "controllers": 1,
        "token_file": TOKEN,
        "tls_certificate": CERTIFICATE,
        "tls_key": KEY,
        "aws": {"account": "new"},
    }
    (there.folder / HERE).write_text(yaml.safe_dump({"service": service}), encoding="utf-8")
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
    """A deploy of the whole service with a name of its own is refused before anything is touched."""
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
    """As docs/first-deploy.md ends."""
    there.run("destroy", "--yes")
    check(list(there.stacks()) == ["mark-mark-archive"], "the archive alone stays")
    return "the archive stays"


def _errors(there: RehearsalFolder, *, expect: int) -> list[str]:
    """The checks that the doctor wants mended."""
    said = there.run("doctor", "--trial", "--json", expect=expect)
    told = json.loads(said[said.index("{\n") :].partition("\n}\n")[0] + "\n}")
    return list(dict.fromkeys(found["check"] for found in told["findings"] if found["state"] == "error"))
