"""`mark init FOLDER`: all models of a folder in one mark.yaml; one that does not work is told and left out.

Each model is examined in a process of its own: its memory is its own, and one that crashes takes no other with it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

from mark.domain.errors import Misconfigured
from mark.offline.own_model.init import CONFIG_FILE
from mark.offline.own_model.init_from_target import (
    Examined,
    InitOptions,
    check_flags,
    examined,
    mean_rps,
    refuse_existing,
    show_commands,
    show_needs,
    write_files,
)
from mark.offline.own_model.sources import SAVED, USUAL_FUNCTION
from mark.offline.own_model.targets import class_name
from mark.offline.own_model.wrapper import WRITTEN, wrapper_name, wrapper_path
from mark.report.terminal import note


def write_models(options: InitOptions) -> tuple[Path, bool]:
    """Examine all, write the files for those that work; the path of mark.yaml, and whether that is all of them.

    Errors: Misconfigured.
    """
    place = Path(options.target)
    if options.model is not None or options.data is not None or options.file is not None or not options.load:
        raise Misconfigured(
            "--model, --data, --input and --no-load are for one model, not for a folder: name its file"
        )
    check_flags(options)
    folder = options.out or place
    refuse_existing(folder, options)
    models_here = targets_in(place)
    targets = models_here.targets
    for file, why in models_here.no_models.items():
        note(f"{file} is not a model of its own: {why}")
    if not targets:
        raise Misconfigured(
            f"{place} holds no model: no .onnx, .joblib or .pkl file, and no .py file with a class that has "
            f"inputs, outputs and predict, or with a function {USUAL_FUNCTION}"
        )
    rps = mean_rps(options.settings)
    found: dict[str, Examined] = {}
    for target in targets:
        try:
            one = examined_apart(replace(options, target=target, ask=False), rps, tuple(found))
        except Misconfigured as error:
            note(f"{target} is left out: {error}")
            continue
        found[one.needs.name] = one
        show_needs(one)
    if not found:
        raise Misconfigured(f"no model in {place} works")
    models = list(found.values())
    write_files(folder, place.resolve().name, models, options)
    show_commands(folder, options, models)
    return folder / CONFIG_FILE, len(models) == len(targets)


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """Targets of a folder's models, sorted. no_models: why what looks like a model is not one of its own."""

    targets: tuple[str, ...]
    no_models: Mapping[str, str]


def targets_in(place: Path) -> Targets:
    """The folder's models: saved ones, classes and functions. Code is read, none is run.

    A class goes before the saved file that it loads, and own code before a class that would be written there.
    """
    files = sorted(path for path in place.iterdir() if path.is_file())
    code = {path: one for path in files if path.suffix == ".py" and (one := _code_of(path)) is not None}
    found: dict[str, list[str]] = {}
    no_models: dict[str, str] = {}
    for path in files:
        if path.suffix.lower() in SAVED:
            if (why := _why_not(path, code)) is None:
                found[path.name] = [str(path)]
            else:
                no_models[str(path)] = why
        elif path in code:
            own = wrapper_path(path, USUAL_FUNCTION)
            functions = code[path].functions
            if functions and own in code and code[own].names:
                no_models |= {f"{path}:{name}": f"{own.name} is beside it" for name in functions}
                functions = ()
            found[path.name] = [f"{path}:{name}" for name in code[path].classes or functions]
    return Targets(targets=tuple(target for name in sorted(found) for target in found[name]), no_models=no_models)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Code:
    """Names of a file's models: classes with the contract's parts, else the usual function. texts: in its code."""

    classes: tuple[str, ...]
    functions: tuple[str, ...]
    texts: frozenset[str]

    @property
    def names(self) -> tuple[str, ...]:
        return self.classes or self.functions


def _code_of(path: Path) -> _Code | None:
    """What a file of the user's own holds; None where it is no Python, or was written by `mark init`."""
    try:
        module = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return None
    if WRITTEN in (ast.get_docstring(module) or ""):
        return None
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node.value for node in ast.walk(module) if isinstance(node, ast.Constant)]
    return _Code(
        classes=tuple(part.name for part in module.body if isinstance(part, ast.ClassDef) and _is_model(part)),
        functions=tuple(
            part.name for part in module.body if isinstance(part, kinds) and part.name == USUAL_FUNCTION
        ),
        texts=frozenset(Path(text).name for text in nodes if isinstance(text, str)),
    )


def _why_not(saved: Path, code: Mapping[Path, _Code]) -> str | None:
    """Why a saved file is no model of its own: code loads it, or a class has its name. None where it is one."""
    name = class_name(f":{wrapper_name(saved.stem)}")
    for path, one in code.items():
        if path == wrapper_path(saved) and one.names:
            return f"{path.name} is beside it"
        if one.names and saved.name in one.texts:
            return f"{one.names[0]} in {path.name} loads it"
        if same := next((found for found in one.classes if class_name(f":{found}") == name), None):
            return f"{same} in {path.name} has its name"
    return None


def _is_model(part: ast.ClassDef) -> bool:
    text = {node.id for node in ast.walk(part) if isinstance(node, ast.Name)}
    text |= {node.attr for node in ast.walk(part) if isinstance(node, ast.Attribute)}
    methods = {node.name for node in part.body if isinstance(node, ast.FunctionDef)}
    return "predict" in methods and {"inputs", "outputs"} <= text | methods


def examined_apart(options: InitOptions, rps: float | None, taken: tuple[str, ...]) -> Examined:
    """The model, examined in a process of its own. taken: names of others. Errors: Misconfigured."""
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
        try:
            return pool.submit(_examine, options, rps, taken).result()
        except BrokenProcessPool as error:
            raise Misconfigured("it ended the process that tried it") from error


def _examine(options: InitOptions, rps: float | None, taken: tuple[str, ...]) -> Examined:
    with examined(options, rps, taken) as found:
        return found
