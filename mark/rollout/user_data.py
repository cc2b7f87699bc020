"""Room of the start scripts: EC2 takes so much user data and no more, and says so when a stack is half made.

Most of a script is fixed; the settings, and the files that these name, are what makes one too long. A template's
functions are counted as what they become, values of other stacks at the longest that AWS gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mark.domain.documents import json_text
from mark.domain.errors import Misconfigured

MOST_BYTES = 16_384
"""Of user data before base64 (EC2 user guide, "Instance user data")."""
LAUNCH_TEMPLATE = "AWS::EC2::LaunchTemplate"
LONGEST = {"bucket": 63, "url": 128}
"""Bytes of a value that another stack exports, by the last word of its name: a bucket's name, a queue's URL."""
ID_BYTES = 32
"""Of all other values: identifiers of subnets and groups have up to 24 bytes, of hosted zones up to 32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserData:
    """Longest user data of a service: the launch template's name, and the bytes that it has at most.

    `settings_bytes`, `files_bytes`: of the service's settings, and of the files that they name, in it.
    """

    template: str
    most_bytes: int
    settings_bytes: int
    files_bytes: int

    @property
    def fits(self) -> bool:
        """True where EC2 takes it."""
        return self.most_bytes <= MOST_BYTES

    @property
    def words(self) -> str:
        """Its size, and what it is made of."""
        return (
            f"the start script of {self.template} has up to {self.most_bytes:,} bytes, of {MOST_BYTES:,} that "
            f"EC2 takes: the settings are {self.settings_bytes:,} of them, the files that they name "
            f"{self.files_bytes:,}"
        )

    @property
    def remedy(self) -> str:
        """Advice where it does not fit."""
        files = "name fewer or smaller files (profiles, models, prices, service_prices)"
        fewer = "serve fewer models or leave settings at their defaults"
        return f"{files}, or {fewer}" if self.files_bytes else fewer


def longest_user_data(
    templates: Mapping[str, Mapping[str, Any]], region: str, *, settings: str, files: str
) -> UserData:
    """The longest user data of all launch templates. settings, files: texts that they hold."""
    sizes = dict(pair for template in templates.values() for pair in _sizes(template, region))
    template = max(sorted(sizes), key=lambda name: sizes[name])
    return UserData(
        template=template,
        most_bytes=sizes[template],
        settings_bytes=len(settings.encode()),
        files_bytes=len(files.encode()),
    )


def require_room(found: UserData) -> None:
    """Misconfigured where EC2 would not take it."""
    if not found.fits:
        raise Misconfigured(f"{found.words}; {found.remedy}")


def _sizes(template: Mapping[str, Any], region: str) -> Iterator[tuple[str, int]]:
    for resource in template["Resources"].values():
        if resource["Type"] == LAUNCH_TEMPLATE:
            about = resource["Properties"]
            data = about["LaunchTemplateData"]["UserData"]
            yield about["LaunchTemplateName"], text_bytes(data, template.get("Mappings", {}), region)


def text_bytes(value: object, mappings: Mapping[str, Any], region: str) -> int:
    """Bytes of a text in a template, at most (CloudFormation template reference, "Intrinsic functions")."""
    match value:
        case {"Fn::Base64": inner}:
            parts, rest = [inner], 0
        case {"Fn::Join": [str(between), list(joined)]}:
            parts, rest = joined, len(between.encode()) * (len(joined) - 1)
        case {"Fn::FindInMap": [str(name), str(first), str(second)]}:
            parts, rest = [mappings[name][first][second]], 0
        case _:
            return _plain_bytes(value, region)
    return rest + sum(text_bytes(part, mappings, region) for part in parts)


def _plain_bytes(value: object, region: str) -> int:
    match value:
        case str():
            return len(value.encode())
        case {"Ref": "AWS::Region"}:
            return len(region)
        case {"Fn::ImportValue": str(name)}:
            return LONGEST.get(name.rpartition("-")[2], ID_BYTES)
        case {"Ref": str()} | {"Fn::GetAtt": _}:
            return ID_BYTES
        case _:  # a function that these templates do not use: at least its own text
            return len(json_text(value).encode())
