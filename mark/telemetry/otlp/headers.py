"""Headers for a collector, as text."""

from __future__ import annotations

import re
from urllib.parse import unquote

from mark.domain.errors import Misconfigured

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")


def parse_headers(text: str, where: str) -> dict[str, str]:
    """Headers from `name=value,name=value`, whose values may be percent-encoded (as OTEL_EXPORTER_OTLP_HEADERS).

    Errors: Misconfigured, which names `where` and nothing of the text.
    """
    found = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, _, value = (side.strip() for side in part.partition("="))
        value = unquote(value)
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise Misconfigured(f"{where} should hold headers as name=value,name=value")
        found[name.lower()] = value
    return found
