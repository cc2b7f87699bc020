"""Each instance's metadata service (version 2): /_imds/INSTANCE/latest/..."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Callable

from mark.emulator.clock import ServiceClock, iso
from mark.emulator.config import ACCOUNT, REGION
from mark.emulator.ec2.machine import Machine

ROLE = "emulated-instance"
TOKEN_SECONDS = 21600

Reply = tuple[int, bytes]
NOT_FOUND: Reply = (404, b"")


class Imds:
    """Instance metadata. Times follow the service's clock, as the instance's own would."""

    def __init__(self, find: Callable[[str], Machine | None], clock: ServiceClock) -> None:
        self._find = find
        self._clock = clock
        self._secret = secrets.token_urlsafe(24)

    def answer(self, method: str, path: str, headers: dict[str, str]) -> Reply:
        """The reply to a call; `path` begins with the instance's id."""
        name, _, rest = path.strip("/").partition("/")
        machine = self._find(name)
        if machine is None:
            return NOT_FOUND
        token = f"{self._secret}{machine.id}"
        if rest == "latest/api/token":
            allowed = method == "PUT" and "x-aws-ec2-metadata-token-ttl-seconds" in headers
            return (200, token.encode()) if allowed else (400, b"")
        if headers.get("x-aws-ec2-metadata-token") != token:
            return 401, b""
        text = self._read(machine, rest.rstrip("/"))
        return NOT_FOUND if text is None else (200, text.encode())

    def _read(self, machine: Machine, path: str) -> str | None:
        root, _, rest = path.removeprefix("latest/").partition("/")
        if root == "user-data":
            return base64.b64decode(machine.spec.user_data).decode() if machine.spec.user_data else None
        if root == "dynamic":
            return self._document(machine) if rest == "instance-identity/document" else None
        if root != "meta-data":
            return None
        if rest.startswith("tags/instance"):
            return self._tag(machine, rest.removeprefix("tags/instance").strip("/"))
        return self._item(machine, rest)

    def _item(self, machine: Machine, path: str) -> str | None:
        if path in ("spot/instance-action", "spot/termination-time"):
            return self._notice(machine, path)
        if path == "mark/ready-at":
            # Not on AWS: when the emulated boot is over, service time; an agent announces itself no sooner.
            return repr(machine.life.ready_at)
        if path == f"iam/security-credentials/{ROLE}":
            return self._credentials()
        items = {
            "instance-id": machine.id,
            "local-ipv4": machine.address,
            "instance-type": machine.spec.instance_type.name,
            "ami-id": machine.spec.image_id,
            "instance-life-cycle": machine.spec.market.value,
            "placement/availability-zone": machine.spec.zone,
            "placement/region": REGION,
            "iam/security-credentials": ROLE,
        }
        return items.get(path)

    def _tag(self, machine: Machine, key: str) -> str | None:
        if not machine.spec.tags_in_metadata:
            return None
        return machine.tags.get(key) if key else "\n".join(machine.tags)

    def _notice(self, machine: Machine, path: str) -> str | None:
        terminates_at = machine.life.terminates_at
        if terminates_at is None:
            return None
        # Whole seconds on AWS. Here with milliseconds: at speed 20 a second of service time is a long time.
        time = iso(terminates_at)
        return json.dumps({"action": "terminate", "time": time}) if path.endswith("action") else time

    def _document(self, machine: Machine) -> str:
        spec = machine.spec
        return json.dumps(
            {
                "accountId": ACCOUNT,
                "availabilityZone": spec.zone,
                "imageId": spec.image_id,
                "instanceId": machine.id,
                "instanceType": spec.instance_type.name,
                "privateIp": machine.address,
                "region": REGION,
                "pendingTime": iso(machine.launched_at),
            }
        )

    def _credentials(self) -> str:
        return json.dumps(
            {
                "Code": "Success",
                "Type": "AWS-HMAC",
                "AccessKeyId": "AKIAEMULATED",
                "SecretAccessKey": "emulated",
                "Token": "emulated",
                "Expiration": iso(self._clock.now() + TOKEN_SECONDS),
            }
        )
