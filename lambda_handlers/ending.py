"""The work of the function `orphans` and its heavy imports.

MARK_BUCKET is the service's bucket. MARK_ENDS_AT, where it is set, is when the service ends, epoch seconds of its
clock.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict

from mark.aws.archive import get_object, put_object
from mark.aws.ec2.batches import call_each
from mark.aws.ec2.inventory import fleet_of, list_inventory
from mark.aws.errors import code_of
from mark.aws.names import acted_key, orphans_key
from mark.aws.provision import AT_ONCE
from mark.aws.session import Aws, AwsSettings
from mark.domain.errors import MarkError, Misconfigured
from mark.domain.fleet.orphan import Notice, find_orphans
from mark.lambda_handlers.environment import required_variable, variable_or
from mark.protocols.events import instant

NO_OBJECT = "NoSuchKey"


class OrphansFound(MarkError):
    """Instances run, or are stopped, that no controller owns."""


def end_orphans(event: Mapping[str, object]) -> int:
    """Say which instances no controller owns, end those of which it was said long ago; how many are owned."""
    service, bucket = required_variable("MARK_SERVICE"), required_variable("MARK_BUCKET")
    now = instant(str(event.get("time")))
    with closing(Aws(AwsSettings(region=required_variable("AWS_REGION"), role="orphans"))) as aws:
        fleet = fleet_of(list_inventory(aws, service))
        told = _read(aws, bucket, acted_key(service))
        seen = find_orphans(
            now,
            launched_at={one.id: one.launched_at for one in fleet},
            acted_at=None if told is None else _number(told),
            notice=_notice(_read(aws, bucket, orphans_key(service))),
            ends_at=float(variable_or("MARK_ENDS_AT", "inf")),
        )
        if seen.notice is not None:
            text = json.dumps(asdict(seen.notice)).encode()
            put_object(aws.objects, bucket, orphans_key(service), text, content_type="application/json")
        refused = _end(aws, seen.ended)
    if seen.found:
        raise OrphansFound(
            f"no controller of {service} owns {', '.join(seen.found)}; ended: {len(seen.ended) - len(refused)}"
            + "".join(f"; {name}: {error}" for name, error in refused.items())
        )
    return len(fleet)


def _end(aws: Aws, names: Sequence[str]) -> Mapping[str, MarkError]:
    """End them; the errors of those that AWS refuses."""
    refused: dict[str, MarkError] = {}
    for start in range(0, len(names), AT_ONCE):
        refused |= call_each(
            names[start : start + AT_ONCE],
            lambda some: aws.ec2.terminate_instances(InstanceIds=some),
            lambda _: None,
        )
    return refused


def _read(aws: Aws, bucket: str, key: str) -> str | None:
    """An object's text; None where there is none."""
    try:
        return get_object(aws.objects, bucket, key).decode()
    except MarkError as error:
        if code_of(error) != NO_OBJECT:
            raise
        return None


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise Misconfigured(f"{text[:40]!r} is no instant at which a controller acted")
    return number


def _notice(text: str | None) -> Notice | None:
    """The notice as it was written; None also for what cannot be read: it is written anew."""
    try:
        found = json.loads(text or "null")
        acted_at = found["acted_at"]
        told_at = {str(name): float(at) for name, at in found["told_at"].items()}
        return Notice(acted_at=None if acted_at is None else float(acted_at), told_at=told_at)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
