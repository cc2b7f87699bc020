"""Rehearsed without `mark deploy`: CDK's command line, and the AWS CLI, on what `mark synth` writes."""

from __future__ import annotations

from pathlib import Path

from scripts.own_venvs import node_tool, tool
from scripts.rehearsal.folder import RehearsalFolder, check
from scripts.rehearsal.settings import ALIAS, FUNCTION, SERVICE

STACKS = "stacks"
ARCHIVE = f"mark-{SERVICE}-archive"


def deploys_with_cdk(there: RehearsalFolder) -> str:
    """The archive, the bundles, all the rest; neither command line then finds a difference."""
    there.run("synth", "--out", STACKS)
    _cdk(there, "deploy", "archive")
    _script(there, "bundles.sh")
    _cdk(there, "deploy", "--all")
    _cdk(there, "diff", "--all", "--fail")
    there.run("diff")
    statuses = there.stacks()
    stand = {"CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE"}
    check(set(statuses.values()) <= stand and len(statuses) > 8, f"all stacks stand, not {statuses}")
    return f"{len(statuses)} stacks without a bootstrap; `cdk diff` and `mark diff` are empty"


def updates_one_setting_with_cdk(there: RehearsalFolder) -> str:
    """And one by the other command line: each goes on where the other stopped."""
    _alarm_at(there, 7.0)
    there.run("synth", "--out", STACKS)
    said = _cdk(there, "diff", "--all", "--fail", expect=1)
    check("Number of stacks with differences: 1" in said and "Threshold" in said, f"one stack differs: {said}")
    _cdk(there, "deploy", "--all")
    check(_threshold(there) == 7.0, "the alarm has changed")
    _alarm_at(there, 8.0)
    there.run("deploy", "--yes")
    there.run("synth", "--out", STACKS)
    _cdk(there, "diff", "--all", "--fail")
    check(_threshold(there) == 8.0, "the alarm has changed again")
    return "a threshold changed by `cdk deploy`, then by `mark deploy`; `cdk diff` is empty after it"


def takes_back_what_fails_with_cdk(there: RehearsalFolder) -> str:
    """An alias that is there already."""
    functions, stack = there.client("lambda"), f"mark-{SERVICE}-functions"
    functions.create_alias(FunctionName=FUNCTION, Name=ALIAS, FunctionVersion="$LATEST")
    _provisioned(there, 2)
    before = there.template(stack)
    there.run("synth", "--out", STACKS)
    said = _cdk(there, "deploy", "--all", expect=1)
    check("already exists" in said, f"the failure is named: {said[-2000:]}")
    check(there.stacks()[stack] == "UPDATE_ROLLBACK_COMPLETE", f"{stack} is taken back")
    check(there.template(stack) == before, f"{stack} is as it was")
    functions.delete_alias(FunctionName=FUNCTION, Name=ALIAS)
    _cdk(there, "deploy", "--all")
    _cdk(there, "diff", "--all", "--fail")
    return "taken back, and done when the cause was gone"


def destroys_with_cdk(there: RehearsalFolder) -> str:
    """Destroy the network and all that depends on it: everything but the archive."""
    _cdk(there, "destroy", "network", "--force")
    left = there.stacks()
    check(list(left) == [ARCHIVE], f"the archive alone stays, not {left}")
    return "`cdk destroy network` takes all but the archive"


def deploys_with_the_aws_cli(there: RehearsalFolder) -> str:
    """The script that `mark synth` writes, twice; then `mark destroy`."""
    _script(there, "deploy.sh")
    said = _script(there, "deploy.sh")
    nothing = said.count("No changes to deploy")
    check(nothing == len(there.stacks()), f"the second run changes nothing: {said}")
    there.run("diff")
    there.run("destroy", "--yes")
    check(list(there.stacks()) == [ARCHIVE], "the archive alone stays")
    return "deploy.sh twice: the second run changes nothing, nor would `mark deploy`"


def _cdk(there: RehearsalFolder, *words: str, expect: int = 0) -> str:
    """CDK's command line in the folder that `mark synth` wrote, as docs/deploy.md has it."""
    more = ("--require-approval", "never") if words[0] == "deploy" else ()
    quiet = {"CDK_DISABLE_CLI_TELEMETRY": "true", "CI": "true"}
    cdk = node_tool("cdk") / "cdk"
    return there.call(str(cdk), *words, *more, folder=there.folder / STACKS, expect=expect, **quiet)


def _script(there: RehearsalFolder, name: str) -> str:
    folder: Path = there.folder / STACKS
    path = f"{tool('awscli')}:{there.environment['PATH']}"
    return there.call(str(folder / name), folder=folder, PATH=path)


def _alarm_at(there: RehearsalFolder, usd: float) -> None:
    assert there.config is not None
    there.config["rollout"]["alarms"]["max_usd_per_hour"] = usd


def _provisioned(there: RehearsalFolder, count: int) -> None:
    assert there.config is not None
    there.config["rollout"]["functions"]["provisioned"] = count


def _threshold(there: RehearsalFolder) -> float:
    found = there.client("cloudwatch").describe_alarms(AlarmNamePrefix=f"mark-{SERVICE}-usd")["MetricAlarms"]
    [threshold] = {float(alarm["Threshold"]) for alarm in found}
    return threshold
