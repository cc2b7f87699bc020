"""A copy of the clients outside the store: the controller that acts keeps it where nodes hold the store."""

from __future__ import annotations

import logging
import threading

from mark.domain.errors import RetryLater
from mark.domain.fleet.lease import Lease
from mark.store.service import ServiceStore

log = logging.getLogger(__name__)

EACH_S = 1.0
"""Between two looks at whether they changed: what a store that is lost within it may take along."""


def keep_clients_copied(store: ServiceStore, lease: Lease, over: threading.Event) -> None:
    """Copy changes until `over`. LeaseLost where another controller leads."""
    failed = False
    while not over.wait(EACH_S):
        try:
            store.clients.copy(lease)
            failed = False
        except RetryLater as error:
            if not failed:
                log.warning("the clients cannot be copied and are tried again", extra={"why": str(error)})
            failed = True
