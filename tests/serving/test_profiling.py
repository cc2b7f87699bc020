"""Measuring a backend whose speed is known."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import pytest

from mark.catalog.schema import parse_profiles
from mark.domain.errors import Misconfigured
from mark.domain.models.profile import Evidence
from mark.ports import InferReply, InferRequest
from mark.serving import profiling
from mark.serving.profiling import (
    LEAST_ROUNDS,
    WARM_UPS,
    MeasuredPoint,
    _point,
    measure,
    measure_variants,
    profile_of,
    profile_text,
)

EXAMPLE = InferRequest(path="/v2/models/m/infer", content_type="application/json", body=b"{}")


class Clock:
    """Shows what has been spent: no machine is too busy for it."""

    def __init__(self):
        self.now_s = 0.0

    def perf_counter(self):
        return self.now_s


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(profiling, "time", SimpleNamespace(perf_counter=made.perf_counter))
    return made


class Known:
    """Takes a millisecond, and half of one for each request; the first calls, and one in five, take longer."""

    def __init__(self, status=200, clock=None):
        self.sizes = []
        self.status = status
        self.clock = clock or Clock()

    async def infer(self, batch):
        self.sizes.append(len(batch))
        called = self.sizes.count(len(batch))
        hiccup_s = 0.01 if called <= WARM_UPS else 0.005 if called % 5 == 0 else 0.0
        self.clock.now_s += 0.001 + 0.0005 * len(batch) + hiccup_s
        return [InferReply(status=self.status, content_type="text/plain", body=b"no such thing")] * len(batch)


def test_it_finds_the_known_times(clock):
    backend, told = Known(clock=clock), []

    points = asyncio.run(
        measure(
            backend, lambda: EXAMPLE, [4, 1, 2, 2], seconds=0.5, progress=lambda share, seen: told.append(share)
        )
    )

    assert [point.batch for point in points] == [1, 2, 4]
    for point in points:
        known_s = 0.001 + 0.0005 * point.batch
        assert point.median_s == pytest.approx(known_s)
        assert point.p95_s == pytest.approx(known_s + 0.005)
        assert point.stable
        assert point.calls >= LEAST_ROUNDS
    assert told == sorted(told)
    assert told[-1] <= 1.0


def test_sizes_are_taken_up_and_down_again_after_the_warm_up(clock):
    backend = Known(clock=clock)
    asyncio.run(measure(backend, lambda: EXAMPLE, [1, 3], seconds=0.5))
    assert backend.sizes[: 2 * WARM_UPS + 6] == [1] * WARM_UPS + [3] * WARM_UPS + [1, 3, 3, 1, 1, 3]


@pytest.mark.parametrize("seconds", [0.001, 0.03, 0.2, 3.0])
def test_a_slow_backend_keeps_the_time_with_fewer_calls_and_smaller_batches(clock, seconds):
    class Slow(Known):
        async def infer(self, batch):
            self.clock.now_s += 0.02 * len(batch)
            return [InferReply(status=200, content_type="text/plain", body=b"")] * len(batch)

    points = asyncio.run(measure(Slow(clock=clock), lambda: EXAMPLE, [1, 2, 4, 8, 16], seconds=seconds))
    sizes = [point.batch for point in points]
    assert sizes[0] == 1
    assert all(point.calls >= 1 for point in points)
    one_round_s = 0.02 * sum(sizes)
    assert clock.now_s <= max(seconds, 0.02) + one_round_s + 1e-9
    assert (16 in sizes) == (seconds == 3.0)


def test_a_size_is_not_left_out_for_its_first_call_alone(clock):
    class Warms(Known):
        async def infer(self, batch):
            if len(batch) == 8 and 8 not in self.sizes:
                self.clock.now_s += 2.0
            return await super().infer(batch)

    points = asyncio.run(measure(Warms(clock=clock), lambda: EXAMPLE, [1, 8], seconds=5.0, longest_s=0.1))
    assert [point.batch for point in points] == [1, 8]


def test_no_batch_is_measured_that_takes_longer_than_asked(clock):
    points = asyncio.run(
        measure(Known(clock=clock), lambda: EXAMPLE, [1, 8, 64, 512], seconds=5.0, longest_s=0.05)
    )
    assert [point.batch for point in points] == [1, 8, 64]
    (alone,) = asyncio.run(measure(Known(clock=clock), lambda: EXAMPLE, [1, 8], seconds=1.0, longest_s=0.0001))
    assert alone.batch == 1


def test_calls_that_fail_at_times_are_counted_and_are_in_no_figure(clock):
    class Unlucky(Known):
        async def infer(self, batch):
            await super().infer(batch)
            self.clock.now_s += 9.0 * (failed := len(self.sizes) % 7 == 6)
            return [InferReply(status=500 if failed else 200, content_type="text/plain", body=b"")] * len(batch)

    (point,) = asyncio.run(measure(Unlucky(clock=clock), lambda: EXAMPLE, [1], seconds=100.0))
    assert point.failed > 3
    assert point.p95_s < 0.1
    profile = profile_of((point,), model="m", instance_type="c5.large", machine="here", date="2026-11-28")
    assert f"{point.failed} calls failed" in profile.provenance.source


def test_a_spread_is_not_told_of_a_few_calls():
    few = MeasuredPoint(batch=1, median_s=2.0, p95_s=2.0, calls=2, stable=False)
    assert profile_of((few,), model="m", instance_type="c5.large", machine="here", date="2026-11-28").cv is None


def test_an_example_that_is_refused_is_named():
    with pytest.raises(Misconfigured, match="status 400: no such thing"):
        asyncio.run(measure(Known(status=400), lambda: EXAMPLE, [1], seconds=0.01))


@pytest.mark.parametrize("sizes", [[], [0, 1]])
def test_sizes_must_be_above_zero(sizes):
    with pytest.raises(Misconfigured, match="1 or more"):
        asyncio.run(measure(Known(), lambda: EXAMPLE, sizes, seconds=0.01))


def test_a_point_is_stable_when_its_median_is_known():
    assert _point(1, [0.1] * 20).stable
    assert not _point(1, [0.1, 0.2] * 10).stable
    assert not _point(1, [0.1, 0.11, 0.1, 0.12, 0.1]).stable


def test_the_file_is_one_of_the_catalogue_s():
    points = (
        MeasuredPoint(batch=1, median_s=0.001, p95_s=0.0012, calls=40, stable=True),
        MeasuredPoint(batch=8, median_s=0.004, p95_s=0.005, calls=30, stable=False),
    )
    profile = profile_of(points, model="mine", instance_type="c5.large", machine="my laptop", date="2026-11-21")

    (again,) = parse_profiles(profile_text([profile]), "here")

    assert again == profile
    assert again.cv == pytest.approx((0.1112 + 0.1363) / 2, abs=2e-4)  # ln 1.2 and ln 1.25 are 1.645 deviations
    assert again.provenance.evidence is Evidence.MEASURED
    assert again.provenance.machine == "my laptop"
    assert "median of 30 calls" in again.provenance.source
    assert "1.25 times" in again.provenance.source
    assert "not stable to 2 % when time was up: 8" in again.provenance.source


def test_variants_are_measured_in_turn(clock):
    order = []

    class Variant(Known):
        def __init__(self, name):
            super().__init__(clock=clock)
            self.name = name

        async def infer(self, batch):
            order.append((self.name, len(batch)))
            return await super().infer(batch)

    backends = {"fast": Variant("fast"), "exact": Variant("exact")}
    points = asyncio.run(
        measure_variants(backends, lambda: EXAMPLE, [2, 1], seconds=0.5, progress=lambda _share, _points: None)
    )

    cells = [("fast", 1), ("fast", 2), ("exact", 1), ("exact", 2)]
    rounds = order[WARM_UPS * len(cells) :]
    assert rounds[: 2 * len(cells) + 2] == [cells[0], *cells, cells[-1], *reversed(cells)], "the first is untimed"
    assert {name: [point.batch for point in found] for name, found in points.items()} == {
        "fast": [1, 2],
        "exact": [1, 2],
    }


def test_a_variant_s_accuracy_is_kept_in_the_file_and_checked():
    point = MeasuredPoint(batch=1, median_s=0.01, p95_s=0.01, calls=9, stable=True)
    made = profile_of([point], model="m", instance_type="c5.large", machine="here", date="2026", variant="fast")

    text = profile_text([replace(made, accuracy=0.9375)])

    (read,) = parse_profiles(text, "here")
    assert (read.variant, read.accuracy) == ("fast", 0.9375)
    assert "accuracy" not in profile_text([made])
    with pytest.raises(Misconfigured, match="share between 0 and 1"):
        parse_profiles(text.replace("0.9375", "93.75"), "here")
