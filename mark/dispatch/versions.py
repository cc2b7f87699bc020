"""Choice of the version that answers a request: by its id, so that every gateway and each retry choose alike."""

from __future__ import annotations

from hashlib import blake2b

BITS = 32


def in_share(request_id: bytes, candidate: bytes, weight: float) -> bool:
    """True where a candidate of that share of the requests answers this one.

    weight: 0 to 1. Ids that are in a share are in every larger one of the same candidate.
    """
    digest = blake2b(request_id, digest_size=BITS // 8, key=candidate).digest()
    return int.from_bytes(digest) < weight * (1 << BITS)
