"""A tenant's share of a shared instance: what it takes there first, what spares its own fleet, gateways' parts.

The share is a token bucket. Several gateways each keep one for their part of it, by the loads that all of them
announce: nobody is asked while a request waits.
"""

from __future__ import annotations

import math

from mark.dispatch.routing import Server

SHARE_FIELDS = {
    "share_rps": "f8",  # requests/s that the tenant takes before the model's own instances are asked
    "share_left": "f8",  # of these, how many at once now
    "share_at": "f8",  # when that was counted last
}
SHARE_S = 10.0
"""A tenant may take the requests of so long at once, beside one batch."""
LOAD_S = 5.0
"""Time constant of a gateway's load: few requests make no load, and the bucket of SHARE_S bears that it lags. A
gateway that has just come has a small part, and a small bucket, for so long."""


def has_share(now: float, server: Server) -> bool:
    """True where the tenant may take one more of the requests that were planned for it. It has SHARE_FIELDS."""
    most = SHARE_S * server.share_rps + server.max_batch
    server.share_left = min(most, server.share_left + server.share_rps * (now - server.share_at))
    server.share_at = now
    return bool(server.share_left >= 1.0)


def spares_own(in_share: bool, has_backup: bool) -> bool:
    """True where a request that a shared instance answers in time is no load of the model's own fleet.

    in_share: of the tenant's share. Beyond that neighbours may need the device, and without Lambda as a backup
    nothing but the model's own fleet would answer then.
    """
    return in_share or has_backup


def part_of_share(share_rps: float, load_rps: float, all_rps: float, gateways: int) -> float:
    """A gateway's part of a share, requests/s: its load and an even part of the rest, or by load where it is less.

    all_rps: load of all `gateways`. Each has one request in SHARE_S more, so that where a load begins there is a
    part. All parts add up to the share.
    """
    all_need_rps = all_rps + gateways / SHARE_S
    if share_rps > all_need_rps:
        return load_rps + (share_rps - all_rps) / gateways
    return share_rps * (load_rps + 1.0 / SHARE_S) / all_need_rps


def recent_rps(before_rps: float, arrivals: int, passed_s: float) -> float:
    """Load by exponential smoothing, requests/s: that of before, and what arrived in the seconds since."""
    return before_rps + (arrivals / passed_s - before_rps) * (1.0 - math.exp(-passed_s / LOAD_S))
