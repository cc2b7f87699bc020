"""The loop that acts for all models of a service."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from mark.domain.errors import RetryLater
from mark.live.control.drivers.service_driver import ServiceDriver


class Part:
    """A driver that is due while `times` says so; says what it was asked."""

    def __init__(self, name: str, said: list[str], times: int, then: Callable[[], object] = lambda: None) -> None:
        self._name, self._said, self._left, self._then = name, said, times, then
        self.woken = False

    def is_due(self) -> bool:
        self._said.append(f"{self._name}?")
        return self._left > 0

    def act(self) -> None:
        self._said.append(self._name)
        self._left -= 1
        if not self._left:
            self._then()

    def wake(self) -> None:
        self.woken = True


def test_shared_instances_are_looked_after_before_models_plan_the_rest() -> None:
    said, over = list[str](), threading.Event()
    ServiceDriver([Part("a", said, 1, over.set)], Part("hosts", said, 1)).run(over)

    assert said == ["hosts?", "hosts", "a?", "a"]


def test_a_model_that_is_always_due_keeps_no_other_from_being_asked() -> None:
    said, over = list[str](), threading.Event()
    ServiceDriver([Part("busy", said, 5, over.set), Part("idle", said, 0)]).run(over)

    assert (said.count("busy"), said.count("idle?"), said.count("idle")) == (5, 5, 0)


def test_models_that_are_due_together_overlap() -> None:
    met, over = threading.Barrier(2, timeout=60.0), threading.Event()
    models = [Part(name, [], 1, lambda: (met.wait(), over.set())) for name in ("a", "b")]
    ServiceDriver(models).run(over)

    assert not met.broken


def test_what_a_driver_raises_ends_the_loop() -> None:
    def fail() -> None:
        raise RetryLater("the store is gone")

    with pytest.raises(RetryLater, match="the store is gone"):
        ServiceDriver([Part("a", [], 1, fail)]).run(threading.Event())


def test_everybody_is_woken() -> None:
    parts = [Part(name, [], 0) for name in ("a", "b", "hosts")]
    ServiceDriver(parts[:2], parts[2]).wake()

    assert all(part.woken for part in parts)
