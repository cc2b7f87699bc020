"""Liveness checks of Redis and of the system's clock by the supervisor; and the status of processes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from mark.domain.errors import MarkError, RetryLater
from mark.live.local.account_upkeep import AccountUpkeep
from mark.live.local.children import HEARTBEAT_TIMEOUT_S
from mark.live.local.run_dir import facts_of
from mark.steady_time import steady_time
from mark.store.embedded import EmbeddedRedis
from mark.store.published_status import PROCESSES, LostAccount, ProcessesStatus, RestartStatus
from mark.store.service import ServiceStore

log = logging.getLogger(__name__)

RETRY_S = 1.0
RETRY_AFTER_S = 5.0
"""Time that a store that did not answer is left alone: asking it takes time in which nobody is watched."""
LONGEST_PAUSE_S = 10.0
JUMP_S = 5.0
"""A step of the system's clock that is worth a line; time servers move it by less."""


class StoreKeeper:
    """The service's own Redis, started again when it ended or was stopped for SILENT_S."""

    def __init__(self, redis: EmbeddedRedis, again: Callable[[], EmbeddedRedis]) -> None:
        self._redis, self._again = redis, again
        self._pause_s, self._again_at = RETRY_S, 0.0
        self._stopped_since: float | None = None
        self._counted = False
        self.restarts = RestartStatus()

    @property
    def url(self) -> str:
        """URL for `connect`."""
        return self._redis.url

    @property
    def pid(self) -> int:
        """The server's process."""
        return self._redis.pid

    def watch(self) -> bool:
        """Start it again where it must be; whether it was. It is tried later where it cannot be started now."""
        now = time.monotonic()
        if self._redis.running:
            self._end_if_stopped(now)
            return False
        if not self._counted:
            silent = self._stopped_since is not None
            why = f"silent for {HEARTBEAT_TIMEOUT_S:g} s" if silent else ""
            self.restarts = self.restarts.after(self._redis.exit_status or 0, why, now)
            self._counted = True
            log.warning("the store ended and is started again", extra={"status": self._redis.exit_status})
        if now < self._again_at:
            return False
        try:
            self._redis = self._again()
        except (MarkError, OSError) as error:
            log.warning("the store cannot be started and is tried again later", extra={"why": str(error)})
            self._again_at = now + self._pause_s
            self._pause_s = min(LONGEST_PAUSE_S, 2 * self._pause_s)
            return False
        self._pause_s, self._again_at, self._stopped_since, self._counted = RETRY_S, 0.0, None, False
        return True

    def stop(self) -> None:
        """End it."""
        self._redis.stop()

    def _end_if_stopped(self, now: float) -> None:
        if not _is_stopped(self._redis.pid):
            self._stopped_since = None
        elif self._stopped_since is None:
            self._stopped_since = now
        elif now - self._stopped_since > HEARTBEAT_TIMEOUT_S:
            log.warning("the store was stopped and is replaced", extra={"for_s": HEARTBEAT_TIMEOUT_S})
            self._redis.kill()


class WallWatch:
    """Notices that the system's clock was set; the service's clock goes on as it was."""

    def __init__(self, jumped_s: Callable[[], float]) -> None:
        self._jumped_s = jumped_s
        self.jump_s = 0.0

    def look(self) -> None:
        """Say each jump once."""
        jump_s = self._jumped_s()
        if abs(jump_s - self.jump_s) > JUMP_S:
            log.warning(
                "the system's clock was set; the service's clock goes on as it was",
                extra={"by_s": round(jump_s - self.jump_s, 1), "ahead_of_service_s": round(jump_s, 1)},
            )
            self.jump_s = jump_s


class ProcessStatus:
    """Tells in the store how often processes were started again, and what is being mended."""

    def __init__(self) -> None:
        self._published: ProcessesStatus | None = None
        self._again_at = 0.0

    def publish(
        self,
        store: ServiceStore,
        restarts: Mapping[str, RestartStatus],
        *,
        down: Sequence[str],
        upkeep: AccountUpkeep,
        wall_jump_s: float,
    ) -> None:
        """Write what has changed; a store that is unreachable is told later."""
        now = time.monotonic()
        since = upkeep.missing_since
        seen = ProcessesStatus(  # instants of the monotonic clock: the service's moves against it
            restarts=dict(sorted(restarts.items())),
            down=tuple(sorted(down)),
            account=None if since is None else LostAccount(since=since, why=upkeep.why),
            clock_set_by_s=wall_jump_s,
        )
        if seen == self._published or now < self._again_at:
            return
        try:
            PROCESSES.write(store, _on_clock(seen, store.clock().service_time(steady_time()) - now))
        except RetryLater:
            self._again_at = now + RETRY_AFTER_S
            return
        self._published = seen


def _on_clock(seen: ProcessesStatus, ahead_s: float) -> ProcessesStatus:
    """The status with instants of the service's clock, which is `ahead_s` ahead of the monotonic one."""
    restarts = {
        name: one if one.at is None else replace(one, at=one.at + ahead_s) for name, one in seen.restarts.items()
    }
    account = seen.account and replace(seen.account, since=seen.account.since + ahead_s)
    return replace(seen, restarts=restarts, account=account)


def _is_stopped(pid: int) -> bool:
    """True where that process was stopped (SIGSTOP)."""
    return facts_of(pid)[:1] == ["T"]
