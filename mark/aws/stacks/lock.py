"""One rollout of a service at a time: a parameter of Systems Manager that only one can create.

Who holds it says so every `RENEW_S`. A lock that has said nothing for `STALE_S`, or whose process on this host is
gone, is a rollout that was killed: the next one takes it over, and looks a moment later whether it still has it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from types import TracebackType

from mark.aws.errors import absent_is_done, code_of, translated, unless_absent
from mark.aws.session import Aws
from mark.domain.errors import MarkError, Misconfigured

RENEW_S, STALE_S = 20.0, 120.0
SETTLE_S = 1.0
"""Two who take over the same lock know after so long which of them has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Holder of a rollout's lock: host and process, since when, and when it last renewed it (epoch seconds)."""

    host: str
    pid: int
    since: float
    at: float

    def is_same(self, other: Holder | None) -> bool:
        """True where the other is this one, at another time."""
        return other is not None and replace(other, at=self.at) == self


class RolloutLock:
    """The right to change a service's stacks, while the context lasts. Misconfigured where another has it.

    `runs` says whether a process of this host with that number runs.
    """

    def __init__(self, aws: Aws, service: str, holder: Holder, *, runs: Callable[[int], bool]) -> None:
        self._client = aws.parameters
        self._name = f"/mark/{service}/rollout"
        self._service, self._holder, self._runs = service, holder, runs
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True)

    def holder(self) -> Holder | None:
        """Read the holder; None where nobody has the lock."""
        found = unless_absent(lambda: self._client.get_parameter(Name=self._name)["Parameter"])
        return None if found is None else Holder(**json.loads(found.get("Value", "")))

    def __enter__(self) -> RolloutLock:
        """Take it, or take over one that was left."""
        if not self._create():
            self._take_over(self.holder())
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let it go."""
        self._over.set()
        self._thread.join()
        with suppress(MarkError):
            if self._holder.is_same(self.holder()):
                self._remove()

    def confirm(self) -> None:
        """Asked before each step. Misconfigured where another has it: we were silent for too long."""
        now = self.holder()
        if not self._holder.is_same(now):
            raise self._refusal(now or self._holder)

    def _take_over(self, other: Holder | None) -> None:
        if other is not None:
            left = other.host == self._holder.host and not self._runs(other.pid)
            if not left and self._holder.at - other.at < STALE_S:
                raise self._refusal(other)
            self._remove()
        self._create()
        time.sleep(SETTLE_S)
        now = self.holder()
        if not self._holder.is_same(now):
            raise self._refusal(now or self._holder)

    def _refusal(self, other: Holder) -> Misconfigured:
        since = time.strftime("%H:%M:%S UTC", time.gmtime(other.since))
        return Misconfigured(
            f"{self._service} is being rolled out by process {other.pid} on {other.host} since {since}; wait for "
            f"its end (one that was killed is forgotten {STALE_S:g} s after its last sign of life)"
        )

    def _create(self) -> bool:
        try:
            with translated():
                self._client.put_parameter(
                    Name=self._name, Value=json.dumps(asdict(self._holder)), Type="String", Overwrite=False
                )
        except MarkError as error:
            if code_of(error) == "ParameterAlreadyExists":
                return False
            raise
        return True

    def _keep(self) -> None:
        """Say that we are there; a call that fails is made up for by the next."""
        while not self._over.wait(RENEW_S):
            told = json.dumps({**asdict(self._holder), "at": time.time()})
            with suppress(MarkError), translated():
                if self._holder.is_same(self.holder()):
                    self._client.put_parameter(Name=self._name, Value=told, Type="String", Overwrite=True)

    def _remove(self) -> None:
        with absent_is_done():
            self._client.delete_parameter(Name=self._name)
