"""Errors that name a keyword of Python where the command's name a flag."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from mark.domain.errors import Misconfigured

_QUOTED_OR_FLAG = re.compile(r"`[^`]*`|(?<![\w-])--([a-z]+(?:-[a-z]+)*)")
_RENAMED = {"at": "at_s", "policy": "policies", "predictor": "forecaster", "rate": "load"}
"""Keywords of flags that have another name."""

P = ParamSpec("P")
T = TypeVar("T")


def names_keywords(call: Callable[P, T]) -> Callable[P, T]:
    """The call, whose errors name keywords where the command's name flags; commands in them stay."""

    def keyword(found: re.Match[str]) -> str:
        flag = found[1]
        return found[0] if flag is None else _RENAMED.get(flag, flag.replace("-", "_"))

    @wraps(call)
    def told(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(*args, **kwargs)
        except Misconfigured as error:
            error.args = (_QUOTED_OR_FLAG.sub(keyword, str(error)),)
            raise

    return told
