"""SubNetAct's operators (SuperServe, NSDI 2025, section 3): each takes the place of a layer and keeps its weights.

`switch` chooses by a control tuple what of the layer answers. It sets a number or a reference; no weight is
copied, moved or written. Names of parameters stay those of the layer, so that the wrapped network reads the
weights of the original one.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from mark.domain.errors import Misconfigured
from mark.domain.supernet import Control


class LayerSelect(nn.Sequential):
    """A stage of blocks, of which the first ones run. `place`: of the stage in the control's depths."""

    def __init__(self, stage: nn.Sequential, place: int) -> None:
        super().__init__(OrderedDict(stage.named_children()))
        self._place = place
        self._running: tuple[nn.Module, ...] = tuple(self.children())

    def switch(self, control: Control) -> None:
        """Run as many blocks as the control says."""
        self._running = tuple(self.children())[: control.depths[self._place]]

    def forward(self, items: Tensor) -> Tensor:
        """Pass the items through the blocks that run."""
        for block in self._running:
            items = block(items)
        return items

    def extracted(self) -> nn.Sequential:
        """The running blocks as a plain stage."""
        names = list(self._modules)[: len(self._running)]
        return nn.Sequential(OrderedDict(zip(names, self._running, strict=True)))


class WeightSlice(nn.Module):
    """A convolution or a linear layer, of which the first outputs are computed from the inputs that come.

    `share`: the control's field (`expand`, `width`) that holds the share of the outputs; None for all of them.
    """

    def __init__(self, layer: nn.Conv2d | nn.Linear, share: str | None) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias
        self.outputs = self._all = layer.weight.shape[0]
        self._share = share
        self._convolves = isinstance(layer, nn.Conv2d)
        self._depthwise = False
        if isinstance(layer, nn.Conv2d):
            self._depthwise = 1 < layer.groups == layer.in_channels == layer.out_channels
            if layer.padding_mode != "zeros" or not (layer.groups == 1 or self._depthwise):
                raise Misconfigured(f"no slice of {layer}: padding must be zeros, groups one or one a channel")
            self._stride, self._padding, self._dilation = layer.stride, layer.padding, layer.dilation

    def switch(self, control: Control) -> None:
        """Compute the share of the outputs that the control says, rounded up."""
        if self._share is not None:
            self.outputs = math.ceil(getattr(control, self._share) * self._all)

    def forward(self, items: Tensor) -> Tensor:
        """items: shape (batch, channels, height, width), or (batch, ..., features) before a linear layer."""
        if not self._convolves:
            return functional.linear(items, *self._sliced(self.channels(items)))
        weight, bias = self._sliced(self.channels(items))
        groups = items.shape[1] if self._depthwise else 1
        return functional.conv2d(items, weight, bias, self._stride, self._padding, self._dilation, groups)

    def _sliced(self, inputs: int) -> tuple[Tensor, Tensor | None]:
        """Views of the weights, nothing is copied."""
        outputs = inputs if self._depthwise else self.outputs
        weight = self.weight[:outputs] if self._depthwise else self.weight[:outputs, :inputs]
        return weight, None if self.bias is None else self.bias[:outputs]

    def channels(self, items: Tensor) -> int:
        """Inputs that come."""
        return items.shape[1 if self._convolves else -1]

    def macs(self, items: Tensor, answer: Tensor) -> int:
        """Multiplications and additions for one item of a batch."""
        inputs = 1 if self._depthwise else self.channels(items)
        return inputs * self.weight[0, 0].numel() * answer[0].numel()

    def extracted(self, inputs: int) -> nn.Module:
        """A plain layer with copies of the weights that answer `inputs` channels."""
        weight, bias = self._sliced(inputs)
        made: nn.Module
        if self._convolves:
            made = nn.Conv2d(
                inputs,
                weight.shape[0],
                tuple(weight.shape[2:]),  # type: ignore[arg-type]  # two sizes, which a shape does not promise
                stride=self._stride,  # type: ignore[arg-type]  # as the wrapped layer had them
                padding=self._padding,  # type: ignore[arg-type]
                dilation=self._dilation,  # type: ignore[arg-type]
                groups=inputs if self._depthwise else 1,
                bias=bias is not None,
            )
        else:
            made = nn.Linear(inputs, weight.shape[0], bias=bias is not None)
        made.load_state_dict({"weight": weight} if bias is None else {"weight": weight, "bias": bias})
        return made


class Statistics(NamedTuple):
    """Mean and variance of each channel that a norm sees in one subnet."""

    mean: Tensor
    variance: Tensor


class SubnetNorm(nn.Module):
    """A batch norm with statistics for each subnet; a subnet that was not calibrated gets the layer's own.

    Subnets that are alike up to this norm have the same statistics to the last bit, which are kept once.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, norm: nn.BatchNorm1d | nn.BatchNorm2d) -> None:
        super().__init__()
        if not norm.affine or norm.running_mean is None or norm.running_var is None:
            raise Misconfigured(f"no statistics by subnet for {norm}: it must be affine and track its statistics")
        self.weight, self.bias = norm.weight, norm.bias
        self.register_buffer("running_mean", norm.running_mean)
        self.register_buffer("running_var", norm.running_var)
        self.statistics: dict[Control, Statistics] = {}
        self._once: dict[bytes, Statistics] = {}
        self._eps, self._kind = norm.eps, type(norm)
        self._active: Statistics | None = None
        self._seen: list[Statistics] | None = None
        self.train(norm.training)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move the statistics as well, each once: torch moves parameters and buffers only (`Module.to`)."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        moved = {id(one): Statistics(fn(one.mean), fn(one.variance)) for one in self.statistics.values()}
        self._active = None if self._active is None else moved.get(id(self._active))
        self._once = {key: moved[id(one)] for key, one in self._once.items() if id(one) in moved}
        self.statistics = {control: moved[id(one)] for control, one in self.statistics.items()}
        return self

    def switch(self, control: Control) -> None:
        """Use that subnet's statistics."""
        self._active = self.statistics.get(control)

    def forward(self, items: Tensor) -> Tensor:
        """items: shape (batch, channels, ...). In training and calibration each batch is its own statistics."""
        channels = self.channels(items)
        weight, bias = self.weight[:channels], self.bias[:channels]
        if self._seen is not None:
            with torch.no_grad():
                others = [place for place in range(items.ndim) if place != 1]
                variance, mean = torch.var_mean(items, dim=others, correction=0)
                self._seen.append(Statistics(mean, variance))
        if self.training or self._seen is not None:
            return functional.batch_norm(items, None, None, weight, bias, training=True, eps=self._eps)
        mean, variance = self._used(channels)
        return functional.batch_norm(items, mean, variance, weight, bias, training=False, eps=self._eps)

    def _used(self, channels: int) -> Statistics:
        return self._active or Statistics(self.running_mean[:channels], self.running_var[:channels])

    def channels(self, items: Tensor) -> int:
        """Inputs that come."""
        return items.shape[1]

    def begin_calibration(self) -> None:
        """Watch the batches that pass from now on."""
        self._seen = []

    def end_calibration(self, control: Control) -> None:
        """Keep the statistics of all that passed, batches of the same size, as that subnet's.

        A norm that the subnet does not run has seen nothing, and keeps nothing.
        """
        seen, self._seen = self._seen, None
        if seen:
            means = torch.stack([batch.mean for batch in seen])
            mean = means.mean(dim=0)
            squares = torch.stack([batch.variance for batch in seen]) + means.square()
            self.keep(control, Statistics(mean, squares.mean(dim=0) - mean.square()))

    def keep(self, control: Control, found: Statistics) -> None:
        """Keep the statistics of a subnet, once where another has the same."""
        key = found.mean.cpu().numpy().tobytes() + found.variance.cpu().numpy().tobytes()
        self.statistics[control] = self._once.setdefault(key, found)

    def share(self, control: Control) -> None:
        """Make that subnet's statistics the layer's own, which subnets without theirs use."""
        found = self.statistics[control]
        self.running_mean.copy_(found.mean)
        self.running_var.copy_(found.variance)

    def extracted(self, channels: int) -> nn.Module:
        """A plain batch norm of the active subnet."""
        mean, variance = self._used(channels)
        made = self._kind(channels, eps=self._eps)
        arrays = {
            "weight": self.weight[:channels],
            "bias": self.bias[:channels],
            "running_mean": mean,
            "running_var": variance,
        }
        made.load_state_dict(arrays, strict=False)
        return made.eval()
