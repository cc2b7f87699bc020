"""Faults of a seed, over (API x error code x moment), and the life of a service in which they happen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from mark.aws.permissions.calls import CONTROLLER
from mark.emulator.faults import Fault
from tests.aws.documented_errors import documented
from tests.scenarios.emulated_account import How, Trouble
from tests.scenarios.service_world import START_AT, ServiceWorld

MINUTE_S, HOUR_S = 60.0, 3600.0
TROUBLED_S = 30 * MINUTE_S
"""From the start on: start, scale-out, a version's rollout, interruptions, an update."""
CALM_S = TROUBLED_S + 7 * MINUTE_S
"""When the last fault is over."""
QUIET_S = CALM_S + HOUR_S
FAULTS, ALL = 8, 10**6
LINES = 40
"""Of what happened, that a failure tells."""
HOWS: tuple[tuple[How, float], ...] = (
    ("refused", 0.5),
    ("lost", 0.15),
    ("unanswered", 0.12),
    ("unreachable", 0.1),
    ("killed-before", 0.04),
    ("killed-after", 0.09),
)
LOST = (("InternalError", 500), ("Unavailable", 503), ("InternalFailure", 500))
EC2 = ("CreateFleet", "DescribeInstances", "TerminateInstances", "StartInstances", "StopInstances")
CALLS = sorted({(call.service, call.action) for call in CONTROLLER} - {("s3", "GetObject")})
"""A stand-in forecasts, which is never trained."""
WEIGHTS = np.array([6.0 if action in EC2 else 1.0 for _, action in CALLS])
POOLS = ("", "c5.large:spot", "c5.large:on-demand")
LAUNCH_CODES = (
    "InsufficientInstanceCapacity",
    "MaxSpotInstanceCountExceeded",
    "UnfulfillableCapacity",
    "UnauthorizedOperation",
    "InternalError",
    "VcpuLimitExceeded",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """What a seed draws: seconds are since the service's start, those of `destroyed` since the destroy's."""

    seed: int
    troubles: tuple[Trouble, ...]
    disturbances: tuple[tuple[float, Fault], ...]
    #: (from, to, seconds) in which listings lag and messages come late.
    lags: tuple[tuple[float, float, float], ...]
    late: tuple[tuple[float, float, float], ...]
    killed_at: float
    destroyed: tuple[Trouble, ...]

    @property
    def faults(self) -> int:
        """How many there are."""
        groups = (self.troubles, self.disturbances, self.lags, self.late, self.destroyed)
        return sum(map(len, groups)) + 1

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: the controller is killed at {self.killed_at:.0f} s", *map(str, self.troubles)]
        lines += [f"{at:.0f} s: {fault}" for at, fault in self.disturbances]
        lines += [f"listings lag {lag:.0f} s from {begins:.0f} to {ends:.0f} s" for begins, ends, lag in self.lags]
        lines += [
            f"messages are {lag:.0f} s late from {begins:.0f} to {ends:.0f} s" for begins, ends, lag in self.late
        ]
        return "\n  ".join((*lines, *(f"destroy: {one}" for one in self.destroyed)))


def drawn(seed: int) -> Draw:
    """The faults of a seed."""
    rng = np.random.default_rng(seed)
    kinds = rng.choice(["call", "burst", "fault", "lag", "late"], size=FAULTS, p=[0.65, 0.05, 0.14, 0.1, 0.06])
    troubles, disturbances, lags, late = [], [], [], []
    for kind in kinds:
        at = float(round(rng.uniform(0.0, TROUBLED_S)))
        lasts_s = float(round(rng.uniform(30.0, CALM_S - TROUBLED_S)))
        if kind == "call":
            troubles.append(_trouble(rng, at, lasts_s, *CALLS[rng.choice(len(CALLS), p=WEIGHTS / WEIGHTS.sum())]))
        elif kind == "burst":
            troubles.append(
                Trouble(
                    at=at,
                    service="ec2",
                    action="",
                    how="refused",
                    code="RequestLimitExceeded",
                    status=503,
                    count=ALL,
                    lasts_s=lasts_s,
                )
            )
        elif kind == "fault":
            disturbances.append((at, _fault(rng, lasts_s)))
        elif kind == "lag":
            lags.append((at, at + lasts_s, float(round(rng.uniform(2.0, 90.0)))))
        else:
            late.append((at, at + lasts_s, float(round(rng.uniform(5.0, 90.0)))))
    destroyed = [
        _trouble(rng, float(round(rng.uniform(0.0, 30.0))), 60.0, "ec2", str(rng.choice(EC2[1:3])))
        for _ in range(int(rng.integers(0, 3)))
    ]
    return Draw(
        seed=seed,
        troubles=tuple(troubles),
        disturbances=tuple(disturbances),
        lags=tuple(lags),
        late=tuple(late),
        killed_at=float(round(rng.uniform(0.0, TROUBLED_S))),
        destroyed=tuple(one for one in destroyed if not one.how.startswith("killed")),
    )


def _trouble(rng: np.random.Generator, at: float, lasts_s: float, service: str, action: str) -> Trouble:
    hows, shares = zip(*HOWS, strict=True)
    how: How = hows[rng.choice(len(hows), p=shares)]
    codes = documented(service, action) if how == "refused" else LOST
    code, status = codes[rng.integers(len(codes))]
    count = 1 if how.startswith("killed") else int(rng.choice([1, 1, 2, 4, 5, 20, ALL]))
    if count < ALL:  # the next calls, whenever they come
        lasts_s = max(lasts_s, CALM_S - at)
    return Trouble(
        at=at, service=service, action=action, how=how, code=code, status=status, count=count, lasts_s=lasts_s
    )


def _fault(rng: np.random.Generator, lasts_s: float) -> Fault:
    kind = rng.choice(["capacity", "partial", "die", "late-boot"])
    pool = str(rng.choice(POOLS))
    if kind == "capacity":
        return Fault(kind="capacity", code=str(rng.choice(LAUNCH_CODES)), seconds=lasts_s, match=pool)
    if kind == "partial":
        return Fault(kind="partial", share=float(rng.choice([0.0, 0.5, 0.8])), count=int(rng.integers(1, 4)))
    if kind == "die":
        return Fault(kind="die", code="Client.InternalError", count=int(rng.integers(1, 6)), match=pool)
    return Fault(kind="late-boot", share=float(rng.choice([2.0, 4.0])), seconds=lasts_s)


@contextmanager
def told(draw: Draw, world: ServiceWorld) -> Iterator[None]:
    """Say with any failure how to replay it, and what happened."""
    try:
        yield
    except BaseException as error:
        met = [(at, " ".join(what)) for at, *what in world.account.met]
        lines = [f"{at - START_AT:7.0f} {what}" for at, what in sorted(world.said + met)[-LINES:]]
        raise AssertionError(
            f"{error}\nreplay: MARK_FAULT_SEEDS={draw.seed} pytest tests/scenarios/test_faults.py\n{draw}\n"
            + "\n".join(lines)
        ) from error


def rate_at(at: float) -> float:
    """Requests/s of the service: a morning, a crowd, an afternoon."""
    minute = (at - START_AT) / MINUTE_S
    return 8.0 if minute < 8 else 24.0 if minute < 25 else 12.0
