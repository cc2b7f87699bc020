"""Files that the settings name, carried into the account within a variable of a template: no path leads there.

Prices of another region, profiles and a forecaster of one's own are such files. User data has 16 KB, most of it
taken: so of prices only what the service can rent goes along, and no words about where a price was read. A file's
name in the account tells its content: a forecaster is the same to every process and after every deploy until its
code changes, and what it learned stays its own.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from mark.catalog.load import load_prices
from mark.catalog.price_overlay import match_each
from mark.catalog.refreshed import format_prices
from mark.config.prices import price_overlays
from mark.config.service import ServedSettings
from mark.config.settings import Settings
from mark.domain.errors import Misconfigured

PATHS = ("models", "prices", "service_prices")
"""Settings that are files. Of `profiles`, those are files that end in `FILE`; others are shipped sets. A
forecaster is one where it reads `path/file.py:Name`."""
FILE, CODE = ".json", ".py"
DIGEST, STEM = 8, 24
"""Letters in a file's name in the account: of its content's SHA-256, and at most of its own name."""


def carry_files(settings: Settings, offered: Collection[str]) -> tuple[Settings, str]:
    """The settings with their files by bare names, and these files as text; empty where no file is named.

    `offered`: the types that the service can rent. Misconfigured where a file cannot be read.
    """
    texts: dict[str, str] = {}

    def place(path: str) -> str:
        text = _text(settings, Path(path), offered)
        name = _name_of(Path(path), text)
        texts[name] = text
        return name

    told = _with_files(settings, place)
    return told, _packed(texts) if texts else ""


def carried_settings(settings_json: str, files: str, folder: Path) -> Settings:
    """The settings from their text; the files that came along, where `files` has any, are laid into `folder`."""
    settings = Settings.model_validate_json(settings_json)
    if not files:
        return settings
    texts: Mapping[str, object] = json.loads(zlib.decompress(base64.b64decode(files)))
    folder.mkdir(parents=True, exist_ok=True)
    for name, document in texts.items():
        text = document if isinstance(document, str) else _terse(document)
        (folder / name).write_text(text, encoding="utf-8")
    return _with_files(settings, lambda name: str(folder / name))


def _with_files(settings: Settings, place: Callable[[str], str]) -> Settings:
    """The settings with the path of each file that they name, as `place` has it."""

    def placed(sets: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(place(one) if one.endswith(FILE) else one for one in sets)

    def located(forecaster: str | None) -> str | None:
        where, _, attribute = (forecaster or "").rpartition(":")
        return f"{place(where)}:{attribute}" if where.endswith(CODE) else forecaster

    def of_model(one: ServedSettings) -> ServedSettings:
        profiles = None if one.profiles is None else placed(one.profiles)
        return one.model_copy(update={"profiles": profiles, "forecaster": located(one.forecaster)})

    serve = tuple(of_model(one) for one in settings.service.serve)
    named = ((key, getattr(settings, key)) for key in PATHS)
    changed: dict[str, object] = {key: Path(place(str(path))) for key, path in named if path is not None}
    service = settings.service.model_copy(update={"serve": serve})
    owned = settings.account.commitments
    if owned is not None:
        changed["account"] = settings.account.model_copy(update={"commitments": Path(place(str(owned)))})
    changed |= {"profiles": placed(settings.profiles), "forecaster": located(settings.forecaster)}
    return settings.model_copy(update={**changed, "service": service})


def _text(settings: Settings, path: Path, offered: Collection[str]) -> str:
    """The file's text, of prices what the account needs."""
    if path == settings.prices:
        return _rentable(settings, path, offered)
    text = _read(path.expanduser())
    if path.suffix == CODE:
        _refuse_neighbours(path.expanduser(), text)
    return _without_words(text) if path == settings.service_prices else text


def _name_of(path: Path, text: str) -> str:
    """A name that a script may have in it, the same for the same content."""
    stem = re.sub(r"\W", "_", path.stem, flags=re.ASCII)[:STEM]
    return f"{stem}-{hashlib.sha256(text.encode()).hexdigest()[:DIGEST]}{path.suffix}"


def _refuse_neighbours(path: Path, code: str) -> None:
    """Misconfigured where a forecaster's file imports what lies beside it, which does not go along."""
    try:
        tree = ast.parse(code)
    except SyntaxError as error:
        raise Misconfigured(f"{path} is no Python: {error.msg} in line {error.lineno}") from error
    named = [one.name for node in ast.walk(tree) if isinstance(node, ast.Import) for one in node.names]
    named += [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    tops = sorted({name.partition(".")[0] for name in named})
    beside = [top for top in tops if (path.parent / f"{top}{CODE}").is_file() or _is_package(path.parent / top)]
    if beside:
        raise Misconfigured(
            f"the forecaster {path} imports {', '.join(beside)} from beside it, and only its own file goes to the "
            "account: put all into one file, or install a package in rollout.image and name its module:attribute"
        )


def _is_package(folder: Path) -> bool:
    return (folder / f"__init__{CODE}").is_file()


def _packed(texts: Mapping[str, str]) -> str:
    documents = {name: text if name.endswith(CODE) else json.loads(text) for name, text in sorted(texts.items())}
    return base64.b64encode(zlib.compress(_terse(documents).encode(), 9)).decode()


def _terse(document: object) -> str:
    return json.dumps(document, separators=(",", ":"))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"cannot read {path}: {error}") from error


def _rentable(settings: Settings, path: Path, offered: Collection[str]) -> str:
    """The file's types that are offered, or that the settings name for whatever."""
    prices, named = load_prices(path), settings.model_dump_json()
    kept = {*offered, *match_each(price_overlays(settings), sorted(prices.names))}
    types = tuple(one for one in prices.types if one.name in kept or f'"{one.name}"' in named)
    return format_prices(replace(prices, types=types or prices.types[:1], source="see the file that was deployed"))


def _without_words(text: str) -> str:
    """The prices with the hosts alone of the pages that they were read on."""
    document = json.loads(text)
    for entry in document["prices"]:
        entry.pop("note", None)
        entry["url"] = f"https://{urlsplit(entry['url']).netloc}"
    return _terse(document)
