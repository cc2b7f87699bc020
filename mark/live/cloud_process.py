"""Environment, address and exit of the service's processes on an instance in AWS.

The rollout's templates make the environment (infra/user_data.py, infra/stacks/control.py).
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping
from typing import NoReturn

from mark.aws.ec2.imds import ENDPOINT, ZONE, Imds
from mark.domain.errors import MarkError, Misconfigured, RetryLater

log = logging.getLogger("mark.cloud")
WRONG = 2
EVERYWHERE = "0.0.0.0"  # noqa: S104 - security groups say who reaches it


def exit_after(main: Callable[[Mapping[str, str]], int]) -> NoReturn:
    """Run a process to its end; a MarkError becomes one line and code 2. Whoever keeps it up starts it again."""
    try:
        sys.exit(main(os.environ))
    except MarkError as error:
        sys.stderr.write(f"mark: {' '.join(str(error).split())}\n")
        sys.exit(WRONG)


def required_variable(environment: Mapping[str, str], name: str) -> str:
    """A variable that the templates set; Misconfigured where it is missing."""
    value = environment.get(name)
    if not value:
        raise Misconfigured(f"the environment lacks {name}: start this process from the service's templates")
    return value


def own_address(environment: Mapping[str, str]) -> str | None:
    """This instance's private address; None where the metadata service does not answer."""
    return _told(environment, "meta-data/local-ipv4", "address")


def own_zone(environment: Mapping[str, str]) -> str:
    """This instance's availability zone; empty where the metadata service does not answer."""
    return _told(environment, ZONE, "availability zone") or ""


def _told(environment: Mapping[str, str], path: str, what: str) -> str | None:
    imds = Imds(environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or ENDPOINT)
    try:
        return imds.get(path)
    except RetryLater as error:
        log.warning("the metadata service does not tell this instance's %s", what, extra={"reason": str(error)})
        return None
    finally:
        imds.close()
