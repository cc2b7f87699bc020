"""One rollout of a service at a time: a parameter of Systems Manager that only one can create.

Who holds it says so every `RENEW_S`; a lock that has said nothing for `STALE_S` is a rollout that was killed, and the
next one takes it over. The parameter's version tells two who take it over at once apart.
"""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from types import TracebackType

from botocore.exceptions import BotoCoreError, ClientError

from mark.aws.errors import as_mark_error, translated
from mark.aws.session import Aws
from mark.domain.errors import MarkError, Misconfigured

RENEW_S, STALE_S = 20.0, 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who rolls out: host and process, since when, and when it was last heard of (epoch seconds)."""

    host: str
    pid: int
    since: float
    at: float


class RolloutLock:
    """The right to change a service's stacks, while the context lasts. Misconfigured where another has it."""

    def __init__(self, aws: Aws, service: str, holder: Holder, *, alive: bool = False) -> None:
        """`alive`: whether a holder on our host with another process number is known to run; see `taken_by`."""
        self._client = aws.parameters
        self._name = f"/mark/{service}/rollout"
        self._service, self._holder, self._alive = service, holder, alive
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True)

    @property
    def name(self) -> str:
        """The parameter's name."""
        return self._name

    def taken_by(self) -> Holder | None:
        """Who holds it, None where nobody does."""
        try:
            with translated():
                value = self._client.get_parameter(Name=self._name)["Parameter"]["Value"]
        except MarkError as error:
            if _code(error) == "ParameterNotFound":
                return None
            raise
        return Holder(**json.loads(value))

    def __enter__(self) -> RolloutLock:
        """Take it, or take over one that has been silent."""
        while not self._create():
            other = self.taken_by()
            if other is None:
                continue
            silent_s = self._holder.at - other.at
            gone = other.host == self._holder.host and not self._alive
            if silent_s < STALE_S and not gone:
                raise Misconfigured(
                    f"{self._service} is being rolled out by process {other.pid} on {other.host} since "
                    f"{time.strftime('%H:%M:%S UTC', time.gmtime(other.since))}; wait for it to end (if it was "
                    f"killed, it is forgotten {STALE_S:g} s after its last sign of life)"
                )
            self._remove()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let it go."""
        self._over.set()
        self._thread.join()
        with suppress(MarkError):
            self._remove()

    def _create(self) -> bool:
        try:
            self._client.put_parameter(
                Name=self._name, Value=json.dumps(asdict(self._holder)), Type="String", Overwrite=False
            )
        except (ClientError, BotoCoreError) as error:
            if isinstance(error, ClientError) and error.response["Error"].get("Code") == "ParameterAlreadyExists":
                return False
            raise as_mark_error(error) from error
        return True

    def _keep(self) -> None:
        """Say that we are there; a call that fails is made up for by the next."""
        while not self._over.wait(RENEW_S):
            told = {**asdict(self._holder), "at": time.time()}
            with suppress(MarkError), translated():
                self._client.put_parameter(Name=self._name, Value=json.dumps(told), Type="String", Overwrite=True)

    def _remove(self) -> None:
        try:
            with translated():
                self._client.delete_parameter(Name=self._name)
        except MarkError as error:
            if _code(error) != "ParameterNotFound":
                raise


def _code(error: MarkError) -> str:
    cause = error.__cause__
    return str(cause.response["Error"].get("Code", "")) if isinstance(cause, ClientError) else ""
