"""Forecasters, policies, dispatch rules and models by name: entry point, `module:attribute`, `path/file.py:Name`.

Ours and a user's own come in the same way, so this is the only place that knows where one lives. What a
file or a model's folder holds may be imported (`mark.plugins.files`): behind the installed packages, where a stray
`json.py` replaces nothing, but for the package that a model's target names.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import metadata
from importlib.metadata import EntryPoint, EntryPoints
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import TypeGuard, cast

from mark.domain.errors import MarkError, Misconfigured, failure_words, unknown
from mark.extras import missing_extra
from mark.plugins import files
from mark.ports import (
    Forecaster,
    ForecasterFactory,
    ForecasterSetup,
    OracleFactory,
    OracleSetup,
    Policy,
    PolicyFactory,
    PythonModel,
    SupernetSource,
    SupernetWorkshop,
)

FORECASTERS = "mark.forecasters"
"""The entry-point group; see pyproject.toml."""
POLICIES = "mark.policies"
"""The group of users' own policies; MArk's are not among them."""
RULES = "mark.dispatch_rules"
"""The group of users' own dispatch rules."""
_GROUPS = {"forecaster": FORECASTERS, "policy": POLICIES, "dispatch rule": RULES}
"""Groups of what has short names, by its kind."""
WORKSHOP = "mark.models.supernet.workshop:Workshop"
"""Trains supernets."""


@functools.cache
def entry_points(group: str) -> EntryPoints:
    """Entry points of a group; to find them, the metadata of all that is installed is read."""
    return metadata.entry_points(group=group)


def forecaster_names() -> tuple[str, ...]:
    """The names that need no `module:attribute`, sorted."""
    return _short_names("forecaster")


def _short_names(kind: str) -> tuple[str, ...]:
    return tuple(sorted({entry.name for entry in entry_points(group=_GROUPS[kind])}))


def load_forecaster(name: str) -> ForecasterFactory | OracleFactory:
    """The factory behind a forecaster's name.

    Errors: Misconfigured, in one line, where the name is unknown, the module or file does not load, or what it
    names is missing or cannot be called.
    """
    return cast("ForecasterFactory | OracleFactory", _factory(name, "forecaster", None))


def is_oracle(factory: ForecasterFactory | OracleFactory) -> TypeGuard[OracleFactory]:
    """True where a factory declares that its forecasts are what will come."""
    return getattr(factory, "uses_truth", False) is True


def build_forecaster(name: str, setup: ForecasterSetup) -> Forecaster:
    """The forecaster of that name, made from `setup` (an LSTM trains here); only an oracle is told the truth.

    Errors: Misconfigured as in `load_forecaster`, where the factory fails or what it makes has no `forecast`, and
    where an oracle lacks the truth.
    """
    factory = load_forecaster(name)
    try:
        forecaster = _made(name, factory, setup)
    except MarkError:
        raise
    except (Exception, SystemExit) as error:  # foreign code may raise anything; the cause is chained
        raise _refusal(name, error) from error
    if not callable(getattr(forecaster, "forecast", None)):
        raise Misconfigured(
            f"forecaster {name!r} made a {type(forecaster).__name__} without a method forecast(history, horizon)"
        )
    return forecaster


def _made(name: str, factory: ForecasterFactory | OracleFactory, setup: ForecasterSetup) -> Forecaster:
    if is_oracle(factory):
        if not isinstance(setup, OracleSetup):
            raise Misconfigured(
                f"{name} needs the load to come: it works in a replay only, take another forecaster"
            )
        return factory(setup)
    blind = setup.without_truth() if isinstance(setup, OracleSetup) else setup
    return cast("ForecasterFactory", factory)(blind)


def is_own_policy(name: str) -> bool:
    """True where a name may be a user's own policy: a file's or module's, or an entry point's."""
    return ":" in name or name in own_policy_names()


def own_policy_names() -> tuple[str, ...]:
    """The short names of users' own policies, sorted."""
    return _short_names("policy")


def load_policy(name: str) -> PolicyFactory:
    """The factory behind the name of a user's own policy. Errors: Misconfigured as in `load_forecaster`."""
    return cast("PolicyFactory", _factory(name, "policy", None))


def make_policy(name: str) -> Policy:
    """The user's own policy behind a name. Errors: Misconfigured where it cannot be made, or has no `plan`."""
    policy = _made_by(name, "policy", None)
    if not callable(getattr(policy, "plan", None)):
        raise Misconfigured(f"policy {name!r} made a {type(policy).__name__} without a method plan(request)")
    return cast("Policy", policy)


def own_rule_names() -> tuple[str, ...]:
    """The short names of users' own dispatch rules, sorted."""
    return _short_names("dispatch rule")


def make_rule(name: str) -> object:
    """The user's own dispatch rule behind a name. Errors: Misconfigured where it is not made or lacks `assign`."""
    rule = _made_by(name, "dispatch rule", None)
    if not callable(getattr(rule, "assign", None)):
        raise Misconfigured(
            f"dispatch rule {name!r} made a {type(rule).__name__} without a method assign(waiting)"
        )
    return rule


def load_model(name: str, folder: Path | None = None) -> Callable[[], PythonModel]:
    """The factory behind a model's `module:attribute` or `path/file.py:Name`; no other model is in force then.

    folder: where modules are looked for first. Errors: Misconfigured, in one line, where it does not load or
    cannot be called.
    """
    return cast("Callable[[], PythonModel]", _factory(name, "model", folder))


def make_model(name: str, folder: Path | None = None) -> PythonModel:
    """The model behind a name, made as an agent makes it. Errors: Misconfigured where it cannot be."""
    return cast("PythonModel", _made_by(name, "model", folder))


def make_workshop() -> SupernetWorkshop:
    """Workshop that trains supernets; it needs torch. Errors: Misconfigured where that is missing."""
    return cast("SupernetWorkshop", _made_by(WORKSHOP, "command", None))


def make_supernet(name: str, folder: Path | None = None) -> SupernetSource:
    """The source of a supernet behind a name, ours or a user's own. Errors: Misconfigured where it cannot be."""
    source = _made_by(name, "supernet", folder)
    lacking = [part for part in ("space", "network", "examples") if not hasattr(source, part)]
    if lacking:
        raise Misconfigured(f"supernet {name!r} lacks {', '.join(lacking)}; docs/papers.md says what it needs")
    return cast("SupernetSource", source)


def _factory(name: str, kind: str, folder: Path | None) -> Callable[[], object]:
    """The class or function behind a name."""
    try:
        found = _resolve(name, kind, folder)
    except MarkError:
        raise
    except (Exception, SystemExit) as error:  # as above
        raise _refusal(name, error, kind) from error
    if not callable(found):
        raise Misconfigured(f"{kind} {name!r} is not a class or function but a {type(found).__name__}")
    return cast("Callable[[], object]", found)


def _made_by(name: str, kind: str, folder: Path | None) -> object:
    """Object that the class or function behind a name makes."""
    factory = _factory(name, kind, folder)
    try:
        return factory()
    except (Exception, SystemExit) as error:  # as above
        raise _refusal(name, error, kind) from error


def _resolve(name: str, kind: str, folder: Path | None) -> object:
    if ":" in name or kind not in _GROUPS:
        return _located(name, kind, folder)
    files.leave()
    return _entry_point(name, kind).load()


def _located(name: str, kind: str, folder: Path | None) -> object:
    """Load `module:attribute` or `path/file.py:Name`; errors call it `kind`."""
    where, _, attribute = name.rpartition(":")
    if not where or not attribute:
        raise Misconfigured(f"{kind} {name!r} must read module:attribute or path/file.py:Name")
    module = _module(where, kind, folder)
    try:
        return attrgetter(attribute)(module)
    except AttributeError as error:
        own = {key for key, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__}
        known = [key for key, value in vars(module).items() if key in own and callable(value) and key[0] != "_"]
        raise unknown(f"{kind} in {where}", attribute, known) from error


def _entry_point(name: str, kind: str) -> EntryPoint:
    # The same distribution may be found twice (installed, and in its source tree): the first by value counts.
    named = [entry for entry in entry_points(group=_GROUPS[kind]) if entry.name == name]
    entries = sorted(named, key=lambda entry: entry.value)
    if entries:
        return entries[0]
    if name.endswith(".py"):
        raise Misconfigured(f"{kind} {name!r} lacks a name: write {name}:ClassName")
    raise unknown(kind, name, _short_names(kind))


def _module(where: str, kind: str, folder: Path | None) -> ModuleType:
    is_file = where.endswith(".py")
    if is_file and not Path(where).expanduser().is_file():
        raise Misconfigured(f"{kind} file {where} does not exist")
    try:
        return files.load_module(where, folder)
    except ModuleNotFoundError as error:
        if is_file or error.name is None or not (where == error.name or where.startswith(f"{error.name}.")):
            raise
        place = "is not installed" if folder is None else f"is neither in {folder.absolute()} nor installed"
        raise Misconfigured(
            f"{kind} module {where!r} {place}; a file is given by its path, path/file.py:Name"
        ) from error


def _refusal(name: str, error: BaseException, kind: str = "forecaster") -> Misconfigured:
    if isinstance(error, ModuleNotFoundError) and error.name:
        return missing_extra(name, error) or Misconfigured(
            f"{name} needs the module {error.name}, which is not installed"
        )
    hint = ""
    if isinstance(error, ImportError) and "relative import" in str(error):
        hint = "; a file in a package is named as its module, package.module:Name"
    return Misconfigured(f"{kind} {name!r} does not load: {failure_words(error)}{hint}")
