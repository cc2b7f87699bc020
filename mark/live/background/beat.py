"""The sign that a controller acts: in the store for agents, in the bucket for who does not reach the store.

Without it they take the service for left alone, and end its instances (`domain/fleet/orphan.py`).
"""

from __future__ import annotations

from mark.aws.archive import put_object
from mark.aws.names import acted_key
from mark.aws.session import Aws
from mark.store.published_status import RESOURCES
from mark.store.service import ServiceStore


def give_sign(store: ServiceStore, aws: Aws, now: float) -> None:
    """Give it. now: service time. Errors: MarkError."""
    store.put_acted_at(now)
    resources = RESOURCES.read(store)
    if resources is not None and resources.bucket:
        put_object(
            aws.objects, resources.bucket, acted_key(store.service), repr(now).encode(), content_type="text/plain"
        )
