"""Rehearsed move from one shape to the other, as docs/deploy.md has it: two services of different names."""

from __future__ import annotations

from scripts.rehearsal.folder import RehearsalFolder, check
from scripts.rehearsal.settings import SERVICE, settings

SECOND = f"{SERVICE}-lean"
"""It begins as the first one's name does."""


def deploys_both_shapes_beside_each_other(there: RehearsalFolder) -> str:
    """`ha` first; it is not turned into the other; the second changes nothing of it."""
    there.run("deploy", "--yes")
    there.config = settings("lean")
    said = there.run("deploy", "--yes", expect=2)
    check("write shape: ha to go on with it" in said, f"the shape is kept: {said}")
    there.config = settings("lean", service=SECOND)
    there.run("deploy", "--yes")
    there.run("diff")
    second = _stacks_of(there, SECOND)
    check(set(second.values()) == {"CREATE_COMPLETE"}, f"all stacks of the second stand, not {second}")
    check(f"mark-{SECOND}-nodes" in second, f"its nodes are among them: {second}")
    there.config = settings("ha")
    there.run("diff")
    return f"{len(second)} stacks beside the first one's; `mark diff` of both is empty"


def gives_the_second_the_firsts_token(there: RehearsalFolder) -> str:
    """The client's token is the same, and a deploy leaves it as it is."""
    secrets = there.client("secretsmanager")
    token = secrets.get_secret_value(SecretId=f"mark-{SERVICE}-token")["SecretString"]
    secrets.put_secret_value(SecretId=f"mark-{SECOND}-token", SecretString=token)
    config = settings("lean", service=SECOND)
    config["rollout"]["alarms"]["max_usd_per_hour"] = 9
    there.config = config
    there.run("deploy", "--yes")
    kept = secrets.get_secret_value(SecretId=f"mark-{SECOND}-token")["SecretString"]
    check(kept == token, "a later deploy keeps the token")
    return "a deploy after it keeps it"


def removes_the_first(there: RehearsalFolder) -> str:
    """And nothing of the second, nor its name."""
    before = _stacks_of(there, SECOND)
    second, there.config = there.config, settings("ha")
    there.run("destroy", "--yes")
    left = {name for name in there.stacks() if name not in before}
    check(left == {f"mark-{SERVICE}-archive"}, f"of the first the archive alone stays, not {left}")
    check(_stacks_of(there, SECOND) == before, "the second stands as it did")
    there.config = second
    there.run("diff")
    there.run("destroy", "--yes")
    check(set(_stacks_of(there, SECOND)) == {f"mark-{SECOND}-archive"}, "the second goes like any other")
    return "the second stands as it did; then it is removed, too"


def _stacks_of(there: RehearsalFolder, service: str) -> dict[str, str]:
    return {name: status for name, status in there.stacks().items() if name.startswith(f"mark-{service}-")}
