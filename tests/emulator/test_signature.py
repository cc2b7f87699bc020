"""The key of an emulated account: who has it is answered, in every protocol, and nobody else."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from mark.emulator.errors import ApiError
from mark.emulator.signature import AccessKey, SignedRequest, check, new_key
from tests.emulator.conftest import World, config_for
from tests.waiting import PATIENCE_S

KEY = new_key()
OTHER = new_key()
CALLS: dict[str, tuple[str, Callable[[Any], object], str, str]] = {
    "ec2": ("ec2", lambda ec2: ec2.describe_instances(), "AuthFailure", "AuthFailure"),
    "query": ("sts", lambda sts: sts.get_caller_identity(), "InvalidClientTokenId", "SignatureDoesNotMatch"),
    "json": (
        "sqs",
        lambda sqs: sqs.list_queues(QueueNamePrefix="a b"),
        "UnrecognizedClientException",
        "InvalidSignatureException",
    ),
    "rest": (
        "lambda",
        lambda functions: functions.list_tags(Resource="arn:aws:lambda:us-east-1:123456789012:function:none"),
        "UnrecognizedClientException",
        "InvalidSignatureException",
    ),
    "cbor": (
        "cloudwatch",
        lambda alarms: alarms.describe_alarms(AlarmNamePrefix="x"),
        "UnrecognizedClientException",
        "InvalidSignatureException",
    ),
    "xml": ("route53", lambda names: names.list_hosted_zones(), "InvalidClientTokenId", "SignatureDoesNotMatch"),
    "s3": ("s3", lambda s3: s3.create_bucket(Bucket="bucket"), "InvalidAccessKeyId", "SignatureDoesNotMatch"),
}


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(config_for(Path(tmp_path_factory.mktemp("logs")), key=KEY))
    yield made
    made.stop()


def client(world: World, service: str, key: AccessKey) -> Any:
    factory: Any = boto3.client  # its overloads take literals alone
    return factory(
        service,
        endpoint_url=world.url,
        region_name="us-east-1",
        aws_access_key_id=key.id,
        aws_secret_access_key=key.secret,
        config=Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}),
    )


def refusal(ask: Callable[[Any], object], made: Any) -> str:
    """The code of the answer; empty where it is none, or of the service itself."""
    try:
        ask(made)
    except ClientError as error:
        code = str(error.response["Error"]["Code"])
        return "" if code == "ResourceNotFoundException" else code
    finally:
        made.close()
    return ""


@pytest.mark.parametrize("kind", CALLS)
def test_only_the_accounts_own_key_is_answered(locked: World, kind: str) -> None:
    service, ask, unknown, wrong = CALLS[kind]
    assert refusal(ask, client(locked, service, OTHER)) == unknown
    assert refusal(ask, client(locked, service, AccessKey(id=KEY.id, secret=OTHER.secret))) == wrong
    assert refusal(ask, client(locked, service, KEY)) == ""


def test_objects_with_odd_names_are_kept(locked: World) -> None:
    s3 = client(locked, "s3", KEY)
    s3.create_bucket(Bucket="odd")
    for name in ("a b/c+d=e~f", "ü/%41"):
        s3.put_object(Bucket="odd", Key=name, Body=b"x" * 10)
    assert len(s3.list_objects_v2(Bucket="odd", Prefix="")["Contents"]) == 2
    s3.close()


def test_a_call_without_a_signature_is_refused(locked: World) -> None:
    for header in ("", "AWS4-HMAC-SHA256 Credential=any/20260101/us-east-1/lambda/aws4_request"):
        asked = urllib.request.Request(  # noqa: S310 - the emulated AWS
            f"{locked.url}/2015-03-31/functions/f/invocations", data=b"{}", headers={"Authorization": header}
        )
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(asked, timeout=PATIENCE_S)  # noqa: S310 - as above


@given(
    path=st.text(alphabet="abc/-_~.%20+", max_size=20),
    query=st.lists(st.tuples(st.text(alphabet="abz", min_size=1), st.text(alphabet="a-9")), max_size=3),
    body=st.binary(max_size=50),
    service=st.sampled_from(["s3", "sqs", "lambda"]),
    changed=st.sampled_from(["", "body", "query", "method", "header"]),
)
def test_a_request_counts_as_it_was_signed_and_no_other(
    path: str, query: list[tuple[str, str]], body: bytes, service: str, changed: str
) -> None:
    text = "&".join(f"{name}={value}" for name, value in query)
    clean = "/" + path.lstrip("/").replace("//", "/").replace("/.", "/").replace("%", "%25")
    url = f"http://127.0.0.1:1{clean}{'?' + text if text else ''}"
    request = AWSRequest(method="POST", url=url, data=body, headers={"x-amz-meta": "a  b"})
    signer = S3SigV4Auth if service == "s3" else SigV4Auth
    signer(Credentials(KEY.id, KEY.secret), service, "us-east-1").add_auth(request)
    headers = {"host": "127.0.0.1:1"} | {name.lower(): value for name, value in request.headers.items()}
    if changed == "header":
        headers["x-amz-meta"] = "c"
    sent = SignedRequest(
        method="PUT" if changed == "method" else "POST",
        path=clean,
        query=text + ("&new=1" if changed == "query" else ""),
        headers=tuple(headers.items()),
        body=body + (b"!" if changed == "body" else b""),
    )
    if changed:
        with pytest.raises(ApiError, match="does not match"):
            check(KEY, sent)
    else:
        check(KEY, sent)
