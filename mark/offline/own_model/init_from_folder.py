"""`mark init FOLDER`: all models of a folder in one mark.yaml; one that does not work is told and left out.

Each model is examined in a process of its own: its memory is its own, and one that crashes takes no other with it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

from mark.domain.errors import Misconfigured
from mark.offline.own_model.init_from_target import (
    CONFIG_FILE,
    Examined,
    InitOptions,
    examined,
    mean_rps,
    refuse_existing,
    show_commands,
    show_needs,
    write_files,
)
from mark.offline.own_model.sources import SAVED, USUAL_FUNCTION
from mark.offline.own_model.wrapper import wrapper_path
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
    folder = options.out or place
    refuse_existing(folder, options)
    targets = targets_in(place)
    if not targets:
        raise Misconfigured(
            f"{place} holds no model: no .onnx, .joblib or .pkl file, and no .py file with a class that has "
            f"inputs, outputs and predict, or with a function {USUAL_FUNCTION}"
        )
    rps = mean_rps(options.settings)
    found: dict[str, Examined] = {}
    for target in targets:
        try:
            one = _apart(replace(options, target=target, ask=False), rps, tuple(found))
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


def targets_in(place: Path) -> tuple[str, ...]:
    """Targets of the folder's models, by name: saved ones, classes and functions. Code is read, none is run."""
    files = sorted(path for path in place.iterdir() if path.is_file())
    saved = [path for path in files if path.suffix.lower() in SAVED]
    code = [path for path in files if path.suffix == ".py"]
    ours = {wrapper_path(path) for path in saved} | {wrapper_path(path, USUAL_FUNCTION) for path in code}
    found = {path.name: [str(path)] for path in saved}
    found |= {path.name: [f"{path}:{name}" for name in _names(path)] for path in code if path not in ours}
    return tuple(target for name in sorted(found) for target in found[name])


def _names(path: Path) -> Iterator[str]:
    """Names of a file's models: classes with the contract's parts, else the usual function."""
    try:
        parts = ast.parse(path.read_bytes()).body
    except (SyntaxError, ValueError):
        return
    classes = [part.name for part in parts if isinstance(part, ast.ClassDef) and _is_model(part)]
    functions = [part.name for part in parts if isinstance(part, ast.FunctionDef) and part.name == USUAL_FUNCTION]
    yield from classes or functions


def _is_model(part: ast.ClassDef) -> bool:
    text = {node.id for node in ast.walk(part) if isinstance(node, ast.Name)}
    text |= {node.attr for node in ast.walk(part) if isinstance(node, ast.Attribute)}
    methods = {node.name for node in part.body if isinstance(node, ast.FunctionDef)}
    return "predict" in methods and {"inputs", "outputs"} <= text | methods


def _apart(options: InitOptions, rps: float | None, taken: tuple[str, ...]) -> Examined:
    """The model, examined in a process of its own. taken: names of others. Errors: Misconfigured."""
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
        try:
            return pool.submit(_examine, options, rps, taken).result()
        except BrokenProcessPool as error:
            raise Misconfigured("it ended the process that tried it") from error


def _examine(options: InitOptions, rps: float | None, taken: tuple[str, ...]) -> Examined:
    with examined(options, rps) as found:
        if found.needs.name in taken:
            raise Misconfigured(f"it is a second model named {found.needs.name}; rename its file")
        return found
