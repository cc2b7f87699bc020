"""/_mark/...: the emulated AWS's own knobs: clock, prewarmed world, interruptions, faults, mail, state."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

from mark.domain.clock import ClockAnchor
from mark.emulator.authorization.authorizer import Authorizer
from mark.emulator.clock import ServiceClock
from mark.emulator.ec2.hypervisor import Hypervisor
from mark.emulator.ec2.machines import Machines
from mark.emulator.errors import ApiError, not_emulated
from mark.emulator.events.alarms import Alarms
from mark.emulator.faults import Faults, fault_of
from mark.emulator.functions.pool import LambdaPools
from mark.emulator.ses import Ses
from mark.steady_time import WALL

Request = dict[str, Any]


class Control:
    """Answers with JSON documents."""

    def __init__(  # noqa: PLR0913 it has a knob for every part
        self,
        *,
        clock: ServiceClock,
        machines: Machines,
        hypervisor: Hypervisor,
        lambdas: LambdaPools,
        faults: Faults,
        calls: Counter[tuple[str, str]],
        alarms: Alarms,
        ses: Ses,
        authorizer: Authorizer | None,
        open_gate: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._machines = machines
        self._hypervisor = hypervisor
        self._lambdas = lambdas
        self._faults = faults
        self._calls = calls
        self._alarms = alarms
        self._authorizer = authorizer
        self._open_gate = open_gate
        self._actions: dict[tuple[str, str], Callable[[Request], Any]] = {
            ("GET", "state"): self._state,
            ("POST", "clock"): self._set_clock,
            ("POST", "open"): self._open,
            ("POST", "prewarm"): self._set_prewarm,
            ("POST", "interrupt"): self._interrupt,
            ("POST", "faults"): self._add_fault,
            ("GET", "faults"): self._list_faults,
            ("DELETE", "faults"): self._clear_faults,
            ("GET", "mail"): ses.control,
            ("POST", "mail"): ses.control,
        }

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        """Status and document."""
        try:
            document = json.loads(body) if body else {}
            return 200, self._do(method, path, document)
        except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            return 400, {"error": f"{type(error).__name__}: {error}"}
        except ApiError as error:
            return error.status, {"error": error.message}

    def _do(self, method: str, path: str, request: Request) -> Any:
        action = self._actions.get((method, path))
        if action is None:
            raise not_emulated(f"{method} /_mark/{path}")
        return action(request)

    def _set_clock(self, request: Request) -> dict[str, float]:
        until = request.get("until_wall")
        anchor = ClockAnchor(
            wall_at=float(request["wall_at"]),
            service_at=float(request["service_at"]),
            speed=float(request["speed"]),
            until_wall=math.inf if until is None else float(until),
        )
        if (offset_s := request.get("wall_offset_s")) is not None:
            WALL.adopt(float(offset_s))
        self._clock.replace(anchor)
        return {"service_time": self._clock.now()}

    def _open(self, _request: Request) -> dict[str, bool]:
        self._open_gate()
        return {"open": True}

    def _set_prewarm(self, request: Request) -> dict[str, bool]:
        self._machines.prewarm = self._lambdas.prewarm = bool(request["on"])
        return {"on": self._machines.prewarm}

    def _add_fault(self, request: Request) -> dict[str, int]:
        return {"id": self._faults.add(fault_of(request))}

    def _list_faults(self, _request: Request) -> list[dict[str, Any]]:
        return self._faults.listed()

    def _clear_faults(self, _request: Request) -> list[dict[str, Any]]:
        self._faults.clear()
        return []

    def _interrupt(self, request: Request) -> dict[str, Any]:
        if "instances" in request:
            named = self._machines.named(list(request["instances"]))
            warned = self._machines.interrupt(named, float(request.get("advised_s", 0.0)))
            return {"instances": [machine.id for machine in warned]}
        pool = self._machines.ready_spot(str(request.get("offering", "")))
        warned = self._machines.interrupt(self._machines.victims(float(request["share"]), pool))
        return {"instances": [machine.id for machine in warned], "ready": len(pool)}

    def _state(self, _request: Request) -> dict[str, Any]:
        pids, starts = self._hypervisor.pids(), self._hypervisor.starts()
        return {
            "service_time": self._clock.now(),
            "speed": self._clock.anchor.speed,
            "prewarm": self._machines.prewarm,
            "instances": [
                {
                    "id": machine.id,
                    "state": machine.state.label,
                    "pool": machine.pool,
                    "address": machine.address,
                    "tags": machine.tags,
                    "pid": pids.get(machine.id, 0),
                    "starts": starts.get(machine.id, 0),
                    "launched_at": machine.launched_at,
                    "running_at": machine.life.billed_since,
                    "ready_at": machine.life.ready_at,
                    "terminates_at": machine.life.terminates_at,
                    "ended_at": machine.ended_at,
                    "reason": machine.reason_code,
                }
                for machine in self._machines
            ],
            "crashes": self._hypervisor.crashes,
            "lambda": self._lambdas.state(),
            "calls": _by_action(self._calls),
            "callers": _by_role(self._calls),
            "queues": self._alarms.queues(),
            "alarms": self._alarms.state(),
            "permissions": self._authorizer.state() if self._authorizer else {},
        }


def _by_action(calls: Counter[tuple[str, str]]) -> dict[str, int]:
    """Calls by action."""
    found: Counter[str] = Counter()
    for (_, action), count in calls.items():
        found[action] += count
    return dict(found)


def _by_role(calls: Counter[tuple[str, str]]) -> dict[str, dict[str, int]]:
    """Calls by role of the service and action; an empty role where the caller did not say."""
    found: dict[str, dict[str, int]] = {}
    for (role, action), count in sorted(calls.items()):
        found.setdefault(role, {})[action] = count
    return found
