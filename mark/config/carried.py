"""Files that the settings name, carried into the account within a variable of a template: no path leads there.

Prices of another region and profiles of one's own are such files. User data has 16 KB, most of it taken: so of
prices only what the service can rent goes along, and no words about where a price was read.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from mark.catalog.load import load_prices
from mark.catalog.refreshed import format_prices
from mark.config.settings import Settings
from mark.domain.errors import Misconfigured

PATHS = ("models", "prices", "service_prices")
"""Settings that are files. Of `profiles`, those are files that end in `FILE`; others are shipped sets."""
FILE = ".json"


def carry_files(settings: Settings, offered: Collection[str]) -> tuple[Settings, str]:
    """The settings with their files by bare names, and these files as text; empty where no file is named.

    `offered`: the types that the service can rent. Misconfigured where a file cannot be read.
    """
    names: dict[str, str] = {}
    told = _with_files(settings, lambda path: names.setdefault(path, f"{len(names)}{FILE}"))
    texts = {name: _text(settings, Path(path), offered) for path, name in names.items()}
    return told, _packed(texts) if texts else ""


def carried_settings(settings_json: str, files: str, folder: Path) -> Settings:
    """The settings from their text; the files that came along, where `files` has any, are laid into `folder`."""
    settings = Settings.model_validate_json(settings_json)
    if not files:
        return settings
    texts: Mapping[str, object] = json.loads(zlib.decompress(base64.b64decode(files)))
    for name, document in texts.items():
        (folder / name).write_text(_terse(document), encoding="utf-8")
    return _with_files(settings, lambda name: str(folder / name))


def _with_files(settings: Settings, place: Callable[[str], str]) -> Settings:
    """The settings with the path of each file that they name, as `place` has it."""

    def placed(sets: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(place(one) if one.endswith(FILE) else one for one in sets)

    serve = tuple(
        one if one.profiles is None else one.model_copy(update={"profiles": placed(one.profiles)})
        for one in settings.service.serve
    )
    named = ((key, getattr(settings, key)) for key in PATHS)
    changed = {key: Path(place(str(path))) for key, path in named if path is not None}
    service = settings.service.model_copy(update={"serve": serve})
    return settings.model_copy(update={**changed, "profiles": placed(settings.profiles), "service": service})


def _text(settings: Settings, path: Path, offered: Collection[str]) -> str:
    """The file's text, of prices what the account needs."""
    if path == settings.prices:
        return _rentable(settings, path, offered)
    text = _read(path)
    return _without_words(text) if path == settings.service_prices else text


def _packed(texts: Mapping[str, str]) -> str:
    documents = {name: json.loads(text) for name, text in sorted(texts.items())}
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
    types = tuple(one for one in prices.types if one.name in offered or f'"{one.name}"' in named)
    return format_prices(replace(prices, types=types or prices.types[:1], source="see the file that was deployed"))


def _without_words(text: str) -> str:
    """The prices with the hosts alone of the pages that they were read on."""
    document = json.loads(text)
    for entry in document["prices"]:
        entry.pop("note", None)
        entry["url"] = f"https://{urlsplit(entry['url']).netloc}"
    return _terse(document)
