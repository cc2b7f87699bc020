"""Work in the background: no failure ends it, and status tells of each until it is mended."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from mark.domain.clock import ClockAnchor
from mark.domain.errors import Misconfigured, RetryLater
from mark.domain.load.traffic import ModelTraffic
from mark.live.background.cloudwatch import watch_metrics
from mark.live.background.failures import BackgroundFailures, failure_lines
from mark.live.background.worker import start_background_worker
from mark.live.status.view import LiveView
from mark.store.connect import connect
from mark.store.embedded import EmbeddedRedis
from mark.store.published_status import BACKGROUND, BackgroundStatus
from mark.store.service import ServiceStore
from tests.lambda_handlers.stored import store_service
from tests.waiting import PATIENCE_S


class Told:
    """A store that keeps status documents, and is unreachable when told so."""

    def __init__(self) -> None:
        self.documents: dict[str, Any] = {}
        self.unreachable = False

    def put_status(self, name: str, document: Any, *, keep_s: float | None = None) -> None:
        if self.unreachable:
            raise RetryLater("unreachable")
        self.documents[name] = json.loads(json.dumps(document))

    def failing(self) -> list[str]:
        return sorted((BACKGROUND.read(self, "me") or BackgroundStatus()).failing)

    def status(self, name: str) -> Any:
        return self.documents.get(name)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def failures(told: Told) -> BackgroundFailures:
    return BackgroundFailures(told, "me")  # type: ignore[arg-type]


def turns(stop: threading.Event, *failures: Exception | None) -> Callable[[], None]:
    """Turns that fail like this, one after the other; then it is over."""
    left = list(failures)

    def turn() -> None:
        failure = left.pop(0)
        if not left:
            stop.set()
        if failure is not None:
            raise failure

    return turn


def test_turns_go_on_whatever_fails_and_the_last_word_is_told(told: Told, failures: BackgroundFailures) -> None:
    stop = threading.Event()
    turn = turns(stop, KeyError("no"), None, Misconfigured("set a role"), RetryLater("no store"), ValueError("x"))
    failures.run_periodically("work", turn, each_s=0.001, stop=stop)

    found = BACKGROUND.read(told, "me")
    assert found is not None
    [line] = failure_lines(found, wall=0.0)
    assert line == "work fails for 0 s and is tried again: ValueError: x"


def test_what_is_mended_is_told_no_more(told: Told, failures: BackgroundFailures) -> None:
    failures.record("one", "broken")
    failures.record("two", "broken")
    failures.record("one", None)
    assert told.failing() == ["two"]


def test_a_store_that_was_unreachable_is_told_later(told: Told, failures: BackgroundFailures) -> None:
    told.unreachable = True
    failures.record("one", "broken")
    failures.record("two", None)
    told.unreachable = False
    assert told.failing() == []
    failures.record("two", None)
    assert told.failing() == ["one"]


def test_pauses_grow_while_it_fails(failures: BackgroundFailures) -> None:
    pauses: list[float] = []

    class Stop:
        def is_set(self) -> bool:
            return len(pauses) >= 9

        def wait(self, seconds: float) -> None:
            pauses.append(seconds)

    def turn() -> None:
        if len(pauses) < 8:
            raise KeyError

    failures.run_periodically("work", turn, each_s=1.0, stop=Stop(), begin_s=3.0)  # type: ignore[arg-type]
    assert pauses == [3.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 1.0]


def test_the_background_worker_outlives_a_failure_and_an_unreachable_store(
    told: Told, failures: BackgroundFailures
) -> None:
    """The duties cannot be made at first, then the store is unreachable, then a duty raises: the other is done."""
    stop, done = threading.Event(), threading.Event()
    held = iter(("me", RetryLater("unreachable"), "other", "me", "me"))

    def given(values: Any) -> Any:
        value = next(values)
        if isinstance(value, Exception):
            raise value
        return value

    def broken() -> None:
        raise KeyError("at")

    store: Any = SimpleNamespace(leases=SimpleNamespace(held_by=lambda: given(held)))
    tasks: Any = (SimpleNamespace(poll=broken), SimpleNamespace(poll=done.set))
    made = iter((Misconfigured("no region"), tasks))
    fast: Any = SimpleNamespace(is_set=stop.is_set, wait=lambda _: stop.wait(0.001))
    thread = start_background_worker(
        store=store,
        aws=SimpleNamespace(),  # type: ignore[arg-type]
        holder="me",
        stop=fast,
        failures=failures,
        tasks=lambda *_: given(made),
    )
    assert done.wait(PATIENCE_S)
    stop.set()
    thread.join()
    assert told.failing() == ["archiving, alarms and housekeeping"]


def test_a_minute_without_metrics_for_cloudwatch_is_not_the_last(told: Told, failures: BackgroundFailures) -> None:
    minutes = iter((ModelTraffic(model="m"), KeyError("traffic"), ModelTraffic(model="m", instance=9)))
    why: list[str | None] = []

    def traffic(_model: str) -> ModelTraffic:
        value = next(minutes)
        if isinstance(value, Exception):
            raise value
        return value

    store: Any = SimpleNamespace(
        leases=SimpleNamespace(held_by=lambda: "me"), traffic=traffic, status=lambda _: None
    )
    served: Any = SimpleNamespace(name="m", offerings=(), slo=SimpleNamespace(target=0.9))
    left = [False, False, True]
    stop: Any = SimpleNamespace(wait=lambda _: left.pop(0))
    lines = list(watch_metrics("shop", [served], store, holder="me", stop=stop, record=why.append))

    assert why == [None, "KeyError: 'traffic'", None]
    assert len(lines) == 2


def test_status_tells_what_fails_where_the_acting_controller_runs(tmp_path: Any) -> None:
    server = EmbeddedRedis(tmp_path / "redis")
    try:
        store = ServiceStore(connect(server.url), "shop")
        store_service(server.url, anchor=ClockAnchor())
        store.put_status("model:m", {})
        for holder in ("controller-0.1", "controller-1.2"):
            BackgroundFailures(store, holder).record("receiving spot notices", f"{holder} cannot")
        assert store.leases.acquire("controller-1.2", 60.0)
        [model] = LiveView(store, "shop").status().models
        [note] = [note for note in model.notes if "fails" in note]
        assert note == "receiving spot notices fails for 0 s and is tried again: controller-1.2 cannot"
    finally:
        server.stop()
