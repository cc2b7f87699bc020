"""Zoos: made-up services of many models, for `mark simulate --config`.

`python -m scripts.acceptance.zoo FOLDER --seed 1` writes FOLDER/service.yaml with its models, profiles and traces,
two days of each: the first is history, the second is replayed. Loads are daily curves with peaks at unlike hours.

- cpu: 17 small models and 3 heavy ones on CPUs, with Lambda beside. Times on one type are drawn, those on the
  others follow by the ratios of the published profiles of Inception-v3.
- gpu: 8 models on GPUs that Lambda cannot answer, at 5 to 60 requests/s. Times on a T4 are drawn; an L4 and an
  A10G are faster as MLPerf's and NVIDIA's published ResNet-50 and BERT are there.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml

from mark.simulator.rng import stream

DAY_S, BIN_S = 86_400, 60
LOOSEST, STRICTEST_MS = 4.0, 200.0
"""An objective is so many times what one request takes on the first type, and this at least."""
HEAVY_RPS = (30.0, 60.0, 100.0)
GPU_MODELS = 8
SOURCE = "drawn by scripts/acceptance/zoo.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """Machines of a zoo. speedups: over the first type. A batch of n takes 1 + each_more (n - 1) times one."""

    speedups: dict[str, float]
    batches: tuple[int, ...]
    each_more: float
    accelerators: tuple[str, ...] = ()


CPUS = Machines(
    speedups={"c5.large": 1.0, "c5.xlarge": 1.7254, "c5.2xlarge": 2.7148, "lambda": 1.0 / 1.8},
    batches=(1, 2, 4, 8),
    each_more=0.9,  # CPUs gain little by batches
)
GPUS = Machines(
    speedups={"g4dn.xlarge": 1.0, "g6.xlarge": 2.1, "g5.xlarge": 3.3},
    batches=(1, 2, 4, 8, 16),
    each_more=0.27,
    accelerators=("T4", "L4", "A10G"),
)


@dataclass(frozen=True, slots=True)
class ZooModel:
    """One model: what a request takes on the first type, its memory, and its peak."""

    name: str
    latency_ms: float
    peak_rps: float
    peak_hour: float
    memory_gib: float = 0.5

    @property
    def objective_ms(self) -> float:
        """Its latency objective."""
        return round(max(STRICTEST_MS, LOOSEST * self.latency_ms))


def draw(seed: int, small: int, heavy: int) -> list[ZooModel]:
    """Small ones take 3 to 300 ms for 0.01 to 20 requests/s in the mean, both drawn evenly by their logarithm."""
    rng = stream(seed, "zoo")

    def model(name: str, slowest_ms: float, mean_rps: float) -> ZooModel:
        latency_ms = float(np.exp(rng.uniform(np.log(3.0), np.log(slowest_ms))))
        return ZooModel(name, latency_ms, peak_rps=2.0 * mean_rps, peak_hour=float(rng.uniform(0.0, 24.0)))

    found = [
        model(f"small-{n + 1:02}", 300.0, float(np.exp(rng.uniform(np.log(0.01), np.log(20.0)))))
        for n in range(small)
    ]
    return found + [model(f"heavy-{n + 1}", 60.0, HEAVY_RPS[n % len(HEAVY_RPS)]) for n in range(heavy)]


def draw_for_gpus(seed: int, count: int) -> list[ZooModel]:
    """They take 10 to 100 ms on a T4, for 5 to 60 requests/s at their peaks, and 1 to 5 GiB."""
    rng = stream(seed, "gpu zoo")

    def between(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    return [
        ZooModel(
            name=f"gpu-{n + 1}",
            latency_ms=between(10.0, 100.0),
            peak_rps=between(5.0, 60.0),
            peak_hour=float(rng.uniform(0.0, 24.0)),
            memory_gib=round(between(1.0, 5.0), 1),
        )
        for n in range(count)
    ]


def write_zoo(folder: Path, models: list[ZooModel], seed: int, machines: Machines = CPUS) -> Path:
    """Write the service; returns its settings file."""
    folder.mkdir(parents=True, exist_ok=True)
    for model in models:
        (folder / f"{model.name}.csv").write_text(_trace(model, seed))
    described = [
        {
            "name": model.name,
            "latency_ms": model.objective_ms,
            "target_percent": 98.0,
            "objective_source": SOURCE,
            "memory_gib": model.memory_gib,
            "memory_source": SOURCE,
            "payload_mib": 0.05,
            "payload_source": SOURCE,
            "architectures": ["amd64"],
            "accelerators": list(machines.accelerators),
            "cpu": not machines.accelerators,
            "redispatch": True,
        }
        for model in models
    ]
    (folder / "models.json").write_text(json.dumps({"format": "mark-models/1", "models": described}, indent=1))
    profiles = [_profile(model, name, machines) for model in models for name in machines.speedups]
    (folder / "profiles.json").write_text(
        json.dumps({"format": "mark-profiles/1", "profiles": profiles}, indent=1)
    )
    settings = {
        "models": "models.json",
        "profiles": ["profiles.json"],
        "offerings": {"types": [name for name in machines.speedups if name != "lambda"]},
        "trace": {"start_s": DAY_S, "duration_s": DAY_S},
        "seed": seed,
        "service": {"serve": [{"model": model.name, "trace": {"file": f"{model.name}.csv"}} for model in models]},
    }
    if machines.accelerators:
        settings["rollout"] = {"machines": [{"architecture": "amd64", "accelerator": "nvidia"}]}
        settings["simulate"] = {"quotas": False}  # the usual ones are two small GPU instances
    path = folder / "service.yaml"
    path.write_text(yaml.safe_dump(settings, sort_keys=False))
    return path


def _trace(model: ZooModel, seed: int) -> str:
    """Requests in each minute of two days: half the peak in the mean, with a floor of a twentieth of it."""
    at = np.arange(0, 2 * DAY_S, BIN_S)
    wave = 0.5 + 0.5 * np.cos((at / 3600.0 - model.peak_hour) / 24.0 * 2.0 * np.pi)
    rates = model.peak_rps * np.maximum(wave, 0.05)
    counts = stream(seed, f"zoo {model.name}").poisson(rates * BIN_S)
    rows = (f"{second},{count}" for second, count in zip(at.tolist(), counts.tolist(), strict=True))
    return "\n".join(("t,requests", *rows)) + "\n"


def _profile(model: ZooModel, instance_type: str, machines: Machines) -> dict[str, object]:
    batches = (1,) if instance_type == "lambda" else machines.batches
    one_ms = model.latency_ms / machines.speedups[instance_type]
    return {
        "model": model.name,
        "instance_type": instance_type,
        "evidence": "measured",
        "source": SOURCE,
        "date": "2026-11-28",
        "machine": instance_type,
        "latency_ms_by_batch": {str(n): round(one_ms * (1.0 + machines.each_more * (n - 1)), 4) for n in batches},
    }


def main() -> None:
    """Write a zoo and say how to replay it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kind", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--small", type=int, default=17)
    parser.add_argument("--heavy", type=int, default=3)
    given = parser.parse_args()
    if given.kind == "gpu":
        path = write_zoo(given.folder, draw_for_gpus(given.seed, GPU_MODELS), given.seed, GPUS)
    else:
        path = write_zoo(given.folder, draw(given.seed, given.small, given.heavy), given.seed)
    print(f"mark simulate --config {path}")


if __name__ == "__main__":
    main()
