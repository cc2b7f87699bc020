"""Metrics of a node beside its service's: a store that fills up, a certificate that ends.

Nothing of it is sent while all is well: a metric costs while it is.
"""

from __future__ import annotations

import logging
from pathlib import Path

from cryptography import x509

from mark.store.replication import NodeStore

log = logging.getLogger(__name__)

STORE_MEMORY, CERTIFICATE = "StoreMemoryPercent", "CertificateDaysLeft"
TOLD_PERCENT, TOLD_DAYS = 60.0, 30.0
"""Told from here on; alarms ring a little later."""
DAY_S = 86400.0


def near_the_end(memory_share: float, certificate_ends_at: float | None, at: float) -> dict[str, float]:
    """Metrics of what nears its end. at, certificate_ends_at: epoch seconds."""
    values: dict[str, float] = {}
    if memory_share * 100 >= TOLD_PERCENT:
        values[STORE_MEMORY] = round(memory_share * 100, 1)
    if certificate_ends_at is not None and (days := (certificate_ends_at - at) / DAY_S) <= TOLD_DAYS:
        values[CERTIFICATE] = round(days, 1)
    return values


def node_health(store: NodeStore, certificate: Path | None, at: float) -> dict[str, float]:
    """Metrics of this node. RetryLater where its store does not answer. certificate: its chain, PEM."""
    return near_the_end(store.memory_share, None if certificate is None else _ends_at(certificate), at)


def _ends_at(certificate: Path) -> float:
    """Epoch seconds at which the first one of a chain ends; one that cannot be read has ended."""
    try:
        chain = x509.load_pem_x509_certificates(certificate.read_bytes())
    except (OSError, ValueError) as error:
        log.warning("the node's certificate cannot be read: %s", error)
        return 0.0
    return min(one.not_valid_after_utc.timestamp() for one in chain)
