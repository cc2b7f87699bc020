"""The four calls of AWS that a start script makes, worded as the AWS CLI has them, for a machine that lacks it.

Not every machine image has a CLI, and installing one at each first boot takes half a minute.
Python is there, as cloud-init needs it: 3.9, standard library only. The role's keys come from the metadata
service; calls are signed by Signature Version 4 (IAM user guide, "Create a signed AWS API request").
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import shutil
import sys
import time
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

METADATA = "http://169.254.169.254/latest/"
TIMEOUT_S = 30
WAITS_S = (1, 2, 4)
"""Between tries."""
JSON = "application/x-amz-json-1.1"


def call_of(words: list[str]) -> tuple[str, str, str, dict[str, str], bytes]:
    """Service, host, path, headers and body of a command."""
    service, action, *rest = words
    told = dict(zip(rest[::2], rest[1::2]))  # noqa: B905 - of Python 3.10
    region = told["--region"]
    domain = region + (".amazonaws.com.cn" if region.startswith("cn-") else ".amazonaws.com")
    if action == "cp":  # s3 cp --region REGION s3://BUCKET/KEY -
        bucket, _, key = rest[2][len("s3://") :].partition("/")
        return service, f"{bucket}.s3.{domain}", "/" + quote(key), {}, b""
    if action == "get-login-password":
        target = {"X-Amz-Target": "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken"}
        host = f"ecr.{region}.api.aws" if "--ipv6" in told else f"api.ecr.{domain}"
        return service, host, "/", {"Content-Type": JSON, **target}, b"{}"
    if action == "get-secret-value":
        target = {"X-Amz-Target": "secretsmanager.GetSecretValue"}
        body = json.dumps({"SecretId": told["--secret-id"]}).encode()
        return service, f"{service}.{domain}", "/", {"Content-Type": JSON, **target}, body
    names = {"StackName": "stack-name", "LogicalResourceId": "logical-resource-id", "UniqueId": "unique-id"}
    form = {name: told[f"--{flag}"] for name, flag in {**names, "Status": "status"}.items()}
    body = urlencode({"Action": "SignalResource", "Version": "2010-05-15", **form}).encode()
    return service, f"{service}.{domain}", "/", {"Content-Type": "application/x-www-form-urlencoded"}, body


def signed(
    call: tuple[str, str, str, dict[str, str], bytes], region: str, keys: dict[str, str], at: str
) -> dict[str, str]:
    """Headers of a call with its signature. keys: as the metadata service has them; at: 20261122T220000Z."""
    service, host, path, headers, body = call
    content = hashlib.sha256(body).hexdigest()
    headers = {**headers, "Host": host, "X-Amz-Date": at, "X-Amz-Security-Token": keys["Token"]}
    if service == "s3":
        headers["X-Amz-Content-SHA256"] = content
    lower = sorted((name.lower(), value) for name, value in headers.items())
    names = ";".join(name for name, _ in lower)
    lines = [f"{name}:{value}" for name, value in lower]
    asked = "\n".join(["POST" if body else "GET", path, "", *lines, "", names, content])
    scope = f"{at[:8]}/{region}/{service}/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", at, scope, hashlib.sha256(asked.encode()).hexdigest()])
    key = ("AWS4" + keys["SecretAccessKey"]).encode()
    for part in (*scope.split("/"), text):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    credential = f"Credential={keys['AccessKeyId']}/{scope}, SignedHeaders={names}, Signature={key.hex()}"
    return {**headers, "Authorization": f"AWS4-HMAC-SHA256 {credential}"}


def answer_of(action: str, body: bytes) -> str:
    """The answer as the CLI prints it."""
    if action == "get-secret-value":
        return str(json.loads(body)["SecretString"])
    if action == "get-login-password":
        token = json.loads(body)["authorizationData"][0]["authorizationToken"]
        return base64.b64decode(token).decode().partition(":")[2]
    return ""


def _role_keys() -> dict[str, str]:
    lives = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    asks = Request(METADATA + "api/token", method="PUT", headers=lives)  # noqa: S310 - the metadata service
    with urlopen(asks, timeout=TIMEOUT_S) as reply:  # noqa: S310 - as above
        session = {"X-aws-ec2-metadata-token": reply.read().decode()}
    path = METADATA + "meta-data/iam/security-credentials/"
    for _ in range(2):  # the role's name, then its keys
        with urlopen(Request(path, headers=session), timeout=TIMEOUT_S) as reply:  # noqa: S310 - as above
            said = reply.read().decode()
        path += said
    return dict(json.loads(said))


def main(words: list[str]) -> None:
    """Make the call and write its answer to stdout; an error ends the script that asked."""
    call = call_of(words)
    region = words[words.index("--region") + 1]
    headers = signed(call, region, _role_keys(), time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()))
    asks = Request(f"https://{call[1]}{call[2]}", data=call[4] or None, headers=headers)
    with _answered(asks, " ".join(words)) as reply:
        if words[1] == "cp":
            shutil.copyfileobj(reply, sys.stdout.buffer)
        else:
            sys.stdout.write(answer_of(words[1], reply.read()))


def _answered(asks: Request, said: str) -> Any:
    """The reply; what AWS throttles, or cannot answer now, is asked again as the CLI does."""
    for wait_s in (*WAITS_S, 0):
        try:
            return urlopen(asks, timeout=TIMEOUT_S)  # noqa: S310 - https
        except HTTPError as error:
            if wait_s == 0 or (error.code < 500 and error.code != 429):
                sys.exit(f"aws {said}: {error}: {error.read().decode(errors='replace')}")
        except URLError as error:
            if wait_s == 0:
                sys.exit(f"aws {said}: {error}")
        time.sleep(wait_s)
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
