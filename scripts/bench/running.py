"""Memory of each process of a service that runs on the emulated AWS, by what it is.

Models of one line of numpy are served, so that the memory of agents and of models' processes is MArk's own.
PSS counts a page that n processes share as an n-th of it in each; RSS counts it in each. All of it is on loopback,
in a folder that is removed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

MARK = str(Path(sys.executable).with_name("mark"))
UP_S, LOAD_S, DOWN_S, ANSWER_S = 600.0, 300.0, 120.0, 30.0
"""Longest that a command, and an answer, may take."""
OBJECTIVE_MS = 200.0
NAME = "bench"

CODE = """
from mark.domain.tensor import TensorSpec


class Tiny:
    inputs = (TensorSpec(name="x", datatype="FP32", shape=(-1, 4)),)
    outputs = (TensorSpec(name="y", datatype="FP32", shape=(-1, 4)),)

    def predict(self, tensors):
        return {"y": tensors["x"] * 2}
"""
PROFILE = {
    "instance_type": "c5.large",
    "evidence": "stand-in",
    "machine": "none",
    "source": "made up for a measurement of memory",
    "date": "2026-11-28",
    "cv": 0.1,
    "latency_ms_by_batch": {"1": 2.0, "2": 3.0, "4": 5.0, "8": 9.0},
}
DESCRIPTION = {
    "latency_ms": OBJECTIVE_MS,
    "target_percent": 99.0,
    "objective_source": "made up for a measurement of memory",
    "memory_gib": 0.25,
    "memory_source": "made up for a measurement of memory",
    "payload_mib": 0.001,
    "payload_source": "made up for a measurement of memory",
    "architectures": ["amd64"],
    "accelerators": [],
    "cpu": True,
    "redispatch": True,
}


@dataclass(frozen=True, slots=True)
class Memory:
    """Of one process, in MiB."""

    rss: float
    pss: float
    peak: float


def run_service(models: int, *, rps: float, seconds: float) -> dict[str, Memory]:
    """Memory of each process by its name after so many seconds of load on the first model.

    Every model has answered a request by then.
    """
    with tempfile.TemporaryDirectory(prefix="mark-bench-") as name:
        home = Path(name)
        _mark(home, UP_S, "up", "--config", str(_write(home, models, rps)), "--detach")
        try:
            asked = ("--name", NAME, "--model", _model(0), "--rate", f"{rps:g}", "--duration", f"{seconds:g}")
            _mark(home, LOAD_S + seconds, "load", *asked)
            _ask_each(home)
            return {process: memory_of(pid) for process, pid in _processes(home)}
        finally:
            _mark(home, DOWN_S, "down", "--name", NAME)


def most_of(found: Mapping[str, Memory], process: str) -> Memory:
    """Of the processes of that kind, the one with the highest RSS."""
    return max((memory for name, memory in found.items() if name.startswith(process)), key=lambda one: one.rss)


def memory_of(pid: int) -> Memory:
    """A process's memory now, and its highest RSS."""
    rollup = _fields(Path(f"/proc/{pid}/smaps_rollup"))
    return Memory(rss=rollup["Rss"], pss=rollup["Pss"], peak=_fields(Path(f"/proc/{pid}/status"))["VmHWM"])


def _fields(path: Path) -> dict[str, float]:
    """MiB by name, of lines such as `Rss:  1024 kB`."""
    lines = (line.split() for line in path.read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) / 1024 for words in lines if words[-1:] == ["kB"]}


def _model(number: int) -> str:
    return f"tiny-{number:02}"


def _write(home: Path, models: int, rps: float) -> Path:
    names = [_model(number) for number in range(models)]
    (home / "tiny.py").write_text(CODE)
    described = [{"name": name, **DESCRIPTION} for name in names]
    (home / "models.json").write_text(json.dumps({"format": "mark-models/1", "models": described}))
    profiles = [{"model": name, **PROFILE} for name in names]
    (home / "profiles.json").write_text(json.dumps({"format": "mark-profiles/1", "profiles": profiles}))
    serve = [
        {
            "model": name,
            "backend": {"kind": "python", "target": "tiny.py:Tiny"},
            "expected_rps": rps if number == 0 else 1.0,
            "offerings": {"overflow": False},
        }
        for number, name in enumerate(names)
    ]
    settings: dict[str, Any] = {
        "models": "models.json",
        "profiles": ["profiles.json"],
        "simulate": {"world": "ideal"},
        "service": {"name": NAME, "port": 0, "status_port": 0, "serve": serve},
    }
    path = home / "mark.yaml"
    path.write_text(json.dumps(settings))  # JSON is YAML
    return path


def _environment(home: Path) -> dict[str, str]:
    return {**os.environ, "MARK_STATE": str(home / "state")}


def _mark(home: Path, limit_s: float, *arguments: str) -> None:
    subprocess.run(  # noqa: S603 - our own command
        [MARK, *arguments],
        cwd=home,
        env=_environment(home),
        check=True,
        timeout=limit_s,
        stdout=subprocess.DEVNULL,
    )


def _ask_each(home: Path) -> None:
    """One request for each model; an error where one gets no answer."""
    running = _running(home)
    for model in running["models"]:
        url = f"{running['gateway']}/v2/models/{model['name']}/infer"
        with urlopen(url, json.dumps(model["example"]).encode(), timeout=ANSWER_S) as answer:  # noqa: S310 - on loopback
            answer.read()


def _running(home: Path) -> Mapping[str, Any]:
    running: Mapping[str, Any] = json.loads((home / "state" / NAME / "service.json").read_text())
    return running


def _processes(home: Path) -> Iterator[tuple[str, int]]:
    """Names and ids of the service's processes. Below the emulated AWS: functions, and what forks agents."""
    processes = _running(home)["processes"]
    yield from processes.items()
    for number, pid in enumerate(children(processes["aws"])):
        yield f"aws-{number}", pid
        for agent in children(pid):
            yield f"agent-{agent}", agent
            for tenant in children(agent):
                yield f"tenant-{tenant}", tenant


def children(pid: int) -> list[int]:
    """Ids of the processes that it started."""
    files = Path(f"/proc/{pid}/task").glob("*/children")
    return sorted(int(child) for file in files for child in file.read_text().split())
