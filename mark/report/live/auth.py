"""Authentication of the status page: a bearer token, or the cookie that its form gives for it."""

from __future__ import annotations

import hashlib
import hmac

from starlette.requests import HTTPConnection
from starlette.responses import Response

COOKIE = "mark_status"
COOKIE_LIFE_S = 12 * 3600
_COOKIE_LABEL = b"mark status page"


class Gate:
    """Lets in who knows the token; everybody, where there is none.

    The cookie is derived from the token, so that no reader's browser stores the token itself and a restarted page
    still knows its readers.
    """

    def __init__(self, token: str | None) -> None:
        self._token = token.encode() if token else None
        self._cookie = hmac.new(self._token, _COOKIE_LABEL, hashlib.sha256).hexdigest() if self._token else ""

    @property
    def is_open(self) -> bool:
        """True where no token is needed."""
        return self._token is None

    def admits(self, request: HTTPConnection) -> bool:
        """True where the request carries the token or the cookie."""
        if self._token is None:
            return True
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.knows(given.strip()):
            return True
        cookie = request.cookies.get(COOKIE, "")
        return hmac.compare_digest(cookie.encode(), self._cookie.encode())

    def knows(self, given: str) -> bool:
        """Compare a token in constant time: a near miss takes as long as a far one."""
        return self._token is not None and hmac.compare_digest(given.encode(), self._token)

    def give_cookie(self, response: Response, *, secure: bool) -> None:
        """Let the browser in from now on. `secure`: only over TLS."""
        response.set_cookie(
            COOKIE, self._cookie, max_age=COOKIE_LIFE_S, httponly=True, samesite="strict", secure=secure
        )
