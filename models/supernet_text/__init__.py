"""A supernet for text: a transformer that says which AWS service a sentence of documentation is about.

Each block has a share of heads and of inner channels of its own, so that hundreds of subnets are worth serving.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from mark.domain.supernet import ElasticSpace
from mark.models.supernet_text.sizes import BLOCKS, HEADS

if TYPE_CHECKING:
    from torch import nn

SHARES = tuple(heads / HEADS for heads in range(2, HEADS + 1))
"""Of channels as of heads."""


class TextSupernet:
    """Documentation that botocore ships. `input`: shape (n, LENGTH), numbers of words."""

    space = ElasticSpace(
        stages=("blocks",),
        depths=tuple(range(1, BLOCKS + 1)),
        kept="even",
        inner=tuple((f"blocks.{block}.wider",) for block in range(BLOCKS)),
        expands=SHARES,
        outer=(
            ("words", "places", "blocks.*.back"),
            *((f"blocks.{block}.attend",) for block in range(BLOCKS)),
        ),
        widths=SHARES,
    )

    def network(self) -> nn.Module:
        """The untrained network."""
        from mark.models.supernet_text.network import TextNetwork  # noqa: PLC0415 - torch takes a second to import

        return TextNetwork()

    def examples(self, *, held_out: bool) -> tuple[NDArray[Any], NDArray[Any]]:
        """Sentences and the places of their services: those to judge by, or those to learn from and choose by."""
        from mark.models.supernet_text.documentation import examples  # noqa: PLC0415 - torch is not needed for a space

        return examples(held_out=held_out)
