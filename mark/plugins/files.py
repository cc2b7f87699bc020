"""A user's Python code, loaded by its path or by its name, and the modules that it imports from its own folders.

One user's code is in force in a process at a time. Its folders are searched last, so that a stray `json.py` there
replaces nothing that is installed, and they stay searched until other code is loaded: `predict` may import what it
needs when it is called. The package that a model's target names is looked for in its folders first. An installed
one of that name is put aside meanwhile, and comes back when other code is loaded.

What was found in the folders belongs to that load: the next one forgets it, because another folder may hold other
modules of the same names, and the same file may have been mended. `sys.path` is left as it is.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

_LOADED: dict[str, tuple[Path, ...]] = {}
"""The files of each plug-in by its module's name, its own first."""


class _Folders(MetaPathFinder):
    """Finds top-level modules in these folders: only `names`, or any."""

    def __init__(self, folders: Sequence[Path], names: frozenset[str] | None, found: set[str]) -> None:
        self._folders, self._names, self._found = [str(folder) for folder in folders], names, found

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's spec, None where it is not there."""
        if path is not None or (self._names is not None and fullname not in self._names):
            return None
        spec = PathFinder.find_spec(fullname, self._folders, target)
        if spec is not None:
            self._found.add(fullname)
        return spec


@dataclass(slots=True)
class _InForce:
    """The code that is in force: its finders, what they found, and modules that are put aside."""

    finders: tuple[_Folders, _Folders]
    found: set[str]
    aside: dict[str, ModuleType] = field(default_factory=dict)


_in_force: list[_InForce] = []
_lock = threading.RLock()
"""Held while code is loaded or left: what it changes is the process's, and forecasters are loaded by threads."""


def leave() -> None:
    """Forget the code that is in force, and what it imported from its folders; what was put aside comes back."""
    with _lock:
        while _in_force:
            code = _in_force.pop()
            sys.meta_path[:] = [finder for finder in sys.meta_path if finder not in code.finders]
            _take_out(code.found)
            sys.modules.update(code.aside)


def load_module(where: str, folder: Path | None = None) -> ModuleType:
    """The module behind `package.module` or `path/file.py`, executed afresh where it is the user's own.

    folder: where a module is looked for before what is installed, and what a file may import from beside its own
    folder. Errors: ImportError where there is no such module or the file is no Python file; whatever the code
    raises.
    """
    with _lock:
        leave()
        if where.endswith(".py"):
            path = Path(where).expanduser()
            folders = dict.fromkeys((path.resolve().parent, *(() if folder is None else (folder.resolve(),))))
            _enter(tuple(folders))
            return _load_file(path)
        if folder is not None and module_file(where, folder) is not None:
            top = where.partition(".")[0]
            if top in sys.stdlib_module_names:
                raise ImportError(
                    f"{top} is a module of Python's own; name the file, {where.replace('.', '/')}.py:Name"
                )
            _enter((folder.resolve(),), top)
        return importlib.import_module(where)


def module_file(name: str, folder: Path) -> Path | None:
    """The file of a module in the folder, None where it is not there; nothing is imported."""
    place = folder.joinpath(*name.split("."))
    return next((path for path in (place / "__init__.py", place.with_suffix(".py")) if path.is_file()), None)


def source_of(where: str, folder: Path | None = None) -> Path | None:
    """The file behind `package.module` or `path/file.py`, None where there is none; parents may be imported."""
    if where.endswith(".py"):
        return Path(where).expanduser()
    own = None if folder is None else module_file(where, folder)
    if own is not None:
        return own
    leave()
    try:
        found = importlib.util.find_spec(where)
    except (ImportError, ValueError):
        return None
    return Path(found.origin) if found and found.origin else None


def files_of(path: Path) -> tuple[Path, ...]:
    """A loaded file and those in its folders that it imported when it was loaded."""
    return _LOADED.get(_name_of(path), (path,))


def _name_of(path: Path) -> str:
    """Made from the whole path, so that two files called model.py are two modules."""
    return f"mark_plugin_{path.stem}_{hashlib.sha256(bytes(path.resolve())).hexdigest()[:12]}"


def _load_file(path: Path) -> ModuleType:
    name = _name_of(path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles look their module up by name
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    _LOADED[name] = (path, *sorted(_files_of(_in_force[-1].found)))
    return module


def _enter(folders: tuple[Path, ...], first: str = "") -> None:
    importlib.invalidate_caches()
    ahead = frozenset([first] if first and _comes_first(first, folders) else [])
    found: set[str] = set()
    code = _InForce(finders=(_Folders(folders, ahead, found), _Folders(folders, None, found)), found=found)
    code.aside = _take_out(ahead)
    sys.meta_path.insert(0, code.finders[0])
    sys.meta_path.append(code.finders[1])
    _in_force.append(code)


def _comes_first(name: str, folders: Sequence[Path]) -> bool:
    """True where Python code of that name lies in a folder, neither Python's nor MArk's, and not found anyway."""
    if name in {"mark", *sys.stdlib_module_names}:
        return False
    places = [place for folder in folders for place in (folder / f"{name}.py", folder / name) if place.exists()]
    if not any(place.is_file() or _holds_code(place) for place in places):
        return False
    try:
        anyway = importlib.util.find_spec(name)
    except ValueError:  # a module without a spec, such as a test's
        return True
    where = [anyway.origin or "", *(anyway.submodule_search_locations or ())] if anyway else []
    return not {place.resolve() for place in places} & {Path(one).resolve() for one in where if one}


def _holds_code(folder: Path) -> bool:
    return any(folder.glob("*.py")) or any(folder.glob("*/*.py"))


def _take_out(names: Iterable[str]) -> dict[str, ModuleType]:
    """Take modules of these top-level names, and all below them, out of what is imported."""
    tops = set(names)
    return {name: sys.modules.pop(name) for name in tuple(sys.modules) if name.partition(".")[0] in tops}


def _files_of(tops: Iterable[str]) -> set[Path]:
    wanted = set(tops)
    files = [
        getattr(module, "__file__", None)
        for name, module in tuple(sys.modules.items())
        if name.partition(".")[0] in wanted
    ]
    return {Path(file).resolve() for file in files if file}
