"""Queueing theory: the mean wait in an M/D/c queue, and the utilisation that it allows a fleet (MArk section 4.3).

MArk turns its mean latency l into a load that a fleet may carry: arrivals are Poisson, a service takes a fixed
time, c servers share one queue. M/D/c has no closed form, so its mean wait is that of M/M/c (exact, Erlang C)
times the correction of Cosmetatos, "Approximate explicit formulae for the average queueing time in the
processes (M/D/r) and (D/M/r)", INFOR 13 (1975):

    W(M/D/c) = f x W(M/M/c),  f = 1/2 (1 + (1 - rho) (c - 1) (sqrt(4 + 5c) - 2) / (16 c rho))

It is exact for one server (Pollaczek-Khinchine) and within about 2 % from a load of one half on. Below that f
grows without limit, while the true ratio in light traffic tends to c / (c + 1): when all are busy, the first of
c uniform residuals ends after T / (c + 1), the first of c exponential ones after T / c. We cap f there.
Waits that short do not decide a plan.
"""

from __future__ import annotations

import math
from functools import lru_cache

from numba import njit

from mark.domain.models.objective import Slo
from mark.domain.offerings.offering import Offering

MAX_SERVERS = 200
"""More servers than this count as this many: at equal load a larger fleet waits less, so this errs upwards."""
BISECTIONS = 50
"""Halvings of [0, 1]: the cap is known to 1e-15."""


@njit(cache=True)
def _wait_in_services(load: float, servers: int) -> float:  # pragma: no cover - compiled
    """Mean wait in service times at utilisation `load` < 1 of `servers` servers."""
    offered = load * servers
    blocked = 1.0  # Erlang B by its recursion in the number of servers: every term stays in [0, 1]
    for count in range(1, servers + 1):
        blocked = offered * blocked / (count + offered * blocked)
    delayed = blocked / (1.0 - load * (1.0 - blocked))
    factor = 1.0 + (1.0 - load) * (servers - 1) * (math.sqrt(4.0 + 5.0 * servers) - 2.0) / (16.0 * servers * load)
    factor = min(factor / 2.0, servers / (servers + 1.0))
    return factor * delayed / (servers * (1.0 - load))


@njit(cache=True)
def _largest_load(wait: float, servers: int, bisections: int) -> float:  # pragma: no cover - compiled
    """The largest utilisation whose mean wait, in service times, is at most `wait`."""
    low, high = 0.0, 1.0
    for _ in range(bisections):
        middle = (low + high) / 2.0
        if middle < 1.0 and _wait_in_services(middle, servers) <= wait:
            low = middle
        else:
            high = middle
    return low


def mean_wait_s(rate_rps: float, service_s: float, servers: int) -> float:
    """Mean seconds in the queue of M/D/c: Poisson `rate_rps`, fixed `service_s`, `servers` servers (1 or more).

    Infinite from a load of 1 on. Servers beyond `MAX_SERVERS` count as so many at the same load. Source and
    error: see the module.
    """
    load = rate_rps * service_s / servers
    if load >= 1:
        return math.inf
    if load <= 0:
        return 0.0
    return float(service_s * _wait_in_services(load, min(servers, MAX_SERVERS)))


@lru_cache(maxsize=65536)
def utilisation_cap(service_s: float, servers: int, mean_latency_s: float) -> float:
    """The largest utilisation in [0, 1] at which service and mean M/D/c wait take at most `mean_latency_s`.

    0 when the service alone takes longer.
    """
    if service_s >= mean_latency_s:
        return 0.0
    wait = (mean_latency_s - service_s) / service_s
    return float(_largest_load(wait, min(servers, MAX_SERVERS), BISECTIONS))


def usable_rps(offering: Offering, slo: Slo, rate_rps: float) -> float:
    """Largest rate of one instance of `offering` at which the mean latency keeps `slo.mean_latency_s`.

    Its capacity times the utilisation cap of a fleet of this type alone that carries `rate_rps`:
    ceil(rate / capacity) instances (at least one) with `max_batch` slots each, every slot a server that takes a
    full batch's time T_b. A slot model is kind to a batching machine in that slots start one by one, and harsh in
    that an item of a small batch is charged T_b all the same. 0 when T_b alone is over the mean latency.
    """
    instances = max(1, math.ceil(rate_rps / offering.capacity_rps - 1e-9))
    slots = min(MAX_SERVERS, instances * offering.batch.max_batch)
    return offering.capacity_rps * utilisation_cap(offering.latency_s, slots, slo.mean_latency_s)
