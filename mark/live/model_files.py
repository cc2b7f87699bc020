"""The version of a model: the hash of its files, and a copy of them that nobody edits.

Agents load a version from its copy, so that a file that is edited while a service runs never mixes into it:
neither in an instance that serves nor in one that is launched later. Files are those in the folder of the model's
own module, data and weights included, and all Python code of the folder that its imports are looked for in first.
What is installed is hashed by its module's own file, and not copied.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

from mark.config.settings import state_dir
from mark.domain.errors import Misconfigured
from mark.offline.own_model.targets import existing_source
from mark.plugins.version_hash import HowToLoad, file_hash, version_name
from mark.service_spec import BackendSpec

MOST_FILES, MOST_BYTES = 10_000, 4 * 1024**3
"""A folder with more files, or larger ones, is no model's: it is neither hashed nor copied."""
NO_MODEL = frozenset({"__pycache__", "node_modules", "site-packages"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """A model's files by their path in `root`, sorted; `target` names the model within it."""

    root: Path
    target: str
    files: tuple[Path, ...]


def model_files(backend: BackendSpec) -> ModelFiles | None:
    """The files of a Python model that are its owner's; None for what is installed, and for other backends.

    Misconfigured where the target is missing, or its folder is too large to be a model's.
    """
    if backend.kind != "python":
        return None
    folder = Path(backend.folder) if backend.folder else None
    source = existing_source(backend.target, folder).resolve()
    where, _, name = backend.target.rpartition(":")
    if folder is not None and source.is_relative_to(folder.resolve()):
        root = folder.resolve()
    elif where.endswith(".py"):
        root = source.parent
    else:
        return None
    target = f"{source.relative_to(root).as_posix()}:{name}" if where.endswith(".py") else backend.target
    own = {*_found(source.parent, root), *_found(root, root, only=".py")}
    return ModelFiles(root=root, target=target, files=tuple(sorted(own)))


def version_of(backend: BackendSpec) -> str:
    """The name of the version that a backend would serve now. Errors as of `model_files`."""
    files = model_files(backend)
    own = () if files is None else ((path.as_posix(), file_hash(files.root / path)) for path in files.files)
    return version_name(how_to_load(backend, files), own)


def how_to_load(backend: BackendSpec, files: ModelFiles | None) -> HowToLoad:
    """The rest of what a version's name stands for, beside its files, which are those of `model_files`."""
    if files is not None:
        return HowToLoad(kind=backend.kind, target=files.target)
    installed = file_hash(existing_source(backend.target, None)) if backend.kind == "python" else None
    return HowToLoad(kind=backend.kind, target=backend.target, installed=installed)


def changed_files(before: BackendSpec, now: BackendSpec) -> tuple[str, ...]:
    """Files in which two versions differ, by their path from the model's own folder; new and gone ones are marked.

    Empty where no file is the owner's, or those of `before` are not on this machine. Errors as of `model_files`.
    """
    if not before.folder or not Path(before.folder).is_dir():
        return ()
    old, new = model_files(before), model_files(now)
    if old is None or new is None:
        return ()
    where = new.target.rpartition(":")[0]
    own = PurePath(where).parent if where.endswith(".py") else PurePath()
    found = []
    for path in sorted({*old.files, *new.files}):
        name = os.path.relpath(path, own)
        if path not in old.files:
            found.append(f"{name} (new)")
        elif path not in new.files:
            found.append(f"{name} (gone)")
        elif file_hash(old.root / path) != file_hash(new.root / path):
            found.append(name)
    return tuple(found)


def keep_version(backend: BackendSpec, folder: Path) -> tuple[str, BackendSpec]:
    """The version, and the backend that serves its copy below `folder`. Misconfigured where none can be kept.

    A copy whose content is not what it was made of, because a file was edited meanwhile, is made again.
    """
    try:
        return _keep(backend, folder)
    except OSError as error:
        where = error.filename or backend.target
        raise Misconfigured(f"cannot read a file of the model, {where}: {error.strerror or error}") from error


def remove_versions(folder: Path, versions: Iterable[str]) -> None:
    """Remove the copies of these versions from below `folder`, where they are there."""
    for version in versions:
        shutil.rmtree(folder / version, ignore_errors=True)


def _keep(backend: BackendSpec, folder: Path) -> tuple[str, BackendSpec]:
    files = model_files(backend)
    if files is None:
        return version_of(backend), backend
    for _ in range(3):
        version = version_of(backend)
        place = folder / version
        kept = _loaded_from(place, backend, files)
        if not place.is_dir():
            _copy(files, place)
        if version_of(kept) == version:
            return version, kept
        shutil.rmtree(place, ignore_errors=True)
    raise Misconfigured(
        f"the files of {backend.target} change while they are copied; try again when they are written"
    )


def loaded_from(place: PurePath, backend: BackendSpec) -> BackendSpec:
    """The backend where its files are in `place`; what is installed is looked for where it is installed."""
    files = model_files(backend)
    return replace(backend, folder="") if files is None else _loaded_from(place, backend, files)


def _loaded_from(place: PurePath, backend: BackendSpec, files: ModelFiles) -> BackendSpec:
    where, _, name = files.target.rpartition(":")
    target = f"{place / where}:{name}" if where.endswith(".py") else files.target
    return replace(backend, target=target, folder=str(place))


def _copy(files: ModelFiles, place: Path) -> None:
    """Copy them; the folder is there whole or not at all."""
    draft = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        draft.mkdir(parents=True, mode=0o700)
        for path in files.files:
            (draft / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(files.root / path, draft / path)
        for path in draft.rglob("*"):  # the folder itself decides who reads them
            path.chmod(0o755 if path.is_dir() else 0o644)
        draft.rename(place)
    except OSError as error:
        raise Misconfigured(f"cannot keep a copy of the model in {place}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _found(place: Path, root: Path, *, only: str = "") -> Iterator[Path]:
    """Files below `place` that end so, by their path in `root`: no hidden ones, environments, services' state."""
    state, number, size = state_dir().resolve(), 0, 0
    seen = {place.resolve()}
    for folder, names, files in os.walk(place, followlinks=True):  # weights often lie elsewhere, behind a link
        here = Path(folder)
        names[:] = [name for name in sorted(names) if _may_hold(here / name, state, seen)]
        for name in files:
            path = here / name
            if name.startswith(".") or not name.endswith(only) or not path.is_file():
                continue
            number, size = number + 1, size + path.stat().st_size
            if number > MOST_FILES or size > MOST_BYTES:
                raise Misconfigured(
                    f"{place} holds more than a model's files ({MOST_FILES} files, {MOST_BYTES // 1024**3} GiB at "
                    "most): put the model into a folder of its own"
                )
            yield path.relative_to(root)


def _may_hold(folder: Path, state: Path, seen: set[Path]) -> bool:
    """True for a folder that may have files of a model and was not seen before, by another link."""
    found = folder.resolve()
    if folder.name.startswith(".") or folder.name in NO_MODEL or found in seen or found == state:
        return False
    seen.add(found)
    return not (folder / "pyvenv.cfg").exists()
