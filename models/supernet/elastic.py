"""A network whose elastic parts are switched in place: wrapping, switching, calibration, extraction.

`ElasticNetwork(network, space)` puts SubNetAct's operators in the place of the network's stages, layers and batch
norms. The network stays what it was as long as the largest subnet answers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from mark.domain.errors import Misconfigured
from mark.domain.supernet import Control, ElasticSpace
from mark.models.supernet.operators import (
    EmbeddingSlice,
    HeadSlice,
    LayerNormSlice,
    LayerSelect,
    Operator,
    Share,
    SubnetNorm,
    WeightSlice,
)

SLICES: Mapping[type[nn.Module], Callable[[Any, Share | None], nn.Module]] = {
    nn.Conv2d: WeightSlice,
    nn.Linear: WeightSlice,
    nn.Embedding: EmbeddingSlice,
    nn.MultiheadAttention: HeadSlice,
}
"""Operators for layers that a space can name."""


class ElasticNetwork:
    """A wrapped network and the control tuple that is in force. The wrapped network is changed in place."""

    def __init__(self, network: nn.Module, space: ElasticSpace) -> None:
        self.network, self.space = network, space
        self.control = space.largest
        self._calibrated: set[Control] = set()
        _wrap(network, space)
        self.operators: tuple[Operator, ...] = tuple(
            module for module in network.modules() if isinstance(module, Operator)
        )
        self.norms = {name: module for name, module in network.named_modules() if isinstance(module, SubnetNorm)}
        self.switch(space.largest)

    def switch(self, control: Control) -> None:
        """Let that subnet answer from now on. Misconfigured where it is none of the space."""
        if control not in self._calibrated and control not in self.space:
            raise Misconfigured(f"{control} is no subnet of this supernet")
        self._switch(control)

    def _switch(self, control: Control) -> None:
        self.control = control
        for operator in self.operators:
            operator.switch(control)

    def __call__(self, items: Tensor) -> Tensor:
        """Scores of the subnet in force, nothing learned. items: shape (batch, ...)."""
        with torch.inference_mode():
            scores: Tensor = self.network(items)
        return scores

    def calibrate(self, control: Control, batches: Iterable[Tensor]) -> None:
        """Keep the statistics that these batches of one size have in that subnet; it stays in force.

        In calibration a batch is its own statistics, as in training, so that each norm sees what it will see when
        those before it have theirs.
        """
        self.switch(control)
        self.network.eval()
        for norm in self.norms.values():
            norm.begin_calibration()
        try:
            with torch.no_grad():
                for batch in batches if self.norms else ():
                    self.network(batch)
        finally:
            for norm in self.norms.values():
                norm.end_calibration(control)
        self.restore([control])
        self.switch(control)

    def restore(self, controls: Iterable[Control]) -> None:
        """Take these for calibrated: their norms have their statistics. Misconfigured where one is no subnet."""
        for control in controls:
            if control not in self.space:
                raise Misconfigured(f"{control} is no subnet of this supernet")
            self._calibrated.add(control)

    def keep(self, controls: Set[Control]) -> None:
        """Forget the statistics of all other subnets, which then are calibrated no more."""
        self._calibrated &= controls
        for norm in self.norms.values():
            norm.forget(norm.statistics.keys() - controls)

    @property
    def calibrated(self) -> tuple[Control, ...]:
        """Subnets that have their own statistics, in the space's order."""
        return tuple(sorted(self._calibrated))

    @contextmanager
    def sharing(self) -> Iterator[None]:
        """All subnets use the largest one's statistics meanwhile: what a plain batch norm would do."""
        kept = [(norm, norm.statistics) for norm in self.norms.values()]
        try:
            for norm, _ in kept:
                norm.statistics = {}
            self._switch(self.control)
            yield
        finally:
            for norm, statistics in kept:
                norm.statistics = statistics
            self._switch(self.control)

    def macs(self, control: Control, example: Tensor) -> int:
        """Multiplications and additions of layers and attentions, for one item."""
        counted: list[int] = []

        def count(operator: Operator, items: Tensor, answer: Tensor) -> None:
            if isinstance(operator, WeightSlice | EmbeddingSlice | HeadSlice):
                counted.append(operator.macs(items, answer))

        with self._in_force(control):
            self._watch(example, count)
        return sum(counted)

    def extract(self, control: Control, example: Tensor) -> nn.Module:
        """Subnet as a plain network with copies of its weights. example: shape (1, ...)."""
        channels: dict[Operator, int] = {}

        def note(operator: Operator, items: Tensor, _answer: Tensor) -> None:
            if not isinstance(operator, LayerSelect):
                channels[operator] = operator.channels(items)

        with self._in_force(control):
            self._watch(example, note)
            # Copied with the plain layer in each operator's place; blocks that do not run are left out after that.
            plain: dict[int, nn.Module] = {
                id(operator): operator.extracted(channels[operator]) if operator in channels else nn.Identity()
                for operator in self.operators
                if not isinstance(operator, LayerSelect)
            }
            made = copy.deepcopy(self.network, plain)
        for name, module in list(made.named_modules()):
            if isinstance(module, LayerSelect):
                made.set_submodule(name, module.extracted())
        return made.to(example.device).eval()

    @contextmanager
    def _in_force(self, control: Control) -> Iterator[None]:
        before = self.control
        self.switch(control)
        self.network.eval()
        try:
            yield
        finally:
            self.switch(before)

    def _watch(self, example: Tensor, watch: Callable[[Operator, Tensor, Tensor], None]) -> None:
        """Run the example; `watch` sees what each operator gets and gives."""

        def hook(module: nn.Module, items: tuple[Tensor, ...], answer: Tensor) -> None:
            assert isinstance(module, Operator)
            watch(module, items[0], answer)

        handles = [operator.register_forward_hook(hook) for operator in self.operators]
        try:
            self(example)
        finally:
            for handle in handles:
                handle.remove()

    def statistics_bytes(self) -> int:
        """Size of all subnets' statistics."""
        return _bytes(
            part for norm in self.norms.values() for statistics in norm.statistics.values() for part in statistics
        )

    def memory_bytes(self) -> int:
        """Size of what serves all calibrated subnets: weights and buffers once, and all statistics."""
        return network_bytes(self.network) + self.statistics_bytes()


def network_bytes(network: nn.Module) -> int:
    """Size of a network's weights and buffers."""
    return _bytes([*network.parameters(), *network.buffers()])


def _bytes(tensors: Iterable[Tensor]) -> int:
    """Size of the tensors' memory, each piece once."""
    pieces = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(pieces.values())


def _wrap(network: nn.Module, space: ElasticSpace) -> None:
    """Put the operators in place. Misconfigured where a name of the space fits nothing."""
    modules = dict(network.named_modules())
    layers = [name for name, module in modules.items() if type(module) in SLICES]
    shares: dict[str, Share] = {}
    for group, patterns in enumerate(space.outer):
        shares |= dict.fromkeys(_named(layers, patterns), Share("widths", group))
    for group, patterns in enumerate(space.inner):
        shares |= dict.fromkeys(_named(layers, patterns), Share("expands", group))
    for name, module in modules.items():
        if type(module) in SLICES:
            network.set_submodule(name, SLICES[type(module)](module, shares.get(name)))
        elif isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            network.set_submodule(name, SubnetNorm(module))
        elif isinstance(module, nn.LayerNorm):
            network.set_submodule(name, LayerNormSlice(module))
    for place, name in enumerate(space.stages):
        stage = modules.get(name)
        if not isinstance(stage, nn.Sequential | nn.ModuleList) or len(stage) != space.depths[-1]:
            raise Misconfigured(
                f"stage {name!r} must be an nn.Sequential or nn.ModuleList of {space.depths[-1]} blocks"
            )
        network.set_submodule(name, LayerSelect(stage, place, space))


def _named(layers: Sequence[str], patterns: Sequence[str]) -> set[str]:
    found = set()
    for pattern in patterns:
        matching = {name for name in layers if fnmatchcase(name, pattern)}
        if not matching:
            raise Misconfigured(f"no layer that can be sliced is named {pattern!r}; there are {', '.join(layers)}")
        found |= matching
    return found
