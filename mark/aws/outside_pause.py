"""A pause from outside the service's network: a parameter of Systems Manager that controllers poll.

Whoever has credentials can write it, while store, gateways and controllers are dead. A standard parameter is free,
and so are its reads at the standard throughput of 40 a second (Systems Manager pricing and quotas).
"""

from __future__ import annotations

import json
from dataclasses import asdict

from mark.aws.errors import translated, unless_absent
from mark.aws.names import pause_parameter
from mark.aws.session import Aws
from mark.domain.billing.spending import OutsidePause


def read_pause(aws: Aws, service: str) -> OutsidePause | None:
    """The pause that stands; None where there is none. Errors: MarkError.

    Whatever the parameter holds, it is a pause: somebody may have written it by AWS's own command.
    """
    found = unless_absent(lambda: aws.parameters.get_parameter(Name=pause_parameter(service))["Parameter"])
    return None if found is None else _parsed(found.get("Value", ""))


def write_pause(aws: Aws, service: str, pause: OutsidePause) -> None:
    """Have it stand, in the place of an earlier one. Errors: MarkError."""
    with translated():
        aws.parameters.put_parameter(
            Name=pause_parameter(service), Value=json.dumps(asdict(pause)), Type="String", Overwrite=True
        )


def remove_pause(aws: Aws, service: str) -> bool:
    """Take it away; False where there was none. Errors: MarkError."""
    name = pause_parameter(service)
    return unless_absent(lambda: aws.parameters.delete_parameter(Name=name)) is not None


def _parsed(text: str) -> OutsidePause:
    """Whatever stands there is a pause, also where somebody wrote it by hand."""
    try:
        found = json.loads(text)
        pause = OutsidePause(by=str(found["by"]), at=float(found["at"]))
        _ = pause.reason  # not every number is an instant
    except (ArithmeticError, KeyError, OSError, TypeError, ValueError):
        return OutsidePause()
    return pause
