"""Machine images of stacks that stand: each has AWS's newest one of the day on which its template last changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mark.aws.errors import translated
from mark.aws.session import Aws
from mark.aws.stacks.cloudformation import Change, StackState

PARAMETER = "Parameter"


def image_changes(state: StackState, newest: Callable[[str], str]) -> Iterator[Change]:
    """The images of a stack that AWS has replaced since. newest: the image of a public parameter's name."""
    for name, (place, image) in sorted(state.resolved.items()):
        if (latest := newest(place)) != image:
            yield Change(action="Modify", resource=name, type=PARAMETER, differs=f"{image} -> {latest}")


def newest_image(aws: Aws) -> Callable[[str], str]:
    """Reads what a public parameter names; each is asked for once. Errors as AWS has them."""
    found: dict[str, str] = {}

    def read(place: str) -> str:
        if place not in found:
            with translated():
                found[place] = aws.parameters.get_parameter(Name=place)["Parameter"]["Value"]
        return found[place]

    return read
