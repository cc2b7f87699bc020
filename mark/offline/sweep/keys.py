"""Keys of results: digests of all that decides them, so that a sweep resumes and never mixes.

Files count by their content, not by where they lie; code counts by the sources that make a result's document and
those of the forecaster's package, and by the versions of what both compute with.
"""

from __future__ import annotations

import functools
import hashlib
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import mark
from mark.catalog.load import shipped_sets
from mark.catalog.shipped_models import MODEL_FILE, PROFILE_FILE, folder_of
from mark.config.served import is_service
from mark.config.settings import USUAL_QOS_POLICY, Settings
from mark.dispatch.variants.qos import QosRule
from mark.domain.documents import json_text
from mark.plugins.files import files_of
from mark.plugins.load import load_forecaster, load_policy
from mark.policies.bundles import is_own
from mark.simulator.traces.trace import Trace

HOUSE = Path(mark.__file__).parent
DECIDING = (
    *("domain", "ports.py", "plugins", "planner", "dispatch", "catalog", "cloudmodel", "controller", "policies"),
    *(
        "simulator",
        "adapters.py",
        "service_spec.py",
        "config/disks.py",
        "config/footprint.py",
        "config/parts.py",
        "config/policies.py",
        "config/prices.py",
    ),
    "config/served.py",
    *("config/capacity.py", "config/events.py", "config/training.py", "config/account.py"),
    "config/settings.py",
    "config/trace.py",
    *(
        "offline/experiments.py",
        "offline/learned_policy.py",
        "offline/replay_outcome.py",
        "offline/service_members.py",
    ),
    *("offline/simulate.py", "offline/sweep/job.py", "offline/sweep/served.py", "offline/workloads.py"),
    *("report/service/service_cell.py", "report/service/service_document.py"),
    "report/service/service_verdict.py",
    *(
        "report/formatting.py",
        "report/runs/comparison.py",
        "report/runs/run_documents.py",
        "report/runs/rivals.py",
        "report/runs/run_verdict.py",
        "report/verdict.py",
        "report/verdict_options.py",
    ),
)
"""What of `mark` a result's document depends on; the rest shows it or serves live."""
COMPUTES_WITH = ("numpy", "scipy", "numba", "pulp", "highspy", "statsmodels", "lightgbm", "torch", "pydantic")
"""Distributions whose versions decide figures, too; one that is absent is a version of its own."""


def code_digest() -> str:
    """Of mark's own sources and data, as they lie on the disk now, and of what they compute with."""
    digest = hashlib.sha256(f"{mark.__version__} {platform.python_version()}".encode())
    for name in COMPUTES_WITH:
        digest.update(f" {name} {_version(name)}".encode())
    for name in DECIDING:
        _add_tree(digest, HOUSE / name)
    return digest.hexdigest()[:16]


@functools.cache
def forecaster_digest(name: str, load: Callable[[str], object] = load_forecaster) -> str:
    """Of the package, or the files, that a forecaster comes from; its name alone where it has no source.

    load: of a policy, what loads that.
    """
    module = getattr(load(name), "__module__", "")
    where, _, attribute = name.rpartition(":")
    is_file = where.endswith(".py")
    digest = hashlib.sha256((attribute if is_file else name).encode())
    if is_file:
        for file in files_of(Path(where).expanduser()):
            _add_tree(digest, file)
        return digest.hexdigest()[:16]
    depth = 2 if module.startswith("mark.") else 1  # ours change with `mark.predictors`, not with all of MArk
    found = sys.modules.get(".".join(module.split(".")[:depth]))
    for folder in getattr(found, "__path__", ()):
        _add_tree(digest, Path(folder))
    if found is not None and not hasattr(found, "__path__") and found.__file__:
        _add_tree(digest, Path(found.__file__))
    return digest.hexdigest()[:16]


def load_digest(traces: Sequence[Trace]) -> str:
    """Of the traces of all that is served: of one that trace's."""
    digests = [trace_digest(trace) for trace in traces]
    return digests[0] if len(digests) == 1 else hashlib.sha256(" ".join(digests).encode()).hexdigest()[:16]


def trace_digest(trace: Trace) -> str:
    """Of all that a trace is: its name, its load, and what was noted when it was read."""
    identity = (trace.name, trace.start_at, trace.bin_s, trace.whole_counts, trace.notes, len(trace.rates_rps))
    digest = hashlib.sha256(repr(identity).encode())
    digest.update(trace.rates_rps.tobytes())
    if trace.arrivals_s is not None:
        digest.update(trace.arrivals_s.tobytes())
    return digest.hexdigest()[:16]


BILLED: Any = {"gateways": True, "controllers": True, "aws": True, "serve": {"__all__": {"model"}}}
"""Of the service around one model that is replayed, what its footprint is counted by."""
SERVED: Any = {"gateways": True, "controllers": True, "aws": True, "serve": True}
"""Of a service of which all models are replayed."""


def portable(settings: Settings) -> dict[str, Any]:
    """The settings as JSON holds them, files by their full path, without what no replay depends on."""
    one = not is_service(settings)
    tree: dict[str, Any] = settings.model_dump(mode="json", exclude={"service", "out"})
    if "rollout" not in settings.model_fields_set:  # where it is named, a replay has what it deploys
        del tree["rollout"]
    tree["service"] = settings.service.model_dump(mode="json", include=BILLED if one else SERVED)
    for served in () if one else tree["service"]["serve"]:
        _place_files(served)
    for key in ("models", "prices", "service_prices"):
        tree[key] = str(Path(tree[key]).absolute()) if tree[key] else None
    owned = settings.account.commitments
    tree["account"]["commitments"] = str(owned.absolute()) if owned else None
    del tree["account"]["read_commitments"]
    tree["qos_policy"] = str((settings.qos_policy or USUAL_QOS_POLICY).absolute())
    tree["policies"] = [_absolute_plugin(name) for name in tree["policies"]]
    _place_files(tree)
    return tree


def _place_files(tree: dict[str, Any]) -> None:
    """Files of a model, or of all, by their full path."""
    if tree["profiles"] is not None:
        tree["profiles"] = [
            name if name in shipped_sets() else str(Path(name).absolute()) for name in tree["profiles"]
        ]
    tree["forecaster"] = _absolute_plugin(tree["forecaster"]) if tree["forecaster"] else None
    backend = tree.get("backend")
    if backend is not None and backend["kind"] == "python":
        backend["folder"] = str(Path(backend["folder"]).absolute()) if backend["folder"] else None
        backend["target"] = _absolute_plugin(backend["target"])


def job_key(tree: Mapping[str, Any], *, trace: str, code: str, forecasters: Sequence[str] = ()) -> str:
    """The key of a result: of `portable` settings, both digests and, for a replay, its forecasters' names."""
    counted = {**tree, "trace": {**tree["trace"], "file": trace}, "code": code}
    for key in ("models", "prices", "service_prices"):
        counted[key] = _file_digest(tree[key]) if tree[key] else None
    owned = tree["account"]["commitments"]
    counted["account"] = {**tree["account"], "commitments": _file_digest(owned) if owned else None}
    counted["qos_policy"] = _policy_digest(tree["qos_policy"]) if tree["dispatch"] == QosRule.LEARNED else None
    counted["profiles"] = _profile_digests(tree["profiles"])
    counted["service"] = _counted_service(tree["service"])
    # the last value stands in for a forecaster that fails
    names = (*forecasters, "last-value") if forecasters else ()
    counted["forecaster"] = [forecaster_digest(name) for name in names]
    counted["policies"] = [
        forecaster_digest(name, load_policy) if is_own(name) else name for name in tree["policies"]
    ]
    return hashlib.sha256(json_text(counted, sort_keys=True, allow_nan=True).encode()).hexdigest()[:24]


def _counted_service(service: Mapping[str, Any]) -> dict[str, Any]:
    """A service, its models' files by their content: what is served where they lie is the same."""
    return {**service, "serve": [_counted_model(one) for one in service["serve"]]}


def _counted_model(one: Mapping[str, Any]) -> dict[str, Any]:
    counted = dict(one)
    if one.get("profiles") is not None:
        counted["profiles"] = _profile_digests(one["profiles"])
    if one.get("forecaster"):
        counted["forecaster"] = forecaster_digest(one["forecaster"])
    if one.get("trace"):  # its content is part of the load's digest
        counted["trace"] = {**one["trace"], "file": None}
    backend = one.get("backend")
    beside = None
    if backend is not None and backend["kind"] == "python":
        beside = folder_of(backend["target"], Path(backend["folder"]) if backend["folder"] else None)
    if beside is not None:  # a model's description and times may lie beside its code
        files = [beside / name for name in (MODEL_FILE, PROFILE_FILE)]
        counted["backend"] = {
            "kind": "python",
            "files": [_file_digest(str(file)) for file in files if file.is_file()],
        }
    return counted


def _profile_digests(profiles: Sequence[str]) -> list[str]:
    return [name if name in shipped_sets() else _file_digest(name) for name in profiles]


def _absolute_plugin(name: str) -> str:
    """`file.py:Name` with the file's full path; another name as it is."""
    path, colon, attribute = name.partition(":")
    return f"{Path(path).expanduser().absolute()}{colon}{attribute}" if path.endswith(".py") else name


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "absent"


def _file_digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]


def _policy_digest(path: str) -> str | None:
    """None for one that is missing, which is refused when a replay reads it."""
    return _file_digest(path) if Path(path).is_file() else None


def _add_tree(digest: hashlib._Hash, path: Path) -> None:
    for file in _files(path):
        digest.update(f"{file.relative_to(path.parent)} ".encode())
        digest.update(file.read_bytes())


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    else:
        yield from sorted(file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
