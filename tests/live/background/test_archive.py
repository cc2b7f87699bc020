"""Journals are copied into the bucket, each segment once whatever fails, and read from what was downloaded."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from moto import mock_aws

from mark.aws.archive import make_bucket, snapshot_key
from mark.aws.names import acted_key
from mark.aws.resources import service_tags
from mark.aws.session import Aws
from mark.controller.hosts.placement_journal import (
    PlacementDecision,
    PlacementHeader,
    decision_line,
    placement_header_line,
)
from mark.controller.journal import Checkpoint, Header, header_line
from mark.controller.state import Decision, Observation, State
from mark.domain.demand import Demand, DemandUnit
from mark.domain.errors import MarkError, Misconfigured
from mark.domain.fleet.host_spec import SHARED
from mark.domain.fleet.instances import FleetView
from mark.domain.fleet.orphan import BEAT_S
from mark.live.archived_load import archived_load, archived_segments
from mark.live.background.archive import AGAIN_S, OPEN_EACH_S, Archivist, may_drop
from mark.live.background.beat import give_sign
from mark.live.background.worker import Each
from mark.live.control.drivers.driver import SEGMENT_BYTES, WAITING_BYTES, rotate_if_long
from mark.store.connect import connect
from mark.store.embedded import EmbeddedRedis
from mark.store.journal import StoreJournal
from mark.store.published_status import ARCHIVE, RESOURCES, PublishedResources
from mark.store.service import ServiceStore
from mark.store.snapshot import read_snapshot
from tests.aws.builders import HandClock, aws, wire
from tests.controller.builders import POLICY
from tests.lambda_handlers.stored import store_service

BEGAN_AT = 1_800_000_000.0
BUCKET, MODEL = "mark-shop-archive", "m"


def header(at: float = BEGAN_AT, history: int = 5, *, checkpoint: bool = False, **changes: Any) -> Header:
    """A header with minutes of history that end at `at`."""
    point = Checkpoint(state=State(), fleet=FleetView(), first_at=BEGAN_AT, planned_at=at, orders=())
    known = minutes(at - 60.0 * history, history)
    plain = Header(policy=POLICY, catalogue="test", seed=1, history=known, model=MODEL, run="abcdefghijkl")
    return replace(plain, checkpoint=point if checkpoint else None, **changes)


def minutes(start_at: float, count: int) -> Demand:
    """A load that tells its minutes apart."""
    counts = [1 + round(start_at / 60.0 + n) % 50 for n in range(count)]
    return Demand(
        end_at=start_at + 60.0 * count,
        mean_rps=tuple(n / 60 for n in counts),
        max_rps=tuple(n / 5 for n in counts),
    )


def tick(journal: StoreJournal, start_at: float) -> None:
    """The tick that saw the minute which began then."""
    load = minutes(start_at, 1)
    unit = DemandUnit(start_at=start_at, count=1, mean_rps=load.mean_rps[0], max_rps=load.max_rps[0])
    seen = Observation(now=start_at + 60.0, fleet=FleetView(), demand=unit)
    journal.append(FleetView(), seen, Decision(state=State()))


@dataclass
class Kept:
    """A service whose journal is archived."""

    store: ServiceStore
    aws: Aws
    clock: HandClock
    archivist: Archivist
    journal: StoreJournal

    def objects(self) -> dict[str, bytes]:
        rows = self.aws.objects.list_objects_v2(Bucket=BUCKET).get("Contents", [])
        return {
            row["Key"]: self.aws.objects.get_object(Bucket=BUCKET, Key=row["Key"])["Body"].read() for row in rows
        }

    def segments(self) -> list[str]:
        return [name.rpartition("/")[2] for name in self.objects() if name.endswith(".jsonl.gz")]

    def write(self, first: int, last: int) -> None:
        for number in range(first, last):
            tick(self.journal, BEGAN_AT + 60.0 * number)

    def rotate(self, number: int) -> None:
        at = BEGAN_AT + 60.0 * number
        self.journal.rotate(header_line(header(at, number, checkpoint=True)))


@pytest.fixture
def kept(redis: EmbeddedRedis) -> Iterator[Kept]:
    link = connect(redis.url)
    link.call("FLUSHALL")
    store_service(redis.url, anchor=ServiceStore(link, "shop").clock())
    store = ServiceStore(link, "shop")
    RESOURCES.write(store, PublishedResources(bucket=BUCKET))
    lease = store.leases.acquire("test", 600.0)
    assert lease is not None
    with mock_aws():
        there, clock = aws(max_attempts=1), HandClock(BEGAN_AT)
        make_bucket(there, BUCKET, [], service_tags("shop", "mark"))
        journal = store.open_journal(MODEL, header_line(header()), lease)
        yield Kept(store, there, clock, Archivist(store=store, aws=there, clock=clock), journal)
        there.close()
    link.close()


def test_a_closed_segment_is_copied_once_and_may_then_be_dropped(kept: Kept) -> None:
    kept.write(0, 3)
    kept.archivist.poll()
    assert kept.objects() == {}
    kept.rotate(3)
    assert not may_drop(kept.store, MODEL, 1)
    kept.archivist.poll()
    [(name, data)] = kept.objects().items()
    assert name == "journal/shop/m/2027-01-15/080100-abcdefgh-000001.jsonl.gz"
    assert gzip.decompress(data).splitlines() == list(kept.store.journal_lines(MODEL, 1))
    assert may_drop(kept.store, MODEL, 1)
    assert not may_drop(kept.store, MODEL, 2)

    calls: list[str] = []
    wire(kept.aws.objects).rules.append(lambda action, _request: calls.append(action))
    kept.archivist.poll()
    Archivist(store=kept.store, aws=kept.aws, clock=kept.clock).poll()  # who takes the lease over
    assert calls == []


def test_each_hour_what_is_there_by_then_is_copied_over_the_copy_before(kept: Kept) -> None:
    kept.write(0, 2)
    kept.clock.at += OPEN_EACH_S
    kept.archivist.poll()
    before = kept.objects()
    assert kept.segments() == ["080100-abcdefgh-000001.jsonl.gz"]
    figures = json.loads(gzip.decompress(before["journal/shop/m/2027-01-15/figures.json.gz"]))
    assert figures["transitions"][0]["instance"] == "i-0"
    assert len(figures["transitions"]) == 4
    kept.write(2, 3)
    kept.clock.at += OPEN_EACH_S - 1.0
    kept.archivist.poll()
    assert kept.objects() == before
    kept.clock.at += 1.0
    Archivist(store=kept.store, aws=kept.aws, clock=kept.clock).poll()
    assert kept.segments() == ["080100-abcdefgh-000001.jsonl.gz"]
    assert kept.objects() != before


def test_what_fails_is_told_tried_again_and_loses_nothing(kept: Kept) -> None:
    kept.write(0, 2)
    kept.rotate(2)
    kept.aws.objects.delete_bucket(Bucket=BUCKET)
    kept.archivist.poll()
    told = ARCHIVE.read(kept.store)
    assert told is not None
    assert "NoSuchBucket" in str(told.failed)
    assert not may_drop(kept.store, MODEL, 1)
    make_bucket(kept.aws, BUCKET, [], service_tags("shop", "mark"))
    kept.clock.at += AGAIN_S - 1.0
    kept.archivist.poll()
    assert kept.objects() == {}
    kept.clock.at += 1.0
    kept.archivist.poll()
    assert kept.segments() == ["080100-abcdefgh-000001.jsonl.gz"]
    assert may_drop(kept.store, MODEL, 1)
    again = ARCHIVE.read(kept.store)
    assert again is not None
    assert again.failed is None


def test_nobody_waits_for_an_archive_that_is_not_there(kept: Kept) -> None:
    RESOURCES.write(kept.store, PublishedResources())
    kept.write(0, 1)
    kept.rotate(1)
    kept.archivist.poll()
    assert ARCHIVE.read(kept.store) is None
    assert may_drop(kept.store, MODEL, 1)


def test_what_was_downloaded_holds_the_load_that_came(kept: Kept, tmp_path: Path) -> None:
    for number in range(4):
        kept.write(3 * number, 3 * number + 3)
        kept.rotate(3 * number + 3)
    kept.archivist.poll()
    for name, data in kept.objects().items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    segments = archived_segments(tmp_path)
    assert len(segments) == 3  # the first was dropped before anybody looked
    found, load, _ = archived_load(segments, None)
    assert (found.model, load) == (MODEL, minutes(BEGAN_AT, 12))
    assert archived_load((segments[0], segments[2]), MODEL)[1] == load  # a later one knows what was before
    assert archived_load(archived_segments(segments[0]), None)[1] == minutes(BEGAN_AT, 6)


def test_the_journal_of_shared_instances_is_kept_too(kept: Kept, tmp_path: Path) -> None:
    kept.store.put_spec(replace(kept.store.spec(), shares=True))
    lease = kept.store.leases.acquire("test", 600.0)
    assert lease is not None
    placements = PlacementHeader(
        policy="hedged",
        models=(MODEL,),
        market="spot",
        catalogue="",
        seed=1,
        start_at=BEGAN_AT,
        run="abcdefghijkl",
    )
    journal = kept.store.open_journal(SHARED, placement_header_line(placements), lease)
    decision = PlacementDecision(
        at=BEGAN_AT, fleet=(), refused=(), loads=(), hosts=(), orders=(), worth_usd_per_hour=0.0,
        unchanged_usd_per_hour=0.0,
    )  # fmt: skip
    journal.write(decision_line(decision))
    journal.rotate(placement_header_line(placements))
    assert not may_drop(kept.store, SHARED, 1)
    kept.archivist.poll()
    [(name, data)] = kept.objects().items()
    assert name == "journal/shop/@shared/2027-01-15/080000-abcdefgh-000001.jsonl.gz"
    assert may_drop(kept.store, SHARED, 1)
    kept.clock.at += OPEN_EACH_S
    kept.archivist.poll()
    assert "journal/shop/@shared/2027-01-15/figures.json.gz" in kept.objects()
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    with pytest.raises(Misconfigured, match="who shared instances"):
        archived_load(archived_segments(tmp_path), None)


def write(folder: Path, *lines: bytes) -> Path:
    folder.mkdir(parents=True)
    path = folder / "000000-run-000001.jsonl.gz"
    path.write_bytes(gzip.compress(b"".join(line + b"\n" for line in lines)))
    return path


def test_segments_that_cannot_be_replayed_say_why(tmp_path: Path) -> None:
    one, other = (write(tmp_path / name / "2027-01-15", header_line(header(model=name))) for name in ("a", "b"))
    with pytest.raises(Misconfigured, match="of a, b: choose one of them with --model"):
        archived_load((one, other), None)
    with pytest.raises(Misconfigured, match="unknown model of these segments 'c'"):
        archived_load((one, other), "c")
    one.write_bytes(one.read_bytes()[:50])
    with pytest.raises(Misconfigured, match=r"000001\.jsonl\.gz: it cannot be unpacked .*; download it again"):
        archived_load((one,), None)
    assert archived_segments(tmp_path / "nowhere") == ()


@pytest.mark.parametrize(
    ("size_bytes", "is_waiting", "rotations"),
    [
        (SEGMENT_BYTES, False, []),
        (SEGMENT_BYTES + 1, False, ["what is copied is dropped"]),
        (SEGMENT_BYTES + 1, True, []),
        (WAITING_BYTES, True, []),
        (WAITING_BYTES + 1, True, ["the oldest is dropped"]),
    ],
)
def test_a_long_segment_waits_for_the_copy_of_the_one_that_it_would_drop(
    size_bytes: int, is_waiting: bool, rotations: list[str]
) -> None:
    rotated: list[str] = []

    def rotate(line: bytes, *, unkept: bool) -> None:
        assert line
        rotated.append("the oldest is dropped" if unkept else "what is copied is dropped")

    journal: Any = SimpleNamespace(size_bytes=size_bytes, is_waiting=is_waiting, rotate=rotate)
    rotate_if_long(journal, lambda: header_line(header()))
    assert rotated == rotations


def test_a_snapshot_of_the_store_is_kept_where_a_report_is_made_of_it(kept: Kept) -> None:
    kept.write(0, 3)
    kept.clock.at = BEGAN_AT + OPEN_EACH_S
    kept.archivist.poll()
    assert snapshot_key("shop") not in kept.objects()
    RESOURCES.write(kept.store, PublishedResources(bucket=BUCKET, snapshot=True))
    kept.clock.at += OPEN_EACH_S
    kept.archivist.poll()
    snapshot = read_snapshot(kept.objects()[snapshot_key("shop")])
    assert snapshot.at == kept.clock.at
    assert list(snapshot.journal_lines(MODEL)) == list(kept.store.journal_lines(MODEL))


def test_a_controller_that_acts_says_so_in_the_store_and_in_the_bucket(kept: Kept) -> None:
    beat = Each(BEAT_S, partial(give_sign, kept.store, kept.aws), kept.clock)
    RESOURCES.write(kept.store, PublishedResources(bucket="not-there"))
    with pytest.raises(MarkError, match="NoSuchBucket"):
        beat.poll()
    RESOURCES.write(kept.store, PublishedResources(bucket=BUCKET))
    beat.poll()  # at once: a sign that is missing ends a fleet
    kept.clock.at += BEAT_S - 1.0
    beat.poll()
    assert kept.objects() == {acted_key("shop"): repr(BEGAN_AT).encode()}
    kept.clock.at += 1.0
    beat.poll()
    assert float(kept.objects()[acted_key("shop")]) == BEGAN_AT + BEAT_S
