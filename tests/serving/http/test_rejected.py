"""Requests that are wrong in themselves count neither as load nor as service time."""

from __future__ import annotations

import pytest

from mark.domain.load.outcomes import Outcomes
from mark.domain.load.traffic import FailureKind
from mark.protocols.oip.bodies import error_body
from mark.serving.gateway.telemetry.traffic_tally import Tally
from tests.serving.harness import live, until


def arrivals(tally: Tally) -> dict[int, int]:
    traffic = tally.traffic("m", in_flight=0, warm=0)
    assert traffic is not None
    return dict(traffic.arrivals)


def test_their_arrivals_are_taken_back_from_the_window_they_came_in() -> None:
    tally = Tally()
    tally.open_window(7, 100.0)
    tally.window_count += 5
    tally.refused(400, 1, 100.5)
    tally.close_window(7)
    assert arrivals(tally) == {7: 4}

    tally.refused(400, 1, 100.6)
    tally.close_window(7)
    tally.open_window(8, 105.0)
    tally.window_count += 3
    tally.refused(400, 1, 104.0)
    tally.refused(400, 1, 105.5)
    tally.close_window(8)
    assert arrivals(tally) == {7: -2, 8: 2}


def test_what_a_service_fails_at_stays_load() -> None:
    tally = Tally()
    tally.open_window(7, 100.0)
    tally.window_count += 2
    tally.refused(500, 1, 100.1)
    tally.refused(429, 1, 100.1)
    tally.close_window(7)

    assert arrivals(tally) == {7: 2}


def test_what_a_model_fails_by_itself_is_told_from_what_is_too_much_for_it() -> None:
    tally = Tally()
    tally.open_window(7, 100.0)
    for status in (500, 501, 502, 503, 504, 429, 408, 400):
        tally.refused(status, 1, 100.1)
    assert (tally.failed, tally.model_errors, tally.rejected) == (7, 3, 1)
    traffic = tally.traffic("m", in_flight=0, warm=0)
    assert traffic is not None
    assert (traffic.finished, traffic.missed) == (7, 7), "the objective counts them all"
    assert traffic.outcomes == Outcomes(finished=4, missed=4), "capacity is decided by the others"


def test_what_failures_said_is_kept_by_kind_the_latest_first_and_a_few_at_most() -> None:
    tally = Tally()
    for number in range(10):
        tally.open_window(number, 5.0 * number)
        tally.refused(500, 1, 5.0 * number, error_body(f"kind {'abc'[number % 3]}: row {number}"))
    tally.refused(400, 1, 46.0, error_body("the client's own"))
    tally.refused(502, 1, 46.0, b"no document")
    traffic = tally.traffic("m", in_flight=0, warm=0)
    assert traffic is not None
    assert traffic.failures == (
        FailureKind(text="no document", count=1, since=45.0, at=45.0),
        FailureKind(text="kind a: row 9", count=4, since=0.0, at=45.0),
        FailureKind(text="kind c: row 8", count=3, since=10.0, at=40.0),
    )
    tally.refused(500, 1, 46.0)
    again = tally.traffic("m", in_flight=0, warm=0)
    assert again is not None
    assert again.failures == (FailureKind(text="", since=45.0, at=45.0),), "only what is new"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("row 9 of 10", "row 11 of 12"),
        ("no user 6ba7b810-9dad-11d1-80b4-00c04fd430c8", "no user F47AC10B-58CC-4372-A567-0E02B2C3D479"),
        ("<Row at 0x7f8a1c2b3d40>", "<Row at 0x55d0aa11ffee>"),
    ],
    ids=["numbers", "uuids", "addresses"],
)
def test_failures_that_differ_in_numbers_and_ids_are_of_one_kind(one: str, other: str) -> None:
    assert FailureKind(text=one).kind == FailureKind(text=other).kind != FailureKind(text="no user").kind


def test_what_failures_said_is_one_line_that_no_terminal_obeys() -> None:
    tally = Tally()
    tally.refused(500, 1, 0.0, error_body("no \x1b[2J\x1b]0;gone\x07user\n\u009b31m\u202emoor"))
    traffic = tally.traffic("m", in_flight=0, warm=0)
    assert traffic is not None
    assert [one.text for one in traffic.failures] == ["no [2J ]0;gone user 31m moor"]


def test_arrivals_are_counted_by_size_without_those_that_are_rejected() -> None:
    tally = Tally()
    tally.open_window(7, 100.0)
    for size in (1, 1, 900, 901, 3):
        tally.arrived(size)
    tally.refused(400, 3, 100.5)
    first = tally.traffic("m", in_flight=0, warm=0)
    assert first is not None
    assert first.sizes == ((1, 2), (912, 2))
    tally.refused(400, 900, 100.6)
    later = tally.traffic("m", in_flight=0, warm=0)
    assert later is not None
    assert later.sizes == ((912, -1),)
    assert tally.traffic("m", in_flight=0, warm=0) is None


async def test_wrong_requests_are_no_load_and_tell_nothing_of_the_models_speed() -> None:
    async with live(takes_s=0.05) as running:
        before = running.store.listed["i-0"].batch_s
        statuses = [(await running.ask(body=b"{}")).status for _ in range(10)]
        assert statuses == [400] * 10
        await until(lambda: running.store.total("rejected") == 10)
        assert running.store.arrivals() == 0
        assert running.store.listed["i-0"].batch_s == before

        assert (await running.ask()).status == 200
        await until(lambda: running.store.arrivals() == 1 and running.store.listed["i-0"].batch_s > before)
