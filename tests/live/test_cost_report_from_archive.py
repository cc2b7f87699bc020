"""A report of what a service's bucket keeps says what one of its store said."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from moto import mock_aws

from mark.accounting.client_totals import totals_of
from mark.accounting.hourly_totals import NAMES, HourlyMark, Totals, dump_marks, first_mark, marks_key
from mark.aws.archive import make_bucket
from mark.aws.resources import service_tags
from mark.config.settings import load_settings
from mark.domain.fleet.host_spec import SHARED
from mark.domain.load.traffic import ClientTraffic, GatewayReport, ModelTraffic
from mark.live.background.archive import OPEN_EACH_S, Archivist
from mark.live.cost_report.from_archive import open_archive
from mark.live.models import make_live_models, service_spec
from mark.report.cost.read import read_cost_report
from mark.store.embedded import EmbeddedRedis
from mark.store.published_status import RESOURCES, PublishedResources
from mark.store.service import ServiceStore
from tests.aws.builders import HandClock, aws
from tests.live.served_day import BEGAN, DAY_S, MODEL, NOW, RPS, SERVICE, write_service

BUCKET = "mark-vision-archive"
CONFIG = """
service:
  name: vision
  serve:
    - {model: inception-v3, offerings: {types: [c5.large]}, forecaster: last-value, policy_name: mark}
"""
TWO = """
service:
  name: vision
  serve:
    - {model: inception-v3, offerings: {types: [c5.xlarge]}, forecaster: last-value}
    - {model: nasnet, offerings: {types: [c5.xlarge]}, forecaster: last-value}
"""


@dataclass
class Both:
    """A service whose store still stands, and what was downloaded of its bucket."""

    store: Path
    archive: Path
    folder: Path


def archive(store: ServiceStore, folder: Path) -> None:
    """Copy what is due into the service's bucket, and all of that into a folder."""
    RESOURCES.write(store, PublishedResources(bucket=BUCKET))
    account, clock = aws(max_attempts=1), HandClock(NOW - OPEN_EACH_S)
    make_bucket(account, BUCKET, [], service_tags(SERVICE, "mark"))
    archivist = Archivist(store=store, aws=account, clock=clock)
    clock.at = NOW
    archivist.poll()
    for row in account.objects.list_objects_v2(Bucket=BUCKET)["Contents"]:
        path = folder / row["Key"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(account.objects.get_object(Bucket=BUCKET, Key=row["Key"])["Body"].read())
    account.close()


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    there = tmp_path_factory.mktemp("archive")
    (there / "archive.yaml").write_text(CONFIG, encoding="utf-8")
    with EmbeddedRedis(there / "store") as server, mock_aws():
        (there / "store.yaml").write_text(CONFIG + f"  store: {server.url}\n", encoding="utf-8")
        store, settings = write_service(server.url), load_settings(there / "archive.yaml", {})
        spec = service_spec(settings, make_live_models(settings))
        store.put_spec(spec)
        [before] = store.transitions(MODEL)
        store.note(replace(before, instance="i-2", offering=spec.models[0].offerings[0].name))
        overflowed = ModelTraffic(model=MODEL, lambda_=50, late=3, rejected=9, billed=50, gib_s=40)
        overflowed = replace(overflowed, accuracy_known=20, accuracy_sum=15.25)
        shop = ClientTraffic(client="shop", answered=30, late=2, items=45)
        overflowed = replace(overflowed, clients=(shop,))
        store.report(GatewayReport(gateway="g", sequence=2, models=(overflowed,)))
        seen = store.traffic(MODEL)
        counts = {name: getattr(seen, name) for name in NAMES if name != "requests"}
        totals = Totals(requests=RPS * (NOW - BEGAN), **counts)
        last = HourlyMark(at=NOW, counted_to=NOW, peak_rps=2 * RPS, totals=totals, clients=totals_of([shop]))
        store.put_status(marks_key(MODEL), dump_marks([first_mark(BEGAN), last]))
        archive(store, there / "kept")
        yield Both(there / "store.yaml", there / "archive.yaml", there / "kept")


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARK_STATE", str(tmp_path / "state"))


def told(mark: Any, config: Path, *more: str) -> dict[str, Any]:
    done = mark("report", "--since", "30d", "--json", "--config", str(config), *more)
    assert done.status == 0, done.err
    document: dict[str, Any] = json.loads(done.out)
    return document


def test_it_says_what_the_store_says(mark: Any, both: Both) -> None:
    kept = told(mark, both.archive, "--policy", "none", "--archive", str(both.folder))
    stored = told(mark, both.store, "--policy", "none")
    assert kept == stored
    assert kept["until"] == NOW
    assert kept["cost_usd"]["instances"] > 0
    assert kept["cost_usd"]["lambda"] > 0
    assert [day["day"] for day in kept["days"]] == ["2024-10-04", "2024-10-05"]
    [model] = kept["models"]
    assert model["journal_since"] < BEGAN + DAY_S
    assert model["answers"]["rejected"] == 9
    assert [(one["client"], one["requests"]) for one in model["clients"]] == [("shop", 30)]


def test_the_rent_of_shared_instances_is_kept_too(redis: EmbeddedRedis, tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(TWO, encoding="utf-8")
    settings = load_settings(tmp_path / "two.yaml", {})
    spec = service_spec(settings, make_live_models(settings))
    store = write_service(redis.url, replace(spec, footprint=None))
    lease = store.leases.acquire("test", 60.0)
    assert lease is not None
    store.open_journal("nasnet", next(store.journal_lines(MODEL)), lease)
    for model in (MODEL, "nasnet"):
        store.put_status(marks_key(model), dump_marks([first_mark(BEGAN), first_mark(NOW)]))
    store.note(replace(store.transitions(MODEL)[0], model=SHARED, instance="i-2"))
    with mock_aws():
        archive(store, tmp_path / "kept")
    kept = open_archive(settings, tmp_path / "kept")
    assert kept.spec().shared is not None
    assert kept.ledger(SHARED) == store.ledger(SHARED)
    lines = [read_cost_report(one, period_s=30 * DAY_S, wall_at=NOW).shared for one in (kept, store)]
    rents = [[item for item in told if item.line.component == "instances"] for told in lines]
    assert rents[0] == rents[1] != []
    for path in (tmp_path / "kept").rglob(f"{SHARED}/*/*"):  # as an earlier version left it
        path.unlink()
    assert open_archive(settings, tmp_path / "kept").spec().shared is None


def test_its_days_can_be_replayed(mark: Any, both: Both) -> None:
    document = told(mark, both.archive, "--policy", "static-peak", "--archive", str(both.folder))
    [baseline] = document["models"][0]["baselines"]
    assert baseline["policy"] == "static-peak"
    assert baseline["usd"] > 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda path: path.unlink(), "holds no figures of inception-v3: `aws s3 sync s3://BUCKET/journal/vision"),
        (lambda path: path.write_bytes(b"no zip"), "cannot be read, download it again"),
        (lambda path: path.write_bytes(gzip.compress(b"{}")), "cannot be read, download it again"),
        (lambda path: path.write_bytes(gzip.compress(b'{"marks": null, "transitions": []}')), "no full hour yet"),
    ],
)
def test_what_is_missing_is_one_line(mark: Any, both: Both, tmp_path: Path, change: Any, said: str) -> None:
    [figures] = both.folder.rglob("figures.json.gz")
    path = tmp_path / "kept" / figures.relative_to(both.folder)
    path.parent.mkdir(parents=True)
    path.write_bytes(figures.read_bytes())
    change(path)
    done = mark("report", "--config", str(both.archive), "--archive", str(tmp_path / "kept"))
    assert done.status == 2
    assert said in " ".join(done.err.split())
