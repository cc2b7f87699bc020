"""Totals by client, and each client's part of what serving cost. Pure.

The rule: of the cost of serving a model (instances, standbys, Lambda), clients bear the share of its answers that
were theirs, and each of them the share of the items in these answers. What was answered before the service had
clients is nobody's, and so is what stands around the fleets. Refused requests cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mark.dispatch.objective import attainment
from mark.domain.load.traffic import CLIENT_COUNTS, ClientTraffic


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTotals:
    """Totals of one client's requests of one model; the counts are those of `ClientTraffic`.

    They may be broken, where they were read between two marks.
    """

    answered: float = 0.0
    late: float = 0.0
    shed: float = 0.0
    failed: float = 0.0
    limited: float = 0.0
    items: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientAnswers:
    """One client's requests of a model, in whole, and its part of the cost of serving it."""

    #: Its name; `(token)` for requests with the service's own token.
    client: str
    #: All but those that were wrong in themselves.
    requests: int = 0
    #: Requests that were answered.
    answered: int = 0
    #: Those that were answered too late.
    late: int = 0
    #: Requests refused for lack of capacity.
    shed: int = 0
    #: Requests that failed.
    failed: int = 0
    #: Requests refused by the client's own limits; they do not count as missed.
    limited: int = 0
    #: Items of the requests that were answered.
    items: int = 0
    #: Share answered in time of what its limits admitted; None while nothing is finished.
    attained: float | None = None
    #: Its part of what serving the model cost, by the items that were answered, USD.
    cost_usd: float = 0.0


def totals_of(clients: Iterable[ClientTraffic]) -> dict[str, ClientTotals]:
    """Totals by client."""
    return {
        one.client: ClientTotals(**{name: float(getattr(one, name)) for name in CLIENT_COUNTS}) for one in clients
    }


def traffic_of(clients: Mapping[str, ClientTotals]) -> tuple[ClientTraffic, ...]:
    """The same in whole requests, as gateways count them."""
    return tuple(
        ClientTraffic(client=client, **{name: round(getattr(totals, name)) for name in CLIENT_COUNTS})
        for client, totals in clients.items()
    )


def between(
    before: Mapping[str, ClientTotals], after: Mapping[str, ClientTotals], share: float
) -> dict[str, ClientTotals]:
    """Totals on a straight line from `before` (share 0) to `after` (1); who is absent has none yet."""
    none = ClientTotals()
    return {
        client: ClientTotals(
            **{
                name: (1 - share) * getattr(before.get(client, none), name)
                + share * getattr(after.get(client, none), name)
                for name in CLIENT_COUNTS
            }
        )
        for client in sorted({*before, *after})
    }


def grown(before: Mapping[str, ClientTotals], after: Mapping[str, ClientTotals]) -> tuple[ClientTraffic, ...]:
    """Counts between two instants, in whole requests, by client; who had none is left out."""
    none = ClientTotals()
    found = (
        ClientTraffic(
            client=client,
            **{
                name: round(getattr(totals, name)) - round(getattr(before.get(client, none), name))
                for name in CLIENT_COUNTS
            },
        )
        for client, totals in sorted(after.items())
    )
    return tuple(one for one in found if one.requests)


def costs_by_client(clients: Sequence[ClientTraffic], *, serving_usd: float, answered: int) -> dict[str, float]:
    """Cost by client, USD. serving_usd: of the model; answered: all its answers, those to clients among them."""
    theirs, items = sum(one.answered for one in clients), sum(one.items for one in clients)
    if not items:
        return dict.fromkeys((one.client for one in clients), 0.0)
    usd = serving_usd * min(1.0, theirs / max(1, answered))
    return {one.client: usd * one.items / items for one in clients}


def answers_by_client(
    clients: Sequence[ClientTraffic], *, serving_usd: float, answered: int
) -> tuple[ClientAnswers, ...]:
    """Requests, attainment and cost by client; the rest as in `costs_by_client`."""
    usd = costs_by_client(clients, serving_usd=serving_usd, answered=answered)
    return tuple(
        ClientAnswers(
            client=one.client,
            requests=one.requests,
            **{name: getattr(one, name) for name in CLIENT_COUNTS},
            attained=attainment(one.missed, one.finished),
            cost_usd=usd[one.client],
        )
        for one in clients
    )
