"""Names under which clients of this machine reach a service that listens on loopback and asks for no token.

A web page can have its own name point to 127.0.0.1 and so make a browser send requests there (DNS rebinding), but
it cannot keep its name out of the Host header.
"""

from __future__ import annotations

import ipaddress
import re

_HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(:\d*)?")
REFUSAL = "this service takes requests to localhost only; set service.token_file to give it another name"


def is_local_name(host: str) -> bool:
    """True where a Host header is an address, localhost or empty."""
    found = _HOST.fullmatch(host.strip().lower())
    if found is None:
        return False
    name = found[1].strip("[]").removesuffix(".")
    if not name or name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
