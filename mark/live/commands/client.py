"""`mark client`: the clients of a service, their keys and limits, changed while it serves."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict

from mark.config.settings import Settings
from mark.dispatch.client_limits import FORBIDDEN, UNAUTHORIZED
from mark.domain.clients import Client, ClientDirectory, HashedKey, Limits, Priority, hash_of_key
from mark.domain.errors import Misconfigured, RetryLater
from mark.live.local.run_dir import RunFolder
from mark.live.local.running import Running
from mark.live.service_session import service_store
from mark.report.formatting import MISSING, format_duration
from mark.report.live.formatting import format_time
from mark.report.tables import figures, make_table, texts
from mark.report.terminal import note, show, show_json
from mark.steady_time import steady_time
from mark.store.codec import CLIENTS
from mark.store.service import ServiceStore

KEY_BYTES = 32
"""Random bytes of a key: 256 bits, which nobody guesses, so that its hash may be a fast one."""
PREFIX = "mark_"
"""Start of every key, by which people and scanners for secrets know one."""
DEFAULT_DEADLINE_S = 3600.0
"""Deadline of a client of the async class that names none."""
MOST_KEPT_S = 30 * 86_400.0
"""A replaced key counts no longer than that beside the new one, as the old token of `mark rotate`."""
NO_CLIENTS = "the service has no clients: requests need its token, where it has one"
KEYS_NEEDED = (
    "it is the first client: from now on every request for inference needs a client's key or the service's token"
)


class ClientDocument(TypedDict):
    """A client in the documents of `mark client` (docs/json.md)."""

    name: str
    #: Models that it may use; empty for all.
    models: list[str]
    #: Limit; null for none.
    rate_rps: float | None
    #: Requests at once beyond the rate.
    burst: int
    #: Limit; null for none.
    concurrency: int | None
    priority: Priority
    #: Of the async class, seconds; null for the others.
    deadline_s: float | None
    #: Epoch seconds.
    created_at: float
    #: Epoch seconds; null while it is valid.
    revoked_at: float | None
    #: When each valid key expires, newest first; null: never.
    keys_expire_at: list[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewClient:
    """The client that `mark client create` is to create. `models` None: all; `burst` None: a second's worth.

    deadline_s: for the async class, DEFAULT_DEADLINE_S where None.
    """

    name: str
    models: tuple[str, ...] | None = None
    rate_rps: float | None = None
    burst: int | None = None
    concurrency: int | None = None
    priority: str = Priority.NORMAL.value
    deadline_s: float | None = None


def create_client(settings: Settings, new: NewClient, *, as_json: bool) -> None:
    """Create a client and print its key, which cannot be shown again."""
    if new.rate_rps is None and new.burst is not None:
        raise Misconfigured("--burst needs --rate: without a rate there is no limit")
    if new.models == ():  # an empty variable of a script must not open all models
        raise Misconfigured("--models names no model; leave it out for all")
    if new.priority not in tuple(Priority):
        raise Misconfigured(f"--priority must be {', '.join(Priority)}, not {new.priority}")
    if new.deadline_s is not None and new.priority != Priority.ASYNC:
        raise Misconfigured("--deadline is of --priority async; the other classes have the model's objective")
    if new.rate_rps == 0 or new.concurrency == 0:
        raise Misconfigured(f"--{'concurrency' if new.concurrency == 0 else 'rate'} 0: leave it out for no limit")
    limits = Limits(rate_rps=new.rate_rps, burst=_burst(new), concurrency=new.concurrency)
    key = new_key()
    now = steady_time()
    client = Client(
        name=new.name,
        keys=(HashedKey(sha256=hash_of_key(key.encode())),),
        models=tuple(dict.fromkeys(new.models or ())),
        limits=limits,
        priority=Priority(new.priority),
        deadline_s=(new.deadline_s or DEFAULT_DEADLINE_S) if new.priority == Priority.ASYNC else None,
        created_at=now,
    )
    changed = _change(settings, lambda known, models: known.created(client, models=models))
    _show_key(changed.client(new.name), key, "is created", as_json=as_json, now=now)
    if changed.present == (changed.client(new.name),):
        note(f"{KEYS_NEEDED}; `mark client delete {new.name}` undoes that")


def rotate_client(settings: Settings, name: str, *, keep_old_s: float, as_json: bool) -> None:
    """Give a client another key and print it; the one before counts for `keep_old_s` more."""
    if keep_old_s > MOST_KEPT_S:
        raise Misconfigured(
            f"--keep-old is at most 30d, not {keep_old_s / 86_400:g}d; `mark client create` makes a second client"
        )
    key, now = new_key(), steady_time()
    hashed = hash_of_key(key.encode())
    changed = _change(settings, lambda known, _: known.rotated(name, hashed, at=now, keep_old_s=keep_old_s))
    until = (
        f"the old one counts until {format_time(now + keep_old_s)} UTC" if keep_old_s else "the old one is void"
    )
    _show_key(changed.client(name), key, f"has a new key; {until}", as_json=as_json, now=now)


def revoke_client(settings: Settings, name: str, *, as_json: bool) -> None:
    """End all keys of a client; its figures stay."""
    now = steady_time()
    changed = _change(settings, lambda known, _: known.revoked(name, at=now))
    if as_json:
        show_json({"service": settings.service.name, "client": _document(changed.client(name), now)})
    else:
        show(f"the client {name} is revoked: gateways refuse its keys within a few seconds")


def delete_client(settings: Settings, name: str, *, as_json: bool) -> None:
    """Remove a client and end its keys. After the last one the service asks for no key, as before the first."""
    now = steady_time()
    changed = _change(settings, lambda known, _: known.deleted(name, at=now))
    left = [client.name for client in changed.present]
    if as_json:
        show_json({"service": settings.service.name, "deleted": name, "left": left})
        return
    show(f"the client {name} is deleted: gateways refuse its keys within a few seconds")
    if not left:
        show(NO_CLIENTS)


def list_clients(settings: Settings, *, as_json: bool) -> None:
    """Print all clients, revoked ones too."""
    store, _ = service_store(settings)
    clients, now = store.clients.read().present, steady_time()
    if as_json:
        found = [_document(client, now) for client in clients]
        show_json({"service": settings.service.name, "clients": found})
    elif not clients:
        show(NO_CLIENTS)
    else:
        columns = [
            *texts("client", "models"),
            *figures("req/s", "burst", "most at once"),
            *texts("priority", "keys"),
        ]
        table = make_table(columns, gap=2)
        for client in clients:
            limits = client.limits
            table.add_row(
                client.name,
                ", ".join(client.models) or "all",
                *(MISSING, MISSING) if limits.rate_rps is None else (f"{limits.rate_rps:g}", str(limits.burst)),
                MISSING if limits.concurrency is None else str(limits.concurrency),
                _class_text(client),
                _keys_text(client, now),
            )
        show(table)


def as_client(running: Running, key_file: Path | None) -> Running:
    """The service as the client sees it whose key is in the file; as its operator does without one."""
    return running if key_file is None else replace(running, token=read_key(key_file))


def refusal_hint(status: int, model: str, key_file: Path | None) -> str:
    """What to do where a service on this machine refuses requests with this status; empty for another status."""
    if status == UNAUTHORIZED and key_file is None:
        return "requests need a client's key: name a file that holds it by --key-file FILE (docs/clients.md)"
    if status == UNAUTHORIZED:
        return f"the key in {key_file} is unknown, expired, revoked or of a deleted client: see `mark client list`"
    if status == FORBIDDEN:
        return f"the client may not use {model}: name one of its models by --model; `mark client list` has them"
    return ""


def read_key(path: Path) -> str:
    """The key in a file. Misconfigured where there is none."""
    try:
        key = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"cannot read a client's key from {path}: {error}") from error
    if not key or not key.isprintable():
        raise Misconfigured(f"{path} must hold a client's key, as `mark client create` printed it, and no more")
    return key


def new_key() -> str:
    """A key that nobody has."""
    return PREFIX + secrets.token_urlsafe(KEY_BYTES)


def _burst(new: NewClient) -> int:
    if new.burst is not None or new.rate_rps is None or not new.rate_rps < math.inf:
        return 1 if new.burst is None else new.burst
    return max(1, math.ceil(new.rate_rps))


def _change(
    settings: Settings, change: Callable[[ClientDirectory, tuple[str, ...]], ClientDirectory]
) -> ClientDirectory:
    """Change the clients of the service. Misconfigured where no such service is up."""
    store, models = service_store(settings)
    changed = store.clients.change(lambda known: change(known, models))
    folder = RunFolder.of(settings.service.name)
    if folder.running() is not None:
        try:
            _keep_copy(store, folder)
        except (OSError, RetryLater) as error:
            note(f"the clients are changed, but not kept for the next `mark up`: {folder.path}: {error}")
    return changed


def _keep_copy(store: ServiceStore, folder: RunFolder) -> None:
    """Keep the clients in the folder as they are at last, whichever of several commands at once writes last."""
    kept = None
    while (known := store.clients.read()) != kept:
        folder.write_clients(CLIENTS.encode(known))
        kept = known


def _show_key(client: Client, key: str, said: str, *, as_json: bool, now: float) -> None:
    if as_json:
        show_json({"client": _document(client, now), "key": key})
        return
    show(f"the client {client.name} {said}")
    show(f"key  {key}")
    show("It is shown this once. Requests carry it as `Authorization: Bearer KEY`.")


def _document(client: Client, now: float) -> ClientDocument:
    return {
        "name": client.name,
        "models": list(client.models),
        "rate_rps": client.limits.rate_rps,
        "burst": client.limits.burst,
        "concurrency": client.limits.concurrency,
        "priority": client.priority,
        "deadline_s": client.deadline_s,
        "created_at": client.created_at,
        "revoked_at": client.revoked_at,
        "keys_expire_at": [key.expires_at for key in client.valid_keys(now)],
    }


def _class_text(client: Client) -> str:
    if client.deadline_s is None:
        return client.priority.value
    return f"{client.priority.value}, {format_duration(client.deadline_s)}"


def _keys_text(client: Client, now: float) -> str:
    if client.revoked_at is not None:
        return f"revoked {format_time(client.revoked_at)} UTC"
    ending = [key.expires_at for key in client.valid_keys(now) if key.expires_at is not None]
    return f"2, the older until {format_time(ending[0])} UTC" if ending else "1"
