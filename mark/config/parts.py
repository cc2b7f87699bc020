"""Types that every part of the settings is made of."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from mark.dispatch.rules import parse_rule
from mark.domain.errors import Misconfigured

SECRET = "secret"  # noqa: S105 - a kind of error
"""Of a value that no message repeats."""
Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]


def _known_rule(text: str) -> str:
    try:
        return str(parse_rule(text))
    except Misconfigured as error:
        raise ValueError(str(error)) from error  # it names the rule itself, and what is close to it


DispatchRule = Annotated[str, AfterValidator(_known_rule)]
"""The name of a rule that routes requests, chooses variants, or keeps a central queue."""
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
PositiveInt = Annotated[int, Field(gt=0)]
NotNegativeInt = Annotated[int, Field(ge=0)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def matching(pattern: str, like: str, *, secret: bool = False) -> AfterValidator:
    """Text of this form; who writes another is shown `like`, because a pattern says little to them.

    secret: what was written instead may be one, and no error repeats it.
    """

    def checked(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise PydanticCustomError(SECRET if secret else "pattern", "should read like {like}", {"like": like})
        return text

    return AfterValidator(checked)


def default_of(policy: type, field: str) -> Any:
    """The default of a frozen policy's field, which is the setting's too: it stands there alone."""
    (found,) = (item for item in fields(policy) if item.name == field)
    return found.default


class Part(BaseModel):
    """A frozen part of the tree; an unknown key is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)
