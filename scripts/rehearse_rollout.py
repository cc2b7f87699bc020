"""A rollout from nothing to nothing on ministack: `python -m scripts.rehearse_rollout`, about three minutes.

Deploy, diff (empty), an update of one setting, an update that fails and is taken back, a deploy that is killed and
one beside another, destroy with an instance still running. Each step says what it found; the first that is not as
it should be ends it with status 1. What the service does when it runs is rehearsed elsewhere: by the live service.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import boto3
import yaml

from mark.aws.functions import pack
from scripts import ministack

HOUSE = Path(__file__).parents[1]
SERVICE = "rehearsal"
FUNCTION, ALIAS = f"mark-{SERVICE}-inception-v3", "live"
"""An alias that somebody made by hand: the stack that wants to make it fails."""
LIMIT_S = 300
MARK = "from mark.app.cli import main; main()"
CONFIG: dict[str, Any] = {
    "service": {"name": SERVICE, "serve": [{"model": "inception-v3"}]},
    "rollout": {
        "owner": "team@example.com",
        "image": f"{ministack.ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com/mark:1",
        "certificate": f"arn:aws:acm:us-east-1:{ministack.ACCOUNT}:certificate/0000",
        "machines": [
            {"ami": "ami-0123456789abcdef0"},  # ministack publishes no images of its own
            {"architecture": "arm64", "ami": "ami-0123456789abcdef1"},
        ],
        "functions": {"bundles": "bundles"},
        "alarms": {"to": ["team@example.com"], "max_usd_per_hour": 5},
    },
}


class Failed(Exception):
    """A step did not end as it should."""


class Rehearsal:
    """A folder with settings and bundles, an AWS to roll out to, and the commands run in it."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder, self._environment = folder, {**os.environ, **environment}
        self._given = environment
        self.config = yaml.safe_load(yaml.safe_dump(CONFIG))
        bundles = folder / "bundles"
        bundles.mkdir()
        code = pack(HOUSE / "lambda_handlers")
        for name in ("infer", "interruption", "report", "warm"):
            (bundles / f"{name}.zip").write_bytes(code)

    def client(self, service: str) -> Any:
        """A boto3 client of that AWS."""
        return boto3.client(  # type: ignore[call-overload]
            service,
            endpoint_url=self._given["AWS_ENDPOINT_URL"],
            region_name=self._given["AWS_REGION"],
            aws_access_key_id=self._given["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=self._given["AWS_SECRET_ACCESS_KEY"],
        )

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command of `mark` with the settings as they are now."""
        path = self._folder / "mark.yaml"
        path.write_text(yaml.safe_dump(self.config), encoding="utf-8")
        return subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-c", MARK, *words, "--config", str(path)],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *words: str, expect: int = 0) -> str:
        """Run a command; what it said. Failed where it ends otherwise than expected."""
        process = self.start(*words)
        said, _ = process.communicate(timeout=LIMIT_S)
        if process.returncode != expect:
            raise Failed(f"mark {' '.join(words)} ended with {process.returncode}, not {expect}:\n{said}")
        return said

    def stacks(self) -> dict[str, str]:
        """The service's stacks that are there, with their status."""
        found = self.client("cloudformation").describe_stacks()["Stacks"]
        return {
            s["StackName"]: s["StackStatus"]
            for s in found
            if s["StackName"].startswith(f"mark-{SERVICE}-") and s["StackStatus"] != "DELETE_COMPLETE"
        }


def deploys_and_differs_in_nothing(there: Rehearsal) -> str:
    """The first deploy."""
    there.run("deploy", "--yes")
    there.run("diff")
    statuses = there.stacks()
    _check(set(statuses.values()) == {"CREATE_COMPLETE"}, f"all stacks stand, not {statuses}")
    _check("no difference" in there.run("deploy", "--yes"), "a second deploy has nothing to do")
    return f"{len(statuses)} stacks made; diff is empty; deploying again changes nothing"


def updates_one_setting(there: Rehearsal) -> str:
    """One alarm's threshold."""
    there.config["rollout"]["alarms"]["max_usd_per_hour"] = 6
    said = there.run("diff", expect=1)
    _check(
        "UsdPerHour0" in said and "Threshold" in said and "Burn" not in said, f"only that alarm differs: {said}"
    )
    there.run("deploy", "--yes")
    there.run("diff")
    alarms = there.client("cloudwatch").describe_alarms(AlarmNamePrefix=f"mark-{SERVICE}-usd")["MetricAlarms"]
    _check([alarm["Threshold"] for alarm in alarms] == [6.0], f"the alarm has changed: {alarms}")
    return "a threshold changed; nothing else did"


def takes_back_what_fails(there: Rehearsal) -> str:
    """Warm environments, whose alias is there already; a report by mail comes with the second try."""
    functions, stack = there.client("lambda"), f"mark-{SERVICE}-functions"
    functions.create_alias(FunctionName=FUNCTION, Name=ALIAS, FunctionVersion="$LATEST")
    there.config["rollout"]["functions"]["provisioned"] = 2
    before = there.client("cloudformation").get_template(StackName=stack)["TemplateBody"]
    said = there.run("deploy", "--yes", expect=2)
    last = said.strip().splitlines()[-1]
    _check("InferInceptionV3Live" in last and "took it back" in last, f"the failure is named: {last}")
    _check(there.stacks()[stack] == "UPDATE_ROLLBACK_COMPLETE", f"{stack} is taken back")
    after = there.client("cloudformation").get_template(StackName=stack)["TemplateBody"]
    _check(before == after, f"{stack} is as it was")
    functions.delete_alias(FunctionName=FUNCTION, Name=ALIAS)
    there.config["rollout"]["report"] = {"sender": "mark@example.com", "to": ["team@example.com"]}
    there.run("deploy", "--yes")
    there.run("diff")
    return f"taken back, and done when the cause was gone. It said: {last}"


def goes_on_after_a_kill(there: Rehearsal) -> str:
    """Killed in the middle of a change of many stacks; the next one ends it."""
    there.config["rollout"]["owner"] = "others@example.com"
    process = there.start("deploy", "--yes")
    _read_until(process, r"^\[2/")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    there.run("deploy", "--yes")
    there.run("diff")
    return "killed at the second stack; deploying again did the rest"


def refuses_two_at_once(there: Rehearsal) -> str:
    """A second deploy while one is under way."""
    there.config["rollout"]["owner"] = "team@example.com"
    first = there.start("deploy", "--yes")
    _read_until(first, r"^\[1/")
    first.send_signal(signal.SIGSTOP)
    try:
        said = there.run("deploy", "--yes", expect=2).strip().splitlines()[-1]
    finally:
        first.send_signal(signal.SIGCONT)
    rest, _ = first.communicate(timeout=LIMIT_S)
    _check("is being rolled out by process" in said, f"the second is refused: {said}")
    _check(first.returncode == 0, f"the first ends well: {rest}")
    there.run("diff")
    return f"the second said: {said}"


def destroys_all_but_the_archive(there: Rehearsal) -> str:
    """With an instance running that a controller might have launched."""
    ec2 = there.client("ec2")
    tags = [{"Key": "mark:service", "Value": SERVICE}]
    started = ec2.run_instances(
        ImageId="ami-0123456789abcdef0",
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )
    instance = started["Instances"][0]["InstanceId"]
    said = there.run("destroy", "--yes")
    left = there.stacks()
    _check(list(left) == [f"mark-{SERVICE}-archive"], f"the archive alone stays, not {left}")
    [reservation] = ec2.describe_instances(InstanceIds=[instance])["Reservations"]
    state = reservation["Instances"][0]["State"]["Name"]
    _check(state in ("terminated", "shutting-down"), f"{instance} is {state}")
    _check("stays: the stack" in said and f"/mark/{SERVICE}/controller" in said, f"it says what stays: {said}")
    there.run("deploy", "--yes")
    there.run("destroy", "--yes")
    return "gone with its instance; the archive stays, and a new deploy goes on with it"


STEPS: tuple[Callable[[Rehearsal], str], ...] = (
    deploys_and_differs_in_nothing,
    updates_one_setting,
    takes_back_what_fails,
    goes_on_after_a_kill,
    refuses_two_at_once,
    destroys_all_but_the_archive,
)


def rehearse() -> None:
    """All steps; Failed where one is not as it should be."""
    with tempfile.TemporaryDirectory(prefix="mark-rehearsal-") as folder, ministack.running() as environment:
        there = Rehearsal(Path(folder), environment)
        for step in STEPS:
            began = time.monotonic()
            print(f"{step.__name__.replace('_', ' ')} ...", flush=True)
            print(f"  {step(there)} ({time.monotonic() - began:.0f} s)", flush=True)


def _read_until(process: subprocess.Popen[str], pattern: str) -> None:
    """Read what it says until a line begins so."""
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if re.search(pattern, line):
            return
    raise Failed(f"it ended before {pattern}:\n{''.join(said)}")


def _check(holds: bool, what: str) -> None:
    if not holds:
        raise Failed(f"expected: {what}")


if __name__ == "__main__":
    try:
        rehearse()
    except Failed as error:
        sys.exit(f"failed: {error}")
