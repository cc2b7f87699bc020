"""Content codings of requests' and answers' bodies: gzip and deflate.

A body is never decompressed beyond its limit, whatever it claims: the limit is checked while it grows. Answers are
compressed where the client asks for it, the body is large enough, and a sample of it shrinks.
"""

from __future__ import annotations

import functools
import zlib

from mark.protocols.accept import accept_weights
from mark.protocols.oip.bodies import BadRequest

ACCEPTED = b"accept-encoding: gzip, deflate\r\n"
"""Header of the response to an unsupported coding."""
GZIP, DEFLATE = b"gzip", b"deflate"
_WINDOWS = {GZIP: 31, b"x-gzip": 31, DEFLATE: 15}
_RAW = -15
MOST_MEMBERS = 16
"""Parts that a gzip body may consist of; each costs a fresh start."""
INLINE_BYTES = 64 * 1024
"""A body up to it is decoded or encoded at once, in less than a millisecond; a larger one in a thread."""
WORTH_BYTES = 16 * 1024
"""Answers below it are not compressed: it would cost the gateway more than the wire."""
_WORTH = 0.9
_LEVEL = 1


def is_plain(coding: bytes | None) -> bool:
    """True where the body has no content coding."""
    return coding is None or coding.strip().lower() in (b"", b"identity")


def decode_small(coding: bytes, body: bytes) -> bytes | None:
    """The body, decoded; None where it is larger than INLINE_BYTES. Errors: as `decode`."""
    if len(body) > INLINE_BYTES:
        return None
    try:
        return decode(coding, body, INLINE_BYTES)
    except BadRequest as error:
        if error.status == 413:
            return None
        raise


def decode(coding: bytes, body: bytes, limit: int) -> bytes:
    """The body, decoded. Errors: BadRequest, of status 413 where it exceeds `limit`, 415 for other codings."""
    coding = coding.strip().lower()
    window = _WINDOWS.get(coding)
    if window is None:
        raise BadRequest(
            f"content coding {coding.decode('latin-1')[:80]!r} is not supported; use gzip or deflate", 415
        )
    if coding == DEFLATE and (len(body) < 2 or body[0] & 15 != 8 or (body[0] << 8 | body[1]) % 31):
        window = _RAW  # some clients leave zlib's frame out
    try:
        return _inflated(body, window, limit)
    except zlib.error as error:
        raise BadRequest(f"the body is not {coding.decode()}: {error}") from None


def _inflated(body: bytes, window: int, limit: int) -> bytes:
    parts, size = [], 0
    for _ in range(MOST_MEMBERS):
        inflate = zlib.decompressobj(window)
        part = inflate.decompress(body, limit - size + 1)
        parts.append(part)
        size += len(part)
        if size > limit:
            raise BadRequest(f"the body exceeds {limit} bytes when it is decompressed", 413)
        if not inflate.eof:
            raise BadRequest("the compressed body is cut off")
        body = inflate.unused_data
        if not body:
            return parts[0] if len(parts) == 1 else b"".join(parts)
        if window != _WINDOWS[GZIP]:
            break
    raise BadRequest("bytes follow the compressed body")


@functools.lru_cache(maxsize=256)
def coding_for(accepted: bytes) -> bytes | None:
    """The coding to answer with, by an Accept-Encoding header; None for none."""
    weights = accept_weights(accepted.decode("latin-1"))
    other = weights.get("*", 0.0)
    gzip, deflate = weights.get(GZIP.decode(), other), weights.get(DEFLATE.decode(), other)
    if gzip <= 0 and deflate <= 0:
        return None
    return GZIP if gzip >= deflate else DEFLATE


def encode(coding: bytes, body: bytes) -> bytes | None:
    """The body, compressed; None where that is not worth it."""
    if len(zlib.compress(body[:WORTH_BYTES], _LEVEL)) > _WORTH * WORTH_BYTES:
        return None
    deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOWS[coding])
    return deflate.compress(body) + deflate.flush()
