"""SES, version 2: identities, an account in or out of the sandbox, and an outbox instead of the world's inboxes.

As on AWS a sender must be a verified identity (an address, or its domain), and in the sandbox, where every account
begins, every recipient too. An identity is verified when its owner follows a link: here `POST /_mark/mail`.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import secrets
from dataclasses import asdict, dataclass
from email import message_from_bytes
from email.utils import getaddresses, parseaddr
from typing import Any
from urllib.parse import unquote

from mark.emulator.authorization.accesses import MailIdentity
from mark.emulator.clock import ServiceClock
from mark.emulator.config import REGION
from mark.emulator.errors import ApiError, not_emulated

MOST_RECIPIENTS = 50
MOST_BYTES = 40 * 1024 * 1024
"""A raw message's limit."""
MOST_SENT = 100
"""Mails of the outbox; older ones are forgotten."""
IDENTITY = re.compile(r"/v2/email/identities/([^/]+)")
SANDBOX_A_DAY, PRODUCTION_A_DAY = 200.0, 50_000.0
DAY_S = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A mail that was accepted, at an instant of the service's clock."""

    id: str
    at: float
    sender: str
    to: tuple[str, ...]
    raw: str


class Ses:
    """Answers what a service, and who sets it up, asks of SES."""

    def __init__(self, clock: ServiceClock) -> None:
        self._clock = clock
        self._sandbox = True
        self._verified: dict[str, bool] = {}
        self._configuration_sets: dict[str, str] = {}
        self._sent: list[Sent] = []

    def answer(self, method: str, path: str, body: bytes) -> dict[str, Any]:
        """The document of one call; ApiError where SES refuses or this does not do it."""
        if not path.startswith("/v2/"):
            raise not_emulated("version 1 of SES")
        request = json.loads(body) if body else {}
        if (method, path) == ("POST", "/v2/email/outbound-emails"):
            return self._send(request)
        if (method, path) == ("GET", "/v2/email/account"):
            return self._account()
        if (method, path) == ("POST", "/v2/email/identities"):
            return self._create(str(request["EmailIdentity"]), request.get("ConfigurationSetName", ""))
        found = IDENTITY.fullmatch(path)
        if found and method in {"GET", "DELETE"}:
            return self._identity(unquote(found[1]), delete=method == "DELETE")
        raise not_emulated(f"SES's {method} {path}")

    def identity_of(self, address: str) -> MailIdentity | None:
        """The identity that an address is, or else its domain; None where SES knows neither."""
        found = next((one for one in (address, address.rpartition("@")[2]) if one in self._verified), None)
        if found is None:
            return None
        return MailIdentity(name=found, configuration_set=self._configuration_sets.get(found, ""))

    def control(self, request: dict[str, Any]) -> dict[str, Any]:
        """Verify identities, leave the sandbox; what the outbox holds."""
        unknown = request.keys() - {"verify", "sandbox"}
        if unknown:
            raise ApiError("ValidationException", f"unknown field {', '.join(sorted(unknown))}")
        self._verified |= dict.fromkeys(request.get("verify", ()), True)
        self._sandbox = bool(request.get("sandbox", self._sandbox))
        return {
            "sandbox": self._sandbox,
            "identities": dict(self._verified),
            "sent": [asdict(sent) for sent in self._sent],
        }

    def _account(self) -> dict[str, Any]:
        since = self._clock.now() - DAY_S
        return {
            "ProductionAccessEnabled": not self._sandbox,
            "SendingEnabled": True,
            "EnforcementStatus": "HEALTHY",
            "SendQuota": {
                "Max24HourSend": SANDBOX_A_DAY if self._sandbox else PRODUCTION_A_DAY,
                "MaxSendRate": 1.0 if self._sandbox else 14.0,
                "SentLast24Hours": float(sum(len(sent.to) for sent in self._sent if sent.at >= since)),
            },
        }

    def _create(self, identity: str, configuration_set: str) -> dict[str, Any]:
        if identity in self._verified:
            raise ApiError("AlreadyExistsException", f"Email identity {identity} already exist.")
        self._verified[identity] = False
        self._configuration_sets[identity] = configuration_set
        return self._shown(identity)

    def _identity(self, identity: str, *, delete: bool) -> dict[str, Any]:
        if identity not in self._verified:
            raise ApiError("NotFoundException", f"Email identity {identity} does not exist.", 404)
        if delete:
            del self._verified[identity]
            return {}
        return self._shown(identity)

    def _shown(self, identity: str) -> dict[str, Any]:
        verified = self._verified[identity]
        return {
            "IdentityType": "EMAIL_ADDRESS" if "@" in identity else "DOMAIN",
            "ConfigurationSetName": self._configuration_sets.get(identity) or None,
            "VerifiedForSendingStatus": verified,
            "VerificationStatus": "SUCCESS" if verified else "PENDING",
        }

    def _send(self, request: dict[str, Any]) -> dict[str, Any]:
        unknown = request.keys() - {"FromEmailAddress", "Destination", "Content"}
        if unknown or request.get("Content", {}).keys() != {"Raw"}:
            raise not_emulated("SendEmail but for a raw message, its sender and its destination")
        raw = _raw(request["Content"]["Raw"]["Data"])
        message = message_from_bytes(raw)
        sender = parseaddr(str(request.get("FromEmailAddress") or message["From"] or ""))[1]
        named = [address for addresses in request.get("Destination", {}).values() for address in addresses]
        recipients = named or [value for name in ("To", "Cc", "Bcc") for value in message.get_all(name, ())]
        to = tuple(address for _, address in getaddresses(recipients))
        if not sender or not to or len(to) > MOST_RECIPIENTS:
            raise ApiError("BadRequestException", f"a sender and 1 to {MOST_RECIPIENTS} recipients, not {len(to)}")
        failed = [who for who in (sender, *(to if self._sandbox else ())) if not self._is_verified(who)]
        if failed:
            who = ", ".join(dict.fromkeys(failed))
            text = "Email address is not verified. The following identities failed the check in region"
            raise ApiError("MessageRejected", f"{text} {REGION.upper()}: {who}")
        name = secrets.token_hex(16)
        sent = Sent(id=name, at=self._clock.now(), sender=sender, to=to, raw=raw.decode("utf-8", "replace"))
        self._sent = [*self._sent, sent][-MOST_SENT:]
        return {"MessageId": name}

    def _is_verified(self, address: str) -> bool:
        return self._verified.get(address, False) or self._verified.get(address.rpartition("@")[2], False)


def _raw(data: str) -> bytes:
    try:
        raw = base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise ApiError("BadRequestException", f"the raw message is not base64: {error}") from error
    if not raw or len(raw) > MOST_BYTES:
        raise ApiError("BadRequestException", f"a raw message has 1 to {MOST_BYTES} bytes, not {len(raw)}")
    return raw
