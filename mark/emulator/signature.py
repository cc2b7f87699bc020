"""Signatures of calls: Signature Version 4, as the holder of the account's one key makes it.

After "Create a signed AWS API request" (AWS IAM user guide). Refusals have the code that each kind of service
answers with. Times are not looked at: both ends have one clock.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import quote

from mark.emulator.errors import ApiError

AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<id>[^/]+)/(?P<scope>(?P<date>\d+)/(?P<region>[^/]+)/(?P<service>[a-z0-9-]+)"
    r"/aws4_request), *SignedHeaders=(?P<names>[a-z0-9;-]+), *Signature=(?P<signature>[0-9a-f]{64})"
)
WORDS = "The request signature we calculated does not match the signature you provided."
HASH = re.compile(r"[0-9a-f]{64}")
UNKNOWN_KEY = {
    "ec2": ("AuthFailure", 401),
    "s3": ("InvalidAccessKeyId", 403),
    "json": ("UnrecognizedClientException", 400),
    "query": ("InvalidClientTokenId", 403),
}
WRONG_SIGNATURE = {
    "ec2": ("AuthFailure", 401),
    "s3": ("SignatureDoesNotMatch", 403),
    "json": ("InvalidSignatureException", 400),
    "query": ("SignatureDoesNotMatch", 403),
}
"""Code and status by the kind of service ("Common errors" of the API references; S3's and EC2's lists)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessKey:
    """The key of an account: who has it may do everything there."""

    id: str
    secret: str = field(repr=False)


def new_key() -> AccessKey:
    """A random key, of the form that AWS's keys have."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
    return AccessKey(id="AKIA" + "".join(secrets.choice(letters) for _ in range(16)), secret=secrets.token_hex(20))


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedRequest:
    """A request as it came: `path` and `query` still encoded, `headers` with names in lower case."""

    method: str
    path: str
    query: str
    headers: Iterable[tuple[str, str]]
    body: bytes


def check(key: AccessKey, request: SignedRequest) -> None:
    """Let a request pass that the key has signed. ApiError for any other."""
    given: dict[str, str] = {}
    for name, value in request.headers:
        plain = " ".join(value.split())
        given[name] = f"{given[name]},{plain}" if name in given else plain
    found = AUTHORIZATION.fullmatch(given.get("authorization", ""))
    if found is None:
        raise ApiError("MissingAuthenticationToken", "Request is missing Authentication Token", 403)
    kind = _kind(found["service"], request.body)
    if not hmac.compare_digest(found["id"].encode(), key.id.encode()):
        code, status = UNKNOWN_KEY[kind]
        raise ApiError(code, "The security token included in the request is invalid.", status)
    if not hmac.compare_digest(_signature(key, request, given, found), found["signature"]):
        code, status = WRONG_SIGNATURE[kind]
        raise ApiError(code, WORDS, status)


def _signature(key: AccessKey, request: SignedRequest, given: dict[str, str], found: re.Match[str]) -> str:
    is_s3 = found["service"] == "s3"
    told = given.get("x-amz-content-sha256", "")
    # S3 takes a body that is not signed, where the header says so: the header is signed
    content = told if is_s3 and told and not HASH.fullmatch(told) else hashlib.sha256(request.body).hexdigest()
    lines = [f"{name}:{given.get(name, '')}" for name in found["names"].split(";")]
    pairs = sorted(pair.partition("=")[::2] for pair in request.query.split("&") if pair)
    asked = [
        request.method,
        request.path if is_s3 else quote(request.path, safe="/~"),
        "&".join(f"{name}={value}" for name, value in pairs),
        *lines,
        "",
        found["names"],
        content,
    ]
    digest = hashlib.sha256("\n".join(asked).encode()).hexdigest()
    text = ["AWS4-HMAC-SHA256", given.get("x-amz-date", ""), found["scope"], digest]
    signing = ("AWS4" + key.secret).encode()
    for part in (found["date"], found["region"], found["service"], "aws4_request"):
        signing = hmac.digest(signing, part.encode(), "sha256")
    return hmac.digest(signing, "\n".join(text).encode(), "sha256").hex()


def _kind(service: str, body: bytes) -> str:
    if service in ("ec2", "s3"):
        return service
    return "query" if service == "route53" or body.startswith(b"Action=") else "json"
