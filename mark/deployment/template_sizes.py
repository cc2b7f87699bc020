"""Room in what AWS takes of a template: start scripts, functions' variables, and the controllers' task.

Most of each is fixed; the settings, the files that these name, and what a model declares are what makes one too
long, and AWS says so when a stack is half made. A template's functions are counted as what they become, values of
other stacks at the longest that AWS gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from mark.aws.stacks.cloudformation import StackTemplate
from mark.domain.documents import json_text
from mark.domain.errors import Misconfigured

USER_DATA_BYTES = 16_384
"""Of user data before base64 (EC2 user guide, "Instance user data")."""
VARIABLES_BYTES = 4_096
"""Of all variables of a function together (Lambda developer guide, "Lambda quotas"), as the JSON that they are."""
TASK_BYTES = 65_536
"""Of a task definition (Amazon ECS developer guide, "Amazon ECS service quotas")."""
LONGEST = {"arn": 160, "bucket": 63, "secret": 160, "url": 128}
"""Bytes of a value that another stack exports, by the last word of its name: a bucket's name, a queue's URL."""
ID_BYTES = 32
"""Of all other values: identifiers of subnets and groups have up to 24 bytes, of hosted zones up to 32."""
LESS_DECLARED = (
    "have the model declare fewer or shorter inputs and outputs, or serve it without Lambda (offerings: "
    "{overflow: false})"
)
FEWER_SETTINGS = "serve fewer models or leave settings at their defaults"
FEWER_FILES = f"name fewer or smaller files (profiles, models, prices, service_prices), or {FEWER_SETTINGS}"
SHORTER_VARIABLES: Mapping[str, str] = MappingProxyType(
    {
        "MARK_INPUTS": LESS_DECLARED,
        "MARK_OUTPUTS": LESS_DECLARED,
        "MARK_REPORT_TO": "write one address of a mailing list into rollout.report.to instead of many",
    }
)
"""Advice on a function's variable that is too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateSize:
    """Longest of its kind among what a service's templates give to AWS.

    name: of the resource that has it; taker: the service of AWS that takes no more than `limit_bytes`.
    """

    kind: str
    name: str
    taker: str
    most_bytes: int
    limit_bytes: int
    #: Made of what, as the end of a sentence; and advice where it does not fit.
    parts: str
    remedy: str

    @property
    def fits(self) -> bool:
        """True where AWS takes it."""
        return self.most_bytes <= self.limit_bytes

    @property
    def words(self) -> str:
        """Its size, and what it is made of."""
        return (
            f"the {self.kind} of {self.name} has up to {self.most_bytes:,} bytes, of {self.limit_bytes:,} that "
            f"{self.taker} takes: {self.parts}"
        )


def template_sizes(
    templates: Mapping[str, StackTemplate], region: str, *, settings: str, files: str
) -> tuple[TemplateSize, ...]:
    """The longest start script, variables of a function and task, as far as there are any.

    settings, files: texts that scripts and tasks hold.
    """
    told = f"the settings are {_size(settings):,} of them, the files that they name {_size(files):,}"
    remedy = FEWER_FILES if files else FEWER_SETTINGS
    longest: dict[str, TemplateSize] = {}
    for template in templates.values():
        for one in _sizes(template, region, told, remedy):
            if one.kind not in longest or one.most_bytes > longest[one.kind].most_bytes:
                longest[one.kind] = one
    return tuple(longest[kind] for kind in sorted(longest))


def require_room(found: tuple[TemplateSize, ...]) -> None:
    """Misconfigured where AWS would not take one of them."""
    for one in found:
        if not one.fits:
            raise Misconfigured(f"{one.words}; {one.remedy}")


def _sizes(template: StackTemplate, region: str, told: str, remedy: str) -> Iterator[TemplateSize]:
    mappings = template.get("Mappings", {})
    for resource in template["Resources"].values():
        match resource:
            case {"Type": "AWS::EC2::LaunchTemplate", "Properties": about}:
                yield TemplateSize(
                    kind="start script",
                    name=about["LaunchTemplateName"],
                    taker="EC2",
                    most_bytes=_size(filled(about["LaunchTemplateData"]["UserData"], mappings, region)),
                    limit_bytes=USER_DATA_BYTES,
                    parts=told,
                    remedy=remedy,
                )
            case {"Type": "AWS::ECS::TaskDefinition", "Properties": about}:
                yield TemplateSize(
                    kind="task definition",
                    name=about["Family"],
                    taker="ECS",
                    most_bytes=_size(filled(about, mappings, region)),
                    limit_bytes=TASK_BYTES,
                    parts=told,
                    remedy=remedy,
                )
            case {"Type": "AWS::Lambda::Function", "Properties": {"Environment": {"Variables": given}} as about}:
                variables = {name: filled(value, mappings, region) for name, value in given.items()}
                first = max(sorted(variables), key=lambda name: _size(variables[name]))
                yield TemplateSize(
                    kind="environment",
                    name=about["FunctionName"],
                    taker="Lambda",
                    most_bytes=_size(variables),
                    limit_bytes=VARIABLES_BYTES,
                    parts=f"{first} is the longest variable, with {_size(variables[first]):,}",
                    remedy=SHORTER_VARIABLES.get(first, FEWER_SETTINGS),
                )


def _size(value: object) -> int:
    """Bytes of a text, or of the JSON of anything else."""
    return len((value if isinstance(value, str) else json_text(value, compact=True)).encode())


def filled(value: object, mappings: Mapping[str, Mapping[str, Mapping[str, str]]], region: str) -> Any:
    """A value of a template with each function as the longest text that it becomes.

    Functions as the CloudFormation template reference has them ("Intrinsic functions").
    """
    found: Any = value
    match value:
        case {"Fn::Base64": inner}:
            found = filled(inner, mappings, region)
        case {"Fn::Join": [str(between), list(joined)]}:
            found = between.join(str(filled(part, mappings, region)) for part in joined)
        case {"Fn::FindInMap": [str(name), str(first), str(second)]}:
            found = mappings[name][first][second]
        case {"Ref": "AWS::Region"}:
            found = region
        case {"Fn::ImportValue": str(name)}:
            found = "x" * LONGEST.get(name.rpartition("-")[2], ID_BYTES)
        case {"Fn::GetAtt": [str(), "Arn"]}:
            found = "x" * LONGEST["arn"]
        case {"Ref": str()} | {"Fn::GetAtt": _}:
            found = "x" * ID_BYTES
        case dict():  # a function that these templates do not use stays: at least its own text
            found = {name: filled(one, mappings, region) for name, one in value.items()}
        case list():
            found = [filled(one, mappings, region) for one in value]
    return found
