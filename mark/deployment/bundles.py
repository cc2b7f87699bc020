"""The handlers' zips that a rollout needs: where they are, that they hold the models, and what makes them."""

from __future__ import annotations

import hashlib
import shlex
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mark.aws.names import HANDLERS, PROBE, REPORT, WEBHOOK
from mark.aws.resources import mails
from mark.config.service import BackendSettings
from mark.config.settings import Settings
from mark.domain.errors import Misconfigured
from mark.live.models import LiveModel
from mark.service_spec import BackendSpec

BUILDER = "mark.infra.bundles.build"
DOCKERFILE = "infra/image/infer.Dockerfile"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A handler's zip and where in the service's bucket it lies: its key changes when it does."""

    handler: str
    path: Path
    key: str


def overflowing(models: Sequence[LiveModel]) -> list[LiveModel]:
    """The models that Lambda answers for too."""
    return [model for model in models if model.served.overflow is not None]


def find_bundles(settings: Settings, models: Sequence[LiveModel]) -> tuple[Bundle, ...]:
    """The bundles of a service. Misconfigured, with the command that makes them, where they are not right."""
    functions, mailed = settings.rollout.functions, mails(settings.rollout.report)
    in_zip = overflowing(models) if functions.infer_image is None else []
    posted = settings.rollout.alarms.webhook is not None
    wanted = {PROBE: functions.probe, REPORT: mailed, WEBHOOK: posted}
    handlers = (name for name in HANDLERS if wanted.get(name, True))
    names = (*(("infer",) if in_zip else ()), *handlers)
    return tuple(_found(functions.bundles, name, in_zip) for name in names)


def fits_function(settings: Settings, backend: BackendSettings) -> bool:
    """True where a function can answer for the model: there is an image for it, or the zip holds its module."""
    functions, module = settings.rollout.functions, _module_of(backend)
    if functions.infer_image is not None or not module:
        return bool(module)
    try:
        with zipfile.ZipFile(functions.bundles / "infer.zip") as archive:
            return not _files_of(module).isdisjoint(archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return False


def _found(folder: Path, name: str, in_zip: Sequence[LiveModel]) -> Bundle:
    path = folder / f"{name}.zip"
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise Misconfigured(f"there is no bundle {path}: {_makes(folder, in_zip)}") from error
    if name == "infer":
        _check_models(path, in_zip)
    return Bundle(handler=name, path=path, key=f"lambda/{name}-{digest[:16]}.zip")


def _check_models(path: Path, in_zip: Sequence[LiveModel]) -> None:
    """Misconfigured where a function would not find its model."""
    wanted = {model.name: module for model in in_zip if (module := _module_of(model.served.backend))}
    if not wanted:
        return
    try:
        with zipfile.ZipFile(path) as archive:
            there = set(archive.namelist())
    except (OSError, zipfile.BadZipFile) as error:
        raise Misconfigured(f"{path} is not a zip: {_makes(path.parent, in_zip)}") from error
    for name, module in wanted.items():
        if not _files_of(module) & there:
            by_module = f"{_makes(path.parent, in_zip)}; one that is too large for a zip"
            which = "one that is named by its file" if _is_file(module) else by_module
            raise Misconfigured(
                f"{path} holds no {module}, which is the model {name}: {which} goes into an image "
                f"(rollout.functions.infer_image, {DOCKERFILE}), or does without Lambda "
                "(offerings: {overflow: false})"
            )


def _files_of(module: str) -> set[str]:
    """Names of which a zip holds one where it has the module, or the file."""
    place = module.replace(".", "/")
    return {Path(module).as_posix()} if _is_file(module) else {f"{place}.py", f"{place}/__init__.py"}


def _is_file(module: str) -> bool:
    return module.endswith(".py")


def _module_of(backend: BackendSettings | BackendSpec) -> str:
    """The module of a model that is a class, or its file where it is named by that; empty for other backends."""
    module, colon, _ = backend.target.rpartition(":")
    return module if backend.kind == "python" and colon else ""


def _makes(folder: Path, in_zip: Sequence[LiveModel]) -> str:
    """The exact command, to be pasted as it is."""
    modules = sorted(
        {module for model in in_zip if (module := _module_of(model.served.backend)) and not _is_file(module)}
    )
    words = [
        sys.executable,
        "-P",
        "-m",
        BUILDER,
        "--to",
        str(folder.absolute()),
        *(w for module in modules for w in ("--model", module)),
    ]
    return f"`{shlex.join(words)}` makes it"
