"""Machine code on disk: one folder for all checkouts whose sources are the same, and one process that compiles.

numba keeps code by a file's path and date, so that each new checkout compiles everything again; and processes that
start together compile the same side by side. Here a folder is named by the hash of what goes into the code. A
process that lacks some waits while another compiles it. The index of a folder is written by one at a time: two
that take the same number for their code would leave one the other's.

numba optimises each function that is called by itself, too, and once more with each one that calls it: with
functions that call functions, most of the time goes there. Here only the function that is asked for is optimised
and made machine code, when all that it calls is in it.
"""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache

config: Any = numba.config
codegen: Any = numba.core.codegen
cpu: Any = numba.core.cpu


def compiled(function: Callable[..., Any], folder: Path, options: dict[str, Any]) -> Any:
    """The function as numba compiles it for each new signature, with its code kept under `folder`.

    folder: of these sources and options alone. One that cannot be written is passed over for numba's own.
    """
    before = config.CACHE_DIR
    config.CACHE_DIR = str(folder)
    try:
        made: Any = numba.njit(**options)(function)
        cache = made._cache = _Cache(function)  # type: ignore[no-untyped-call]  # noqa: SLF001 - its enable_caching
    finally:
        config.CACHE_DIR = before
    compile_it = made.compile

    def compile_or_wait(signature: Any) -> Any:
        alone = _one_at_a_time(cache, hashlib.sha256(str(signature).encode()).hexdigest()[:16])
        with alone, _optimised_last(function.__qualname__):
            return compile_it(signature)

    made.compile = compile_or_wait
    return made


class _Folder:
    """Place of code, as numba asks for it: no source has a date, as its hash is in the folder's name."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def from_function(cls, _function: Any, _file: str) -> Self | None:
        """The place that the settings name; None where it cannot be written."""
        place = cls(Path(config.CACHE_DIR))
        try:
            place.ensure_cache_path()
        except OSError:
            return None
        return place

    def ensure_cache_path(self) -> None:
        """Make the folder. OSError where it cannot be written."""
        self._path.mkdir(parents=True, exist_ok=True)
        (self._path / "index.lock").touch()

    def get_cache_path(self) -> str:
        """The folder."""
        return str(self._path)

    def get_source_stamp(self) -> str:
        """The same for ever."""
        return ""

    def get_disambiguator(self) -> str:
        """Nothing: entries are told apart by what they close over."""
        return ""


class _Place(CompileResultCacheImpl):
    _locator_classes: list[type[object]] = [_Folder, *CompileResultCacheImpl._locator_classes]  # noqa: RUF012, SLF001 - as numba has it


class _Cache(FunctionCache):
    _impl_class = _Place

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the code of a signature."""
        with _one_at_a_time(self, "index"):
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]


@contextmanager
def _optimised_last(name: str) -> Iterator[None]:
    """Of what is compiled meanwhile, only the function of that name is optimised and made machine code."""
    library, context = codegen.CPUCodeLibrary, cpu.CPUContext
    try:  # numba has no setting for it
        optimise, executable = library._optimize_final_module, context.get_executable  # noqa: SLF001
        function_at = cpu._dynfunc.make_function  # noqa: SLF001
    except AttributeError:  # a numba of another make: all is compiled, and takes longer
        yield
        return

    def only_it(made: Any) -> None:
        if made.name == name:
            optimise(made)

    def executable_it(self: Any, made: Any, described: Any, environment: Any) -> Any:
        if made.name == name:
            return executable(self, made, described, environment)
        made._finalize_final_module = lambda: setattr(made, "_finalized", True)  # noqa: SLF001
        made.finalize()
        nowhere = 0  # what is in another function is called by nobody
        return function_at(described.lookup_module(), described.qualname, "", nowhere, environment, (made,))

    library._optimize_final_module = only_it  # noqa: SLF001
    context.get_executable = executable_it
    try:
        yield
    finally:
        library._optimize_final_module = optimise  # noqa: SLF001
        context.get_executable = executable


@contextmanager
def _one_at_a_time(cache: _Cache, name: str) -> Iterator[None]:
    folder = Path(cache.cache_path)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # ends with the process that holds it
        yield
