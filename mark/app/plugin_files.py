"""A user's Python file, loaded by its path, and the modules beside it that it imports.

While the file loads its folder is searched last, so that nothing there replaces what is installed. The modules
found there belong to this load: the next one forgets them, because another folder may hold others of the same
names, and the same file may have been mended.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

_LOADED: dict[str, tuple[Path, ...]] = {}
"""The files of each plug-in by its module's name, its own first."""
_BESIDE: set[str] = set()
"""Names in sys.modules that were found beside the file that was loaded last."""


def module_name_of(path: Path) -> str:
    """Made from the whole path, so that two files called model.py are two modules."""
    return f"mark_plugin_{path.stem}_{hashlib.sha256(bytes(path.resolve())).hexdigest()[:12]}"


def load_file(path: Path) -> ModuleType | None:
    """The file as a module, executed afresh; None where it is no Python file. Raises what it raises."""
    name = module_name_of(path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles look their module up by name
    try:
        with _folder_searched(path.resolve().parent):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    _LOADED[name] = (path, *sorted(_files_of(_BESIDE)))
    return module


def files_of(path: Path) -> tuple[Path, ...]:
    """A loaded file and those beside it that it imported when it was loaded."""
    return _LOADED.get(module_name_of(path), (path,))


@contextmanager
def _folder_searched(folder: Path) -> Iterator[None]:
    while _BESIDE:
        sys.modules.pop(_BESIDE.pop(), None)
    if str(folder) in sys.path:
        yield
        return
    before = set(sys.modules)
    importlib.invalidate_caches()
    sys.path.append(str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        new = set(sys.modules) - before
        found = {name for name in new if "." not in name and _is_in(folder, name) and not _is_installed(name)}
        _BESIDE.update(name for name in new if name.partition(".")[0] in found)


def _is_in(folder: Path, name: str) -> bool:
    """Whether a module, or the package that it is, lies in the folder."""
    return any(folder in (file.parent, file.parent.parent) for file in _files_of({name}))


def _is_installed(name: str) -> bool:
    """Whether it is found without the folder too, as a package that is developed there is."""
    return any(finder.find_spec(name, None) is not None for finder in sys.meta_path)


def _files_of(names: set[str]) -> list[Path]:
    files = (getattr(sys.modules.get(name), "__file__", None) for name in names)
    return [Path(file).resolve() for file in files if file]
