"""A service on this machine, for a `with` block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mark.api.keyword_errors import names_keywords
from mark.config.short_names import settings_named
from mark.domain.errors import Misconfigured
from mark.extras import require_extra
from mark.live.local.running import Running


class Service:
    """A service on this machine with an emulated AWS, as `mark up` starts it: for tests of what asks it.

    config: a settings file, or the same document as a dict, whose paths count from the working directory; left
    out, the models that `mark up` serves. settings: override it, by names as of `simulate`. `service.port: 0` and
    `service.status_port: 0` take free ports; services of one name exclude each other. The extra local has what it
    needs.

    Raises Misconfigured, one line.

    >>> service = Service({"service": {"name": "shop-tests", "prot": 0}})
    Traceback (most recent call last):
    mark.domain.errors.Misconfigured: settings: unknown key in service 'prot'; did you mean 'port'?
    """

    @names_keywords
    def __init__(self, config: str | Path | Mapping[str, Any] | None = None, **settings: Any) -> None:
        require_extra("local", "mark.Service")
        if not isinstance(config, str | Path | Mapping | None):
            raise Misconfigured(f"config= takes the path of a settings file or what it holds, not {config!r:.60}")
        self._settings = settings_named(settings, Path(config) if isinstance(config, str | Path) else config)

    @contextmanager
    def up(self) -> Iterator[Running]:
        """The service while a `with` block runs; afterwards it is down, after an exception, too.

        Ask it at `gateway`, a URL; `models` has `name` and `example`, a request's body, of each. `token` is None
        where none is needed, `status_page` a URL for people. Raises Misconfigured where it cannot start.

        >>> with Service("mark.yaml").up() as service:  # doctest: +SKIP
        ...     requests.post(f"{service.gateway}/v2/models/digits/infer", json=service.models[0]["example"])
        """
        # a service takes long to import, and only this needs it
        from mark.live.commands.up import service_up  # noqa: PLC0415

        with service_up(self._settings, yes=True) as running:
            yield running
