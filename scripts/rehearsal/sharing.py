"""Rehearsed with three models that share an instance; two bring one library, in versions that exclude each other.

Instances do not run on ministack. What one does is done here in its place, with MArk's own code and the bucket's
own files: it fetches each version as the process beside its agent would, and answers as its agent would.
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
import zipfile
from contextlib import chdir
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from mark.domain.models.profile import Parallelism
from mark.live.models import service_spec
from mark.live.processes.cloud_controller import deployed, first_versions, known_tensors, live_models
from mark.live.processes.version_fetch import unpack
from mark.plugins.load import make_model
from mark.plugins.packages import kind_here
from mark.protocols.oip.bodies import compose_infer
from mark.service_spec import ServedModel
from mark.serving.backends.replicas import ReplicatedBackend
from scripts.rehearsal import settings
from scripts.rehearsal.folder import RehearsalFolder, check

SERVICE = "sharing"
FACTORS = {"one": 1, "two": 2, "three": 3}
OWN_PACKAGES = ("one", "two")
OBJECT = {"latency_ms": 1000.0, "target_percent": 98.0, "memory_gib": 0.25, "payload_mib": 0.001, "cpu": True}
MODEL = """
from mark.domain.tensor import TensorSpec
{more}


class Model:
    inputs = (TensorSpec(name="x", datatype="FP32", shape=(-1, 1)),)
    outputs = (TensorSpec(name="y", datatype="FP32", shape=(-1, 1)),)

    def predict(self, tensors):
        return {{"y": tensors["x"] * FACTOR}}
"""


def config() -> dict[str, Any]:
    """The settings: three models, on a type that they share."""
    found = settings.settings("lean", service=SERVICE)
    serve = [
        {
            "model": name,
            "backend": {"kind": "python", "target": f"{name}/model.py:Model"},
            "expected_rps": 20,
            "offerings": {"overflow": False, "types": ["c5.large"]},
        }
        for name in FACTORS
    ]
    found["service"]["serve"] = serve
    return found | {
        "models": "models.json",
        "profiles": ["profiles.json"],
        "policies": ["hedged"],
        "market": "on-demand",
    }


def lays_three_models(there: RehearsalFolder) -> str:
    """Code, needs and profiles; a wheel each for the two that bring a library."""
    told = {"objective_source": "a rehearsal", "memory_source": "a rehearsal", "payload_source": "a rehearsal"}
    needs = {"architectures": ["amd64"], "accelerators": [], "redispatch": True}
    profile = {"instance_type": "c5.large", "evidence": "assumed", "source": "a rehearsal", "formula": "as given"}
    latency = {"latency_ms_by_batch": {"1": 2.0, "4": 4.0}}
    models = [{"name": name, **OBJECT, **told, **needs} for name in FACTORS]
    profiles = [{"model": name, **profile, **latency} for name in FACTORS]
    _write(there.folder / "models.json", {"format": "mark-models/1", "models": models})
    _write(there.folder / "profiles.json", {"format": "mark-profiles/1", "profiles": profiles})
    for name, factor in FACTORS.items():
        folder = there.folder / name
        folder.mkdir()
        own = name in OWN_PACKAGES
        (folder / "model.py").write_text(
            MODEL.format(more="from shade import FACTOR" if own else f"FACTOR = {factor}"), encoding="utf-8"
        )
        if own:
            _lay_library(folder, factor)
    return f"{', '.join(FACTORS)}; the library of {' and '.join(OWN_PACKAGES)} in two versions"


def refuses_what_does_not_resolve(there: RehearsalFolder) -> str:
    """One line with the model and the requirement, before anything is made."""
    requirements = there.folder / "two" / "requirements.txt"
    before = requirements.read_text(encoding="utf-8")
    requirements.write_text(f"{before}./shade-9.0-py3-none-any.whl\n", encoding="utf-8")
    said = there.run("deploy", "--yes", expect=2).strip().splitlines()[-1]
    check("two:" in said and "shade-9.0" in said, f"model and requirement are named: {said}")
    check(not there.stacks(), "nothing was made")
    requirements.write_text(before, encoding="utf-8")
    return said


def deploys_them(there: RehearsalFolder) -> str:
    """All stacks, and a bundle for each model's version."""
    there.run("deploy", "--yes")
    there.run("diff")
    bundles = _bundles(there)
    check(len(bundles) == len(FACTORS), f"a bundle for each model: {bundles}")
    return f"{len(there.stacks())} stacks; {len(bundles)} bundles"


def plans_to_share(there: RehearsalFolder) -> str:
    """As a controller understands its environment, without the models' packages."""
    environment = _environment(there)
    known = known_tensors(environment)
    check(sorted(known) == sorted(OWN_PACKAGES), f"those with packages are known without: {sorted(known)}")
    with chdir(there.folder):  # as it is in the image
        told, _ = deployed(environment)
        models = live_models(told, "", known=known)
    check(service_spec(told, models).shares, "the models share instances")
    return "a controller begins, and shares instances among the three"


def serves_them_from_the_bucket(there: RehearsalFolder) -> str:
    """An instance fetches each version, and each answers by its own version of the library, side by side."""
    environment, objects, bucket = _environment(there), there.client("s3"), _bucket(there)
    with chdir(there.folder):
        told, _ = deployed(environment)
        served = first_versions(live_models(told, "", known=known_tensors(environment)), environment)

    def open_bundle(version: str) -> IO[bytes]:
        body = objects.get_object(Bucket=bucket, Key=f"artifacts/versions/{version}.tar.gz")["Body"]
        return cast("IO[bytes]", body)

    with tempfile.TemporaryDirectory(prefix="mark-versions-") as folder:
        for one in served:
            unpack(open_bundle, one.version, Path(folder))
        answers = asyncio.run(_answers([_backend(one, Path(folder)) for one in served]))
    wanted = [5.0 * FACTORS[one.name] for one in served]
    check(answers == wanted, f"each by its own library: {answers}, not {wanted}")
    return f"5 times {', '.join(map(str, FACTORS.values()))} is {', '.join(f'{one:g}' for one in answers)}"


def removes_them(there: RehearsalFolder) -> str:
    """All but the archive."""
    there.run("destroy", "--yes")
    left = list(there.stacks())
    check(left == [f"mark-{SERVICE}-archive"], f"the archive alone stays, not {left}")
    return "gone"


def _backend(served: ServedModel, folder: Path) -> ReplicatedBackend:
    def here(path: str) -> str:
        return path.replace("/versions", str(folder), 1)

    spec = served.backend
    make = partial(make_model, here(spec.target), Path(here(spec.folder)))
    packages = Path(here(spec.packages)) / kind_here() if spec.packages else None
    return ReplicatedBackend(make, Parallelism(), name=served.name, packages=packages)


async def _answers(backends: list[ReplicatedBackend]) -> list[float]:
    try:
        await asyncio.gather(*(backend.start() for backend in backends))
        body = compose_infer({"x": np.full((1, 1), 5, np.float32)}, path="/v2/models/m/infer", binary=False)
        replies = [(await backend.infer([body]))[0] for backend in backends]
        return [json.loads(reply.body)["outputs"][0]["data"][0] for reply in replies]
    finally:
        for backend in backends:
            await backend.close()


def _bundles(there: RehearsalFolder) -> list[str]:
    listed = there.client("s3").list_objects_v2(Bucket=_bucket(there), Prefix="artifacts/versions/")
    return [one["Key"] for one in listed.get("Contents", ())]


def _bucket(there: RehearsalFolder) -> str:
    names: list[str] = [one["Name"] for one in there.client("s3").list_buckets()["Buckets"]]
    return next(name for name in names if name.startswith(f"mark-{SERVICE}-"))


def _environment(there: RehearsalFolder) -> dict[str, str]:
    """What a node's start script says to its controller, as far as it names no resource."""
    script = there.node_script(f"mark-{SERVICE}-nodes")
    found = re.findall(r"^(MARK_SETTINGS|MARK_FILES|MARK_VERSIONS)=(.*)$", script, re.MULTILINE)
    return {**dict(found), "MARK_STORE_URL": "rediss+lease://x"}


def _write(path: Path, document: object) -> None:
    path.write_text(json.dumps(document), encoding="utf-8")


def _lay_library(folder: Path, factor: int) -> None:
    about = f"shade-{factor}.0.dist-info"
    files = {
        "shade.py": f"FACTOR = {factor}\n",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: shade\nVersion: {factor}.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: mark\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/RECORD": "",
    }
    with zipfile.ZipFile(folder / f"shade-{factor}.0-py3-none-any.whl", "w") as packed:
        for name, text in files.items():
            packed.writestr(name, text)
    (folder / "requirements.txt").write_text(f"./shade-{factor}.0-py3-none-any.whl\n", encoding="utf-8")
