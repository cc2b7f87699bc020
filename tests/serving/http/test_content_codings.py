"""Compressed bodies: what is understood, what is refused before it takes memory, and what is answered."""

from __future__ import annotations

import gzip
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.protocols.oip.bodies import BadRequest
from mark.serving.http import content_codings
from mark.serving.http.content_codings import coding_for, decode, decode_small
from mark.serving.http.limits import HttpLimits
from tests.serving.harness import BODY, INPUTS, live, served


@given(st.binary(max_size=2000))
def test_what_was_compressed_comes_out_as_it_was(body: bytes) -> None:
    raw = zlib.compressobj(9, zlib.DEFLATED, -15)
    for coding, sent in (
        (b"gzip", gzip.compress(body)),
        (b"GZIP ", gzip.compress(body[:7]) + gzip.compress(body[7:])),
        (b"x-gzip", gzip.compress(body)),
        (b"deflate", zlib.compress(body)),
        (b"deflate", raw.compress(body) + raw.flush()),
    ):
        assert decode(coding, sent, len(body)) == decode_small(coding, sent) == body


REFUSED = {
    "inflates too far": (b"gzip", gzip.compress(b"x" * 1001), 413),
    "two that inflate too far": (b"gzip", gzip.compress(b"x" * 600) * 2, 413),
    "a hundred of nothing": (b"gzip", gzip.compress(b"") * 100, 400),
    "cut off": (b"gzip", gzip.compress(b"x")[:-1], 400),
    "more behind gzip": (b"gzip", gzip.compress(b"x") + b"more", 400),
    "empty": (b"gzip", b"", 400),
    "not gzip": (b"gzip", b"{}", 400),
    "more behind deflate": (b"deflate", zlib.compress(b"x") + b"more", 400),
    "not deflate": (b"deflate", b"{}", 400),
    "unknown coding": (b"br", b"x", 415),
    "two codings": (b"gzip, gzip", gzip.compress(gzip.compress(b"x")), 415),
}


# Named, because gzip writes the second into the body, and each worker must collect the same names.
@pytest.mark.parametrize(("coding", "body", "status"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_compressed_body_is_refused(coding: bytes, body: bytes, status: int) -> None:
    with pytest.raises(BadRequest) as refused:
        decode(coding, body, 1000)
    assert refused.value.status == status


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        (b"gzip", b"gzip"),
        (b"gzip, deflate", b"gzip"),
        (b"deflate", b"deflate"),
        (b"gzip;q=0.5, deflate", b"deflate"),
        (b"gzip;q=0", None),
        (b"*", b"gzip"),
        (b"identity", None),
        (b"br", None),
        (b"gzip;q=x", None),
        (b"gzip;q=nan, deflate;q=0.1", b"deflate"),
        (b"gzip;x=y;q=0.2, deflate;q=0.3", b"deflate"),
        (b"", None),
    ],
)
def test_the_coding_that_a_client_prefers(accepted: bytes, coding: bytes | None) -> None:
    assert coding_for(accepted) == coding


@pytest.mark.parametrize("rows", [1, 20_000])
@pytest.mark.parametrize(("coding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
async def test_compressed_requests_are_answered_compressed(coding: str, compress, rows: int) -> None:  # type: ignore[no-untyped-def]

    data = b",".join([b"0.5"] * (2 * rows))
    body = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[%d,2],"data":[%b]}]}' % (rows, data)
    async with live() as running:
        for _ in range(2):
            reply = await running.ask(body=compress(body), content_encoding=coding, accept_encoding=coding)
            assert reply.status == 200
            assert reply.headers.get("content-encoding") == (None if rows == 1 else coding)
            text = reply.body if rows == 1 else decode(coding.encode(), reply.body, 10_000_000)
            assert text.count(b"0.5") == 2 * rows
        plain = await running.ask(body=body)
        assert "content-encoding" not in plain.headers


async def test_a_head_that_comes_again_is_decoded_again() -> None:
    async with live() as running:
        client = await running.client()
        for _ in range(3):
            assert (await client.ask(body=gzip.compress(BODY), content_encoding="gzip")).status == 200
        await client.close()


@pytest.mark.parametrize("times", [1, 1000])
async def test_a_body_that_explodes_is_refused(times: int) -> None:
    async with live(limits=HttpLimits(body_bytes=100_000)) as running:
        bomb = gzip.compress(b"x" * 100_001 * times)
        assert (await running.ask(body=bomb, content_encoding="gzip")).status == 413
        assert (await running.ask()).status == 200


def test_numbers_that_do_not_shrink_are_sent_as_they_are() -> None:
    noise = np.random.default_rng(1).bytes(100_000)

    assert content_codings.encode(b"gzip", noise) is None
    assert content_codings.encode(b"gzip", b"x" * 100_000) is not None


async def test_what_a_compressed_body_unfolds_to_counts_as_held() -> None:
    async with live(served(), limits=HttpLimits(body_bytes=1_000_000, bodies_bytes=1_000_000)) as running:
        agent = running.agents["i-0"]
        agent.backend.free.clear()
        first, second = await running.client(), await running.client()
        assert INPUTS[0].name == "x"
        body = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"data":[1,2]}]}' + b" " * 900_000
        first.send(body=gzip.compress(body), content_encoding="gzip")
        await running.until_metric('mark_gateway_in_flight{model="echo"}', 1)
        second.send(body=gzip.compress(body), content_encoding="gzip")
        assert (await second.read()).status == 503
        agent.backend.free.set()
        assert (await first.read()).status == 200
        assert (await second.ask(body=gzip.compress(body), content_encoding="gzip")).status == 200
        await first.close()
        await second.close()
