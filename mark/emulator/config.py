"""Configuration of an emulated AWS, given by whoever starts it; it reads no environment of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mark.aws.permissions.policies import Names
from mark.cloudmodel.world import IDEAL, World
from mark.domain.clock import ClockAnchor
from mark.domain.commitments.owned import NO_COMMITMENTS, Commitments
from mark.domain.offerings.offering import InstanceType
from mark.emulator.signature import AccessKey

ACCOUNT = "123456789012"
REGION = "us-east-1"
DEFAULT_ZONE = "a"
"""Zone of what names none, where zones are not told apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeDraws:
    """Random generators of instances' lives: one for boots, one for wakes, and one for each spot pool by name.

    A pool's is the same whenever it is asked for.
    """

    boots: np.random.Generator
    wakes: np.random.Generator
    spot: Callable[[str], np.random.Generator]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """Random generators: for victims, for idle lives of Lambda, and for lives of instances by their model's tag.

    With the simulator's streams of the same names, lives are those of each model's replay. Victims and idle lives
    are a replay's only where the service has one model.
    """

    victims: np.random.Generator
    lambdas: np.random.Generator
    lives: Callable[[str], LifeDraws]


@dataclass(frozen=True, slots=True, kw_only=True)
class LambdaLimits:
    """Limits and times of Lambda. `cold_start_s` is an emulated delay in real seconds before the real start.

    Idle lives are seconds of service time; `burst` new environments may start in `burst_window_s` real seconds.
    """

    cold_start_s: float = 2.9
    idle_min_s: float = 45 * 60.0
    idle_max_s: float = 60 * 60.0
    concurrency: int = 1000
    burst: int = 1000
    burst_window_s: float = 10.0
    payload_bytes: int = 6 * 1024 * 1024
    memory_mb: int = 10_240


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedAwsConfig:
    """One emulated account and region.

    `types`: the instance types that exist, with prices and spot hazards. `agent`: `module:function`, called with
    a mapping of environment variables in each instance's process; what it returns is the exit code. `folder`
    takes one log file an instance and function. `environment` is given to every child process, `python_path` is
    appended to its module path. `world` says how long wakes take and what is refused, drawn from `seed`. `stress`
    multiplies the spot hazard. `port` 0 takes a free one. `quotas`: vCPU quotas by Service Quotas' codes, where
    they are not the usual ones (`emulator/ec2/account_limits.py`). `closed`: until it is told to open it answers
    nobody but who sets the account up, so that nobody meets one that is still empty. `names`: the service whose
    roles the account knows; what their policies do not allow is refused. None: nobody is judged.
    `listing_lag_s`: so long, in service time, listings lack what was launched and show what ended as running, and
    a fleet's order that comes again is answered with nothing in it; 0 for listings that are exact.
    `commitments`: what the account has bought and reserved.
    `sells_by_zone`: types are had only in the zones that AWS sells them in. `key`: the account's: no call is
    answered that another has signed. None: any key does. `free_plan` and `front`: see `AccountLimits`.
    """

    types: Mapping[str, InstanceType]
    draws: Draws
    agent: str
    folder: Path
    world: World = IDEAL
    seed: int = 0
    anchor: ClockAnchor = field(default_factory=ClockAnchor)
    stress: float = 1.0
    lambdas: LambdaLimits = field(default_factory=LambdaLimits)
    quotas: Mapping[str, float] = field(default_factory=dict)
    commitments: Commitments = NO_COMMITMENTS
    host: str = "127.0.0.1"
    port: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    python_path: tuple[str, ...] = ()
    closed: bool = False
    names: Names | None = None
    listing_lag_s: float = 0.0
    sells_by_zone: bool = False
    free_plan: bool = False
    front: tuple[InstanceType, int] | None = None
    key: AccessKey | None = None
    kill_after_s: float = 2.0
    restart_after_s: float = 1.0
