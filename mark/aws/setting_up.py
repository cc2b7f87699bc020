"""What a service needs on AWS, made where it is missing and tagged with the service; and its removal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mark.aws.session import Aws
from mark.domain.fleet import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSetup:
    """A function: its name, `module.attribute` of its handler, code (a zip), memory, and environment."""

    name: str
    handler: str
    code: bytes
    memory_mib: int = 512
    timeout_s: int = 60
    environment: Mapping[str, str]
    runtime: str = "python3.11"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSetup:
    """A service: `store_url` goes into the instances' user data; `infer` are its models' functions.

    `code` is the zip of the interruption and warm handlers.
    """

    service: str
    store_url: str
    image_id: str
    infer: Sequence[FunctionSetup]
    code: bytes
    instance_profile: str = ""
    security_groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceResources:
    """Where what was made is found."""

    raw_url: str
    events_url: str
    templates: Mapping[Role, str]
    functions: tuple[str, ...]


def set_up(aws: Aws, setup: ServiceSetup) -> ServiceResources:
    """Make what is missing, bring up to date what is there; asking again changes nothing."""
    raise NotImplementedError


def tear_down(aws: Aws, service: str) -> tuple[str, ...]:
    """End every instance of the service and remove what `set_up` made, also half of it; the instances ended."""
    raise NotImplementedError
