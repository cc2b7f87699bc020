"""Rehearsed with `mark deploy`: an update, one that fails, a rollout that is killed, two at once, and the end."""

from __future__ import annotations

import signal
from typing import Any

from scripts.rehearsal.folder import LIMIT_S, RehearsalFolder, check, read_until
from scripts.rehearsal.settings import ALIAS, FUNCTION, SERVICE


def deploys_and_differs_in_nothing(there: RehearsalFolder) -> str:
    """The first deploy."""
    there.run("deploy", "--yes")
    there.run("diff")
    statuses = there.stacks()
    check(set(statuses.values()) == {"CREATE_COMPLETE"}, f"all stacks stand, not {statuses}")
    check("no difference" in there.run("deploy", "--yes"), "a second deploy has nothing to do")
    return f"{len(statuses)} stacks made; diff is empty; deploying again changes nothing"


def updates_one_setting(there: RehearsalFolder) -> str:
    """One alarm's threshold."""
    _rollout(there)["alarms"]["max_usd_per_hour"] = 6
    said = there.run("diff", expect=1)
    check("UsdPerHour" in said and "Threshold" in said and "Burn" not in said, f"only that alarm differs: {said}")
    there.run("deploy", "--yes")
    there.run("diff")
    alarms = there.client("cloudwatch").describe_alarms(AlarmNamePrefix=f"mark-{SERVICE}-usd")["MetricAlarms"]
    check([alarm["Threshold"] for alarm in alarms] == [6.0], f"the alarm has changed: {alarms}")
    return "a threshold changed; nothing else did"


def replaces_the_stores_passwords(there: RehearsalFolder) -> str:
    """Twice: what counted at first is gone then; each URL has the newest password."""
    secrets, read = there.client("secretsmanager"), dict[int, str]()

    def value(name: str) -> str:
        return str(secrets.get_secret_value(SecretId=f"mark-{SERVICE}-{name}")["SecretString"])

    read[1] = value("password-agent")
    for number in (2, 3):
        _rollout(there)["store"] = {"passwords": number}
        there.run("deploy", "--yes")
        there.run("diff")
        read[number] = value(f"password-agent-{number}")
        check(f":{read[number]}@" in value("store-agent"), "agents that start read the newest password")
    listed = [one["Name"] for one in secrets.list_secrets()["SecretList"]]
    left = sorted(name.partition("password-")[2] for name in listed if "password-agent" in name)
    check(len(set(read.values())) == 3, "each is another one")
    check(left == ["agent-2", "agent-3"], f"the last two are there: {left}")
    return "the store's passwords replaced twice by deploys; the first ones are gone"


def takes_back_what_fails(there: RehearsalFolder) -> str:
    """Warm environments, whose alias is there already; a report by mail comes with the second try."""
    functions, stack = there.client("lambda"), f"mark-{SERVICE}-functions"
    functions.create_alias(FunctionName=FUNCTION, Name=ALIAS, FunctionVersion="$LATEST")
    _rollout(there)["functions"]["provisioned"] = 2
    before = there.template(stack)
    said = there.run("deploy", "--yes", expect=2)
    last = said.strip().splitlines()[-1]
    check("InferInceptionV3Live" in last and "took it back" in last, f"the failure is named: {last}")
    check(there.stacks()[stack] == "UPDATE_ROLLBACK_COMPLETE", f"{stack} is taken back")
    after = there.template(stack)
    check(before == after, f"{stack} is as it was")
    functions.delete_alias(FunctionName=FUNCTION, Name=ALIAS)
    _rollout(there)["report"] = {"sender": "mark@example.com", "to": ["team@example.com"]}
    there.run("deploy", "--yes")
    there.run("diff")
    return f"taken back, and done when the cause was gone. It said: {last}"


def goes_on_after_a_kill(there: RehearsalFolder) -> str:
    """Killed in the middle of a change of many stacks; the next one ends it."""
    _rollout(there)["owner"] = "others@example.com"
    process = there.start("deploy", "--yes", "--config", "mark.yaml")
    read_until(process, r"^\[2/")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    there.run("deploy", "--yes")
    there.run("diff")
    return "killed at the second stack; deploying again did the rest"


def refuses_two_at_once(there: RehearsalFolder) -> str:
    """A second deploy while one is under way."""
    _rollout(there)["owner"] = "team@example.com"
    first = there.start("deploy", "--yes", "--config", "mark.yaml")
    read_until(first, r"^\[1/")
    first.send_signal(signal.SIGSTOP)
    try:
        said = there.run("deploy", "--yes", expect=2).strip().splitlines()[-1]
    finally:
        first.send_signal(signal.SIGCONT)
    rest, _ = first.communicate(timeout=LIMIT_S)
    check("is being rolled out by process" in said, f"the second is refused: {said}")
    check(first.returncode == 0, f"the first ends well: {rest}")
    there.run("diff")
    return f"the second said: {said}"


def destroys_all_but_the_archive(there: RehearsalFolder) -> str:
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
    check(list(left) == [f"mark-{SERVICE}-archive"], f"the archive alone stays, not {left}")
    [reservation] = ec2.describe_instances(InstanceIds=[instance])["Reservations"]
    state = reservation["Instances"][0]["State"]["Name"]
    check(state in ("terminated", "shutting-down"), f"{instance} is {state}")
    check("stays: the stack" in said and f"/mark/{SERVICE}/controller" in said, f"it says what stays: {said}")
    there.run("deploy", "--yes")
    there.run("destroy", "--yes")
    return "gone with its instance; the archive stays, and a new deploy goes on with it"


def _rollout(there: RehearsalFolder) -> dict[str, Any]:
    """The part of the settings that is changed."""
    assert there.config is not None
    found: dict[str, Any] = there.config["rollout"]
    return found
