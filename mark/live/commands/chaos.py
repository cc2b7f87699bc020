"""`mark interrupt` and `mark chaos`: breaking a service on purpose."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Sequence
from typing import NotRequired, TypedDict

from mark.domain.errors import Misconfigured, unknown
from mark.live.local.emulator_client import EmulatedControls, InjectedFault
from mark.live.local.run_dir import find_running, process_of
from mark.live.local.running import Running
from mark.report.terminal import show, show_json
from mark.store.connect import connect
from mark.store.service import ServiceStore

KILLABLE = ("agent", "gateway", "controller", "store", "aws")
NO_CAPACITY = "InsufficientInstanceCapacity"
SLOW_S = 3.0
"""Duration of a slow call of EC2."""


class ChaosDocument(TypedDict):
    """The document of `mark chaos --json` (docs/json.md)."""

    #: Done, in words.
    said: str
    #: The kind of process, one of `KILLABLE`.
    killed: NotRequired[str]
    pid: NotRequired[int]
    #: What was injected into AWS.
    fault: NotRequired[InjectedFault]


def interrupt_spot(service: str, *, share: float, offering: str, as_json: bool) -> None:
    """Send notices to a share of the ready spot instances."""
    if not 0 < share <= 1:
        raise Misconfigured(f"--share must be above 0 and at most 1, not {share:g}")
    running = find_running(service)
    _check_offering(running, offering)
    taken, ready = EmulatedControls.of(running).interrupt(share, offering)
    if as_json:
        show_json({"instances": taken, "ready": ready})
    else:
        show(format_interrupted(taken, share=share, ready=ready))


def format_interrupted(taken: Sequence[str], *, share: float, ready: int) -> str:
    """Outcome of interrupting a share of the `ready` spot instances, in words."""
    if taken:
        what = "1 spot instance has its" if len(taken) == 1 else f"{len(taken)} spot instances have their"
        return f"{what} notice: {', '.join(taken)}"
    if not ready:
        return "no spot instance is ready, so none was taken away"
    return f"{share:g} of {ready} rounds to none; --share 1 takes {'it' if ready == 1 else 'all of them'}"


def break_something(
    service: str,
    what: str,
    target: str | None,
    *,
    seconds: float,
    offering: str,
    share: float,
    as_json: bool,
) -> None:
    """Kill a process, or inject a fault into the emulated AWS, and say what was done."""
    if not seconds > 0:
        raise Misconfigured(f"--seconds must be above 0, not {seconds:g}")
    if not 0 < share <= 1:
        raise Misconfigured(f"--share must be above 0 and at most 1, not {share:g}")
    if target is not None and what != "kill":
        raise Misconfigured(
            f"only kill takes a target: {what} harms the emulated AWS as a whole, leave {target!r} out"
        )
    running = find_running(service)
    if what == "kill":
        done = _kill(running, target)
    else:
        done = _fault(running, what, seconds=seconds, offering=offering, share=share)
    if as_json:
        show_json(done)
    else:
        show(done["said"])


def _kill(running: Running, target: str | None) -> ChaosDocument:
    if target not in KILLABLE:
        raise unknown("process to kill", target or "", KILLABLE)
    pid = _victim(running, target)
    os.kill(pid, signal.SIGKILL)
    return {"said": f"killed the {target}'s process {pid} with SIGKILL", "killed": target, "pid": pid}


def _victim(running: Running, target: str) -> int:
    """The process to kill: any agent or gateway, the acting controller, the store, the emulated AWS."""
    if target == "store":
        if "store" not in running.processes:
            raise Misconfigured("the store is not ours: a URL in the settings names it")
        return running.processes["store"]
    if target == "aws":
        return running.processes["aws"]
    if target == "agent":
        state = EmulatedControls.of(running).state()
        pids = [row["pid"] for row in state["instances"] if row.get("pid")]
    elif target == "gateway":
        pids = [pid for name, pid in running.processes.items() if name.startswith("gateway")]
    else:
        holder = process_of(ServiceStore(connect(running.store), running.name).leases.held_by())
        pids = [running.processes[holder]] if holder in running.processes else []
    if not pids:
        raise Misconfigured(f"no {target} runs just now")
    return int(random.choice(pids))  # noqa: S311 - any will do


def _fault(running: Running, what: str, *, seconds: float, offering: str, share: float) -> ChaosDocument:
    """Tell the emulated AWS to misbehave; docs/emulated-aws.md has the words."""
    controls = EmulatedControls.of(running)
    _check_offering(running, offering)
    if what == "clear":
        controls.clear_faults()
        return {"said": "the emulated AWS behaves again"}
    faults: dict[str, InjectedFault] = {
        "throttle": {"kind": "throttle"},
        "refuse": {"action": "CreateFleet", "kind": "capacity", "code": NO_CAPACITY, "match": offering},
        "partial": {"action": "CreateFleet", "kind": "partial", "share": share, "match": offering},
        "slow": {"kind": "slow", "service": "ec2", "delay_s": SLOW_S},
    }
    if what not in faults:
        raise unknown("way to break it", what, ("kill", *faults, "clear"))
    fault: InjectedFault = {**faults[what], "seconds": seconds}
    controls.fault(fault)
    return {"said": f"the emulated AWS: {what} for {seconds:g} s", "fault": fault}


def _check_offering(running: Running, offering: str) -> None:
    """Misconfigured where the service rents no such thing: nothing would happen."""
    spec = ServiceStore(connect(running.store), running.name).spec()
    known = {one.name for served in spec.models for one in served.offerings}
    if offering and offering not in known:
        raise unknown("offering", offering, sorted(known))
