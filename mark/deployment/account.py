"""The AWS account that a service is rolled out to, and who does it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from mark.aws.errors import translated
from mark.aws.names import rollout_role
from mark.aws.resources import service_tags
from mark.aws.session import Aws, AwsSettings
from mark.aws.stacks.cloudformation import Stacks
from mark.aws.stacks.lock import Holder, RolloutLock
from mark.config.settings import Settings
from mark.domain.errors import Misconfigured
from mark.live.local.run_dir import is_alive

POLL_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The account as its credentials show it, with clients for it."""

    id: str
    region: str
    aws: Aws
    stacks: Stacks


@contextmanager
def open_account(settings: Settings) -> Iterator[Account]:
    """The account of the credentials that boto3 finds. Misconfigured where it is not the one that is meant."""
    region, wanted = settings.service.aws.region, settings.rollout.account
    aws = Aws(AwsSettings(region=region, retry_mode="adaptive", max_attempts=8, role="deployer"))
    try:
        with translated():
            found = aws.identity.get_caller_identity()["Account"]
        if wanted is not None and found != wanted:
            raise Misconfigured(f"the credentials are for account {found}, but rollout.account says {wanted}")
        acts_as = f"arn:aws:iam::{found}:role/{rollout_role(settings.service.name)}"
        role = acts_as if settings.rollout.service_role else ""
        yield Account(id=found, region=region, aws=aws, stacks=Stacks(aws, poll_s=POLL_S, role=role))
    finally:
        aws.close()


def lock(account: Account, service: str) -> RolloutLock:
    """The right to change the service's stacks."""
    now = time.time()
    holder = Holder(host=socket.gethostname(), pid=os.getpid(), since=now, at=now)
    return RolloutLock(account.aws, service, holder, runs=is_alive)


def tags_of(settings: Settings) -> dict[str, str]:
    """Tags of every stack and of all in it."""
    return service_tags(settings.service.name, settings.rollout.owner, settings.rollout.tags)
