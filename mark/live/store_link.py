"""Links to the store by its URL, also where the store is on the node that leads: `rediss+lease://:SECRET@TABLE.REGION`.

The table's lease says which node that is (`mark.aws.lease_table`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from mark.aws.client_tokens import agents_password
from mark.aws.lease_table import LeaseTable
from mark.aws.session import Aws, AwsSettings
from mark.store.connect import AsyncLink, Link, connect, connect_async

LEASE = "+lease"
SOON: Any = {"max_attempts": 2, "connect_timeout_s": 1.0, "read_timeout_s": 2.0}
"""Limits of calls on the table: together below the lease's time to live."""


def open_link(url: str) -> Link:
    """A synchronous link to the store."""
    return connect(*_located(url))


def open_async_link(
    url: str, leader: Callable[[], str] | None = None, password: Callable[[], str] | None = None
) -> AsyncLink:
    """A link to the store for one event loop.

    leader: asks which node leads, in place of the table's lease. password: asks what to log in with by now.
    """
    if leader is not None and follows_lease(url):
        return connect_async(at_node(url, table_of(url)[0]), leader, password)
    return connect_async(*_located(url))


def follows_lease(url: str) -> bool:
    """True where the store is on the node that holds the lease."""
    return urlsplit(url).scheme.endswith(LEASE)


def table_of(url: str) -> tuple[str, str]:
    """Name and region of the table that such a URL names."""
    name, _, region = (urlsplit(url).hostname or "").partition(".")
    return name, region


def at_node(url: str, address: str) -> str:
    """The URL of the store on one node, whether it leads or not."""
    parts = urlsplit(url)
    secret, at, _ = parts.netloc.rpartition("@")
    return urlunsplit(
        parts._replace(scheme=parts.scheme.removesuffix(LEASE), netloc=f"{secret}{at}{address}:{port_of(url)}")
    )


def port_of(url: str) -> int:
    """The store's port on each node."""
    return urlsplit(url).port or 6379


def leader_of(url: str) -> Callable[[], str] | None:
    """Asks the table's lease which node leads; None where the URL names the store itself."""
    if not follows_lease(url):
        return None
    name, region = table_of(url)
    aws = Aws(AwsSettings(region=region, role="member", **SOON))
    return lambda: LeaseTable(aws.tables, name).leader()


def password_of(url: str, service: str) -> Callable[[], str] | None:
    """Asks the secret what agents log in with; None where the URL names the store itself."""
    if not follows_lease(url):
        return None
    aws = Aws(AwsSettings(region=table_of(url)[1], role="member", **SOON))
    return lambda: agents_password(aws, service)


def _located(url: str) -> tuple[str, Callable[[], str] | None]:
    return (at_node(url, table_of(url)[0]) if follows_lease(url) else url), leader_of(url)
