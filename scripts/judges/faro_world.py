"""Faro's simulator (EuroSys '25, beomyeol/faro), run from a clone of its repository.

Nothing of it is copied. Its modules are imported from the clone; what they import for a real cluster only (Ray,
Kubernetes, Lightning) is replaced by empty modules. It keeps its clock and its statistics in globals: one run a
process.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import os
import pickle
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd

WORKLOAD = "top9_twitter_1_1600_avgproc_min_int5m_reduced_6hr_augmented"
CONFIGS = f"experiments/{WORKLOAD}/max_queue_50_one"
TRAINING_DAYS = f"experiments/{WORKLOAD}/{WORKLOAD.removesuffix('_augmented')}.pkl"
STORED = f"results/faro/resnet34-sim/{WORKLOAD}/latency_stats.pkl"
STORED_AT = "max_queue_50_one_2"
JUDGED_DAY = 11
UNIT_S = 60.0
OBJECTIVE_MS = 720.0
PROCESSING_MS = 180.0
"""Processing time of a request that its policies are given (its configurations)."""
CLUSTER_ONLY = {
    "ray": (),
    "ray.serve": (),
    "ray.serve._private": (),
    "kubernetes": (),
    "kubernetes.utils": ("parse_quantity",),
    "pytorch_lightning": ("seed_everything",),
    "aiohttp": (),
    "requests": (),
    "k8s_utils": (
        "list_ray_head_cluster_ips",
        "get_nodes_free_resources",
        "parse_quantity",
        "get_ray_cluster_pods",
        "get_available_resource_quota",
    ),
}
"""Modules that only a real cluster needs, with the names that are imported from them."""
BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}

MakePolicy = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One run, in the measures of Faro's own analysis (`scripts/simulation/run_suite.py`)."""

    #: Mean over minutes and jobs of the share of requests that missed the objective, %.
    violations: float
    #: Share of all requests that met the objective, %.
    in_time: float
    #: Replicas that served, on average over time.
    replicas: float
    #: Replicas that served at most.
    most: float
    #: Violations of each job, %.
    by_job: tuple[float, ...] = ()


class Faro:
    """A clone of Faro's repository with its simulator's modules imported."""

    def __init__(self, root: Path) -> None:
        """Import from `root`; the process works in its folder `src` from then on, as its paths ask for."""
        self.root = root.resolve()
        _stand_in_for_cluster(self.root)
        sys.path.insert(0, str(self.root / "src"))
        os.chdir(self.root / "src")
        # Python 3.11 takes no default of a dataclass that cannot be hashed, and Action.resources has one.
        importlib.import_module("resources").Resources.__hash__ = object.__hash__
        self._controller = importlib.import_module("simulation.controller")
        self._simulation = importlib.import_module("simulation.simulation")
        self._metric = importlib.import_module("simulation.metric")
        self.action: Callable[..., Any] = importlib.import_module("autoscale").Action

    def config(self, policy: str, cap: int, seed: int) -> dict[str, Any]:
        """A shipped configuration with another number of CPUs and another seed of arrivals."""
        load = importlib.import_module("configuration").load_config
        config: dict[str, Any] = load(self.root / CONFIGS / "36_cpus" / "poisson_42" / policy / "config.yaml")
        for node in config["nodes"]:
            node["resources"]["cpu"] = cap
        for spec in config["load_specs"]:
            spec["params"]["seed"] = seed
        return config

    def register(self, name: str, make: MakePolicy) -> None:
        """Let configurations name a policy of ours."""
        known = self._controller.create_policy

        def create(policy_name: str, *args: Any, **kwargs: Any) -> Any:
            return make(*args, **kwargs) if policy_name == name else known(policy_name, *args, **kwargs)

        self._controller.create_policy = create  # type: ignore[attr-defined]

    def answers_of(self, job: str) -> Callable[[float], list[tuple[float, bool]]]:
        """A function: the requests of a job that ended after a time, when and whether in time."""

        def answers(since: float) -> list[tuple[float, bool]]:
            return [
                (item.timestamp, bool(item.task.succeeded) and item.task.elapsed_time() * 1e3 <= OBJECTIVE_MS)
                for item in self._metric.get_tasks(job, since)
            ]

        return answers

    def run(self, config: dict[str, Any]) -> Outcome:
        """Run a configuration to its end."""
        replicas = _Replicas()
        log = logging.getLogger("simulation.inference")
        log.setLevel(logging.INFO)
        log.addHandler(replicas)
        log.propagate = False
        self._simulation.run(config)
        return measured(self._metric.to_df(), replicas.changes)

    def training_rates(self) -> dict[str, tuple[float, ...]]:
        """Requests/s of each job in the minutes of the ten days before the judged one, oldest first."""
        days = pd.read_pickle(self.root / TRAINING_DAYS)  # noqa: S301 - of the clone that is run anyway
        days = days[days.day < JUDGED_DAY]
        return {
            f"serve-cluster{i}": tuple(
                float(count) / UNIT_S
                for day in days[days.hash_func == name].sort_values("day").counts
                for count in day
            )
            for i, name in enumerate(sorted(days.hash_func.unique()))
        }

    def rates(self) -> dict[str, tuple[float, ...]]:
        """Requests/s of each job in the minutes of the judged day."""
        lines = (self.root / "experiments" / WORKLOAD / "input.json").read_text().splitlines()
        counts = [json.loads(line)["counts"] for line in lines]
        return {job: tuple(sum(unit[job].values()) / UNIT_S for unit in counts) for job in counts[0]}


def stored(root: Path, cap: int, path: str) -> tuple[Outcome, int]:
    """The mean of Faro's stored results of a policy at a cap, and over how many seeds of arrivals."""
    with (root / STORED).open("rb") as file:
        found = {
            str(where): stats
            for where, stats in pickle.load(file).items()  # noqa: S301 - of the clone that is run anyway
        }
    seeds = [
        stats
        for where, stats in found.items()
        if f"/{STORED_AT}/{cap}_cpus/" in where and where.split("/poisson_")[1].split("/", 1)[1] == path
    ]
    if not seeds:
        raise KeyError(f"no stored result of {path} at {cap} CPUs")
    average = {key: float(np.mean([one[key] for one in seeds])) for key in seeds[0] if key != "utility"}
    return Outcome(
        violations=100.0 * (1.0 - average["avg_total_slo_rate"]),
        in_time=average["slo_rate"],
        replicas=average["avg_used_replicas"],
        most=average["max_used_replicas"],
    ), len(seeds)


def measured(tasks: pd.DataFrame, changes: Sequence[tuple[float, str, int]]) -> Outcome:
    """The outcome of requests and of changes of replicas (time, job, replicas from then on)."""
    late_ms = (tasks.end_ts - tasks.arrival_ts) * 1e3
    late_ms[~tasks.succeeded.astype(bool)] = np.inf
    kept = pd.DataFrame(
        {"job": tasks.cluster_name, "minute": tasks.arrival_ts // UNIT_S, "kept": late_ms <= OBJECTIVE_MS}
    )
    by_minute = kept.groupby(["minute", "job"])["kept"].mean().unstack()
    end_at = float(tasks.end_ts.max())
    total, most = _replicas_over(changes, end_at)
    return Outcome(
        violations=100.0 * float(1.0 - by_minute.mean(axis=1).mean()),
        in_time=100.0 * float((late_ms < OBJECTIVE_MS).mean()),
        replicas=total / end_at,
        most=most,
        by_job=tuple(round(100.0 * float(1.0 - share), 3) for share in by_minute.mean()),
    )


def _replicas_over(changes: Sequence[tuple[float, str, int]], end_at: float) -> tuple[float, float]:
    """Replica seconds until `end_at`, and the most replicas at any time."""
    serving: dict[str, int] = {}
    total = most = 0.0
    last_at = 0.0
    for at, job, count in sorted(changes, key=lambda change: change[0]):
        if at > end_at:
            break
        total += (at - last_at) * sum(serving.values())
        last_at, serving[job] = at, count
        most = max(most, sum(serving.values()))
    return total + (end_at - last_at) * sum(serving.values()), most


class _Replicas(logging.Handler):
    """Rows that Faro's own analysis reads from the log: each change of a job's replicas."""

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[tuple[float, str, int]] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg.endswith("#replicas: %d") and isinstance(record.args, tuple):
            at, job, _, count = record.args
            self.changes.append((float(str(at)), str(job), int(str(count))))


def _stand_in_for_cluster(root: Path) -> None:
    for name, attributes in CLUSTER_ONLY.items():
        module = ModuleType(name)
        module.__path__ = []
        for attribute in attributes:
            setattr(module, attribute, STAND_INS.get(attribute))
        sys.modules[name] = module
    own = "ray.serve._private.custom_autoscaling"
    spec = importlib.util.spec_from_file_location(own, root / "ray/serve/_private/custom_autoscaling.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[own] = module
    spec.loader.exec_module(module)


def _quantity(value: object) -> Decimal:
    """Kubernetes' quantities, as far as Faro's configurations use them."""
    text = str(value)
    return Decimal(text[:-2]) * BINARY[text[-2:]] if text[-2:] in BINARY else Decimal(text)


def _seed(seed: int | None) -> None:
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - Faro draws from the global generators


STAND_INS: dict[str, Callable[..., Any]] = {"parse_quantity": _quantity, "seed_everything": _seed}
