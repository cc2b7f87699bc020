"""Clients at one gateway: who a request's key names, what that client may use, and what became of its requests.

Limits are those of `mark.dispatch.client_limits`. Where a service has no clients, nothing here costs a request
anything: its parsed head then has no `ClientUse`.
"""

from __future__ import annotations

import hmac
import math
from collections.abc import Iterable, Sequence

from mark.dispatch.client_limits import ClientLimits, access_status, queue_share
from mark.domain.clients import SERVICE, Client, ClientDirectory, Limits, Priority, hash_of_key
from mark.domain.load.traffic import CLIENT_COUNTS, ClientTraffic, is_rejection
from mark.protocols.frames import client_details

BEARER = b"bearer"
SHED = 503
PRESENT_S = 10.0
"""For how long a priority class counts as present after its last request."""


class ClientUse:
    """One client's use of one model: its requests' way in and out, and their counts since the gateway began."""

    __slots__ = (
        "_counted", "active_at", "answered", "client", "deadline_s", "details", "failed", "items", "late",
        "limited", "limits", "name", "priority", "queue_share", "shed",
    )  # fmt: skip

    is_load = True
    """Its requests are arrivals and count for the model's objective (`mark.serving.gateway.held_requests`)."""

    def __init__(self, name: str, limits: ClientLimits) -> None:
        self.name, self.limits = name, limits
        self.priority = Priority.NORMAL
        #: of the async class: how long a request may wait for its answer
        self.deadline_s = 0.0
        #: name in frames, and the details of a frame that has no others; none for the service's own token
        self.client = b"" if name == SERVICE else name.encode()
        self.details = client_details(self.client) if self.client else b""
        #: when it last had an answer of this model, by the loop's clock, as far as was looked
        self.active_at = -math.inf
        #: share of the time for waiting that it may use (`mark.dispatch.client_limits`)
        self.queue_share = 1.0
        self._counted = 0
        self.answered = self.late = self.items = self.shed = self.failed = self.limited = 0

    def served(self, size: int, *, late: bool) -> None:
        """A model's answer went out to a request that was admitted."""
        self.limits.in_flight -= 1
        self.answered += 1
        self.items += size
        if late:
            self.late += 1

    def refused(self, status: int) -> None:
        """An answer that serves nobody, status 400 or more, went out to one."""
        self.limits.in_flight -= 1
        if status == SHED:
            self.shed += 1
        elif not is_rejection(status):
            self.failed += 1

    def is_active(self, now: float) -> bool:
        """True where it had answers of the model lately, were they refusals."""
        counted = self.answered + self.shed + self.failed + self.limited
        if counted != self._counted:
            self._counted, self.active_at = counted, now
        return now - self.active_at < PRESENT_S

    def traffic(self) -> ClientTraffic:
        """The counts."""
        return ClientTraffic(client=self.name, **{name: getattr(self, name) for name in CLIENT_COUNTS})


class Account:
    """One client at this gateway, or whoever has the service's token (`client` None): that one may do all."""

    __slots__ = ("client", "limits", "uses")

    def __init__(self, client: Client | None, limits: ClientLimits) -> None:
        self.client, self.limits = client, limits
        self.uses: dict[str, ClientUse] = {}

    def use_of(self, model: str) -> ClientUse:
        """Its use of a model."""
        use = self.uses.get(model)
        if use is None:
            name = SERVICE if self.client is None else self.client.name
            use = self.uses[model] = ClientUse(name, self.limits)
            self._set_class(use)
        return use

    @property
    def priority(self) -> Priority:
        """Its class; the service's own requests have that of a client that names none."""
        return Priority.NORMAL if self.client is None else self.client.priority

    def set_client(self, client: Client) -> None:
        """Take what was changed of it."""
        self.client = client
        for use in self.uses.values():
            self._set_class(use)

    def _set_class(self, use: ClientUse) -> None:
        use.priority = self.priority
        use.deadline_s = 0.0 if self.client is None else self.client.deadline_s or 0.0

    def status_for(self, model: str) -> int:
        """The status that refuses it for this model; 0 where it may use it."""
        return 0 if self.client is None else access_status(self.client, model)


class Clients:
    """All clients of the service as this gateway knows them. Made and used in one event loop."""

    def __init__(self) -> None:
        self._directory = ClientDirectory()
        self._exist = False
        self._gateways = 1
        self._tokens: tuple[bytes, ...] = ()
        self._service = Account(None, ClientLimits(Limits(), gateways=1, now=0.0))
        self._accounts: dict[str, Account] = {}
        self._by_hash: dict[str, Account] = {}
        self._expires_at: float | None = None

    @property
    def asks_token(self) -> bool:
        """True where the service has a token: then nobody comes in without one, or a client's key."""
        return bool(self._tokens)

    @property
    def exist(self) -> bool:
        """True where the service has clients: then inference needs a key or the token, and each is counted."""
        return self._exist

    def set_tokens(self, tokens: Sequence[str]) -> None:
        """Accept these tokens of the service and no other."""
        self._tokens = tuple(token.encode() for token in tokens)

    def follow(self, directory: ClientDirectory | None, *, now: float, loop_now: float) -> bool:
        """Know these clients; True where that changed what is accepted. What was used of limits stays used.

        A store may have lost changes, and have got others since: what is known of them counts until its leader has
        restored them, and what was revoked stays so. directory: None where the store is unreachable. now: epoch
        seconds, by which keys expire even then. loop_now: the loop's clock.
        """
        directory = self._directory if directory is None else self._directory.merged(directory)
        expired = self._expires_at is not None and now >= self._expires_at
        if directory == self._directory and not expired:
            return False
        self._directory = directory
        self._exist = bool(directory.present)
        accounts: dict[str, Account] = {}
        self._by_hash = {}
        ends = []
        for client in directory.clients:
            account = self._accounts.get(client.name)
            if account is None:
                account = Account(client, ClientLimits(client.limits, gateways=self._gateways, now=loop_now))
            elif account.client != client:
                account.set_client(client)
                account.limits.share(client.limits, gateways=self._gateways, now=loop_now)
            accounts[client.name] = account
            for key in client.valid_keys(now):
                self._by_hash[key.sha256] = account
                ends += [] if key.expires_at is None else [key.expires_at]
        self._accounts = accounts
        self._expires_at = min(ends, default=None)
        return True

    def set_gateways(self, count: int, loop_now: float) -> None:
        """Keep the share of each limit that is this gateway's, one of `count`."""
        if count != self._gateways:
            self._gateways = count
            for account in self._accounts.values():
                if account.client is not None:
                    account.limits.share(account.client.limits, gateways=count, now=loop_now)

    def refresh_shares(self, models: Iterable[str], loop_now: float) -> None:
        """Set the share of the queue that each class may use, by the classes that are present."""
        for model in models:
            uses = self._uses_of(model)
            present = {use.priority for use in uses if use.is_active(loop_now)}
            for use in uses:
                use.queue_share = queue_share(use.priority, present)

    def identify(self, headers: dict[str, bytes]) -> Account | None:
        """The account whose token or key these headers carry; None for a stranger.

        A service that has neither token nor clients knows no strangers.
        """
        scheme, _, sent = headers.get("authorization", b"").partition(b" ")
        if scheme.lower() == BEARER:
            sent = sent.strip(b" ")
            if any(hmac.compare_digest(sent, known) for known in self._tokens):
                return self._service
            if self._by_hash:
                # The time of a look-up by hash tells nothing of a key: who lacks it cannot steer the hash.
                account = self._by_hash.get(hash_of_key(sent))
                if account is not None:
                    return account
        return None if self._tokens or self.exist else self._service

    def traffic(self, model: str) -> tuple[ClientTraffic, ...]:
        """Counts of all clients that have used a model, by name; of the service's own requests, too."""
        return tuple(sorted((use.traffic() for use in self._uses_of(model)), key=lambda one: one.client))

    def _uses_of(self, model: str) -> list[ClientUse]:
        accounts = (*self._accounts.values(), self._service)
        return [account.uses[model] for account in accounts if model in account.uses]
