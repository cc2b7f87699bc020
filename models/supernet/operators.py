"""SubNetAct's operators (SuperServe, NSDI 2025, section 3): each takes the place of a layer and keeps its weights.

`switch` chooses by a control tuple what of the layer answers. It sets a number or a reference; no weight is
copied, moved or written. Names of parameters stay those of the layer, so that the wrapped network reads the
weights of the original one.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from mark.domain.errors import Misconfigured
from mark.domain.supernet import Control, ElasticSpace


class LayerSelect(nn.Sequential):
    """A stage of blocks, of which some run: those that it passes items through, or that a network iterates over.

    `place`: of the stage in the control's depths.
    """

    def __init__(self, stage: nn.Sequential | nn.ModuleList, place: int, space: ElasticSpace) -> None:
        super().__init__(OrderedDict(stage.named_children()))
        self._listed, self._place = isinstance(stage, nn.ModuleList), place
        blocks = tuple(self.children())
        self._by_depth = {depth: tuple(blocks[block] for block in space.running(depth)) for depth in space.depths}
        self._running = blocks

    def switch(self, control: Control) -> None:
        """Run as many blocks as the control says."""
        self._running = self._by_depth[control.depths[self._place]]

    def __iter__(self) -> Iterator[nn.Module]:
        return iter(self._running)

    def extracted(self) -> nn.Module:
        """The running blocks as a plain stage."""
        if self._listed:
            return nn.ModuleList(self._running)
        return nn.Sequential(
            OrderedDict((name, one) for name, one in self.named_children() if one in self._running)
        )


class Share(NamedTuple):
    """Where a control says which share of a layer answers."""

    field: Literal["expands", "widths"]
    group: int


class Sliced(nn.Module):
    """A layer of which the first outputs (or heads) answer: `kept` of the `whole`. share: None for all of them."""

    def __init__(self, whole: int, share: Share | None) -> None:
        super().__init__()
        self.kept = self._whole = whole
        self._share = share

    def switch(self, control: Control) -> None:
        """Keep the share that the control says, rounded up."""
        if self._share is not None:
            self.kept = math.ceil(getattr(control, self._share.field)[self._share.group] * self._whole)


class WeightSlice(Sliced):
    """A convolution or a linear layer, of which the first outputs are computed from the inputs that come."""

    def __init__(self, layer: nn.Conv2d | nn.Linear, share: Share | None) -> None:
        super().__init__(layer.weight.shape[0], share)
        self.weight, self.bias = layer.weight, layer.bias
        self._convolves = isinstance(layer, nn.Conv2d)
        self._depthwise = False
        if isinstance(layer, nn.Conv2d):
            self._depthwise = 1 < layer.groups == layer.in_channels == layer.out_channels
            if layer.padding_mode != "zeros" or not (layer.groups == 1 or self._depthwise):
                raise Misconfigured(f"no slice of {layer}: padding must be zeros, groups one or one a channel")
            self._stride, self._padding, self._dilation = layer.stride, layer.padding, layer.dilation

    def forward(self, items: Tensor) -> Tensor:
        """items: shape (batch, channels, height, width), or (batch, ..., features) before a linear layer."""
        if not self._convolves:
            return functional.linear(items, *self._sliced(self.channels(items)))
        weight, bias = self._sliced(self.channels(items))
        groups = items.shape[1] if self._depthwise else 1
        return functional.conv2d(items, weight, bias, self._stride, self._padding, self._dilation, groups)

    def _sliced(self, inputs: int) -> tuple[Tensor, Tensor | None]:
        """Views of the weights, nothing is copied."""
        outputs = inputs if self._depthwise else self.kept
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


class EmbeddingSlice(Sliced):
    """An embedding, of which the first channels are looked up."""

    def __init__(self, layer: nn.Embedding, share: Share | None) -> None:
        super().__init__(layer.embedding_dim, share)
        if layer.max_norm is not None:
            raise Misconfigured(f"no slice of {layer}: max_norm would write whole rows")
        self.weight, self._padding = layer.weight, layer.padding_idx

    def forward(self, rows: Tensor) -> Tensor:
        """rows: whole numbers of any shape; the answer has a vector for each."""
        return functional.embedding(rows, self.weight[:, : self.kept], self._padding)

    def channels(self, _rows: Tensor) -> int:
        """Outputs: they do not depend on what comes."""
        return self.kept

    def macs(self, _rows: Tensor, _answer: Tensor) -> int:
        """None, rows are looked up."""
        return 0

    def extracted(self, channels: int) -> nn.Module:
        """A plain embedding with copies of the first channels."""
        weight = self.weight[:, :channels].detach().clone()
        return nn.Embedding(weight.shape[0], channels, padding_idx=self._padding, _weight=weight)


class HeadSlice(Sliced):
    """An attention, of which the first heads answer. It gives no attention weights.

    It takes as many channels as come and gives as many. Each head keeps its size, whatever the channels.
    """

    batch_first = False
    """Torch's transformer layers read it before they take a fast path, which would use all weights."""

    def __init__(self, layer: nn.MultiheadAttention, share: Share | None) -> None:
        super().__init__(layer.num_heads, share)
        if (
            layer.in_proj_weight is None
            or layer.bias_k is not None
            or layer.add_zero_attn
            or not layer.batch_first
        ):
            raise Misconfigured(
                f"no slice of {layer}: it must have batch_first, one width, no add_bias_kv and no add_zero_attn"
            )
        self.in_proj_weight, self.in_proj_bias, self.out_proj = (
            layer.in_proj_weight,
            layer.in_proj_bias,
            layer.out_proj,
        )
        self._size: int = layer.head_dim
        self._dropout = layer.dropout

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        *,
        attn_mask: Tensor | None = None,
        **_hints: bool,
    ) -> tuple[Tensor, None]:
        """query, key, value: shape (batch, length, channels). Masks: (batch, keys) and (queries, keys)."""
        mask = None
        for given in (None if key_padding_mask is None else key_padding_mask[:, None, None], attn_mask):
            if given is not None:
                weights = query.new_zeros(()).masked_fill(given, -math.inf) if given.dtype == torch.bool else given
                mask = weights if mask is None else mask + weights
        heads = [self._heads(place, items) for place, items in enumerate((query, key, value))]
        dropout = self._dropout if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(heads[0], heads[1], heads[2], mask, dropout)
        weight, bias = self.output(query.shape[-1])
        return functional.linear(mixed.transpose(1, 2).flatten(2), weight, bias), None

    def _heads(self, place: int, items: Tensor) -> Tensor:
        """Queries, keys or values (place 0, 1, 2) of the heads that answer: shape (batch, heads, length, size)."""
        weight, bias = self.inputs(place, items.shape[-1])
        made = functional.linear(items, weight, bias)
        return made.view(*made.shape[:2], self.kept, self._size).transpose(1, 2)

    def inputs(self, place: int, channels: int) -> tuple[Tensor, Tensor | None]:
        """Views of the weights that make queries, keys or values."""
        first = place * self._whole * self._size
        rows = slice(first, first + self.kept * self._size)
        return self.in_proj_weight[rows, :channels], None if self.in_proj_bias is None else self.in_proj_bias[rows]

    def output(self, channels: int) -> tuple[Tensor, Tensor | None]:
        """Views of the weights that join the heads."""
        bias = self.out_proj.bias
        weight = self.out_proj.weight[:channels, : self.kept * self._size]
        return weight, None if bias is None else bias[:channels]

    def channels(self, items: Tensor) -> int:
        """Inputs that come."""
        return items.shape[-1]

    def macs(self, items: Tensor, _answer: object) -> int:
        """Multiplications and additions for one item of a batch that attends to itself."""
        length = items.shape[1]
        return length * self.kept * self._size * (4 * self.channels(items) + 2 * length)

    def extracted(self, channels: int) -> nn.Module:
        """An attention with copies of the weights that answer: torch's own where heads make up the channels."""
        inside = self.kept * self._size
        inputs = [self.inputs(place, channels) for place in range(3)]
        weight, bias = self.output(channels)
        made = nn.MultiheadAttention(inside, self.kept, self._dropout, bias=bias is not None, batch_first=True)
        made.in_proj_weight = nn.Parameter(torch.cat([weights for weights, _ in inputs]).detach())
        made.out_proj.weight = nn.Parameter(weight.detach().clone())
        if bias is not None:
            made.in_proj_bias = nn.Parameter(
                torch.cat([biases for _, biases in inputs if biases is not None]).detach()
            )
            made.out_proj.bias = nn.Parameter(bias.detach().clone())
        return made if inside == channels else HeadSlice(made, None)


class LayerNormSlice(nn.Module):
    """A layer norm over the channels that come; it tracks no statistics that subnets could need."""

    def __init__(self, norm: nn.LayerNorm) -> None:
        super().__init__()
        if len(norm.normalized_shape) != 1:
            raise Misconfigured(f"no slice of {norm}: it must normalise the last dimension alone")
        self.weight, self.bias, self.eps = norm.weight, norm.bias, norm.eps

    def switch(self, _control: Control) -> None:
        """Change nothing: what comes decides."""

    def forward(self, items: Tensor) -> Tensor:
        """items: shape (batch, ..., channels)."""
        channels = self.channels(items)
        weight, bias = (None if part is None else part[:channels] for part in (self.weight, self.bias))
        return functional.layer_norm(items, (channels,), weight, bias, self.eps)

    def channels(self, items: Tensor) -> int:
        """Inputs that come."""
        return items.shape[-1]

    def extracted(self, channels: int) -> nn.Module:
        """A plain layer norm with copies of the first weights."""
        arrays = {name: part[:channels] for name, part in self.named_parameters()}
        made = nn.LayerNorm(channels, self.eps, elementwise_affine="weight" in arrays, bias="bias" in arrays)
        made.load_state_dict(arrays)
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

    def forget(self, controls: Iterable[Control]) -> None:
        """Keep no statistics of these subnets."""
        for control in controls:
            del self.statistics[control]
        used = {id(one) for one in self.statistics.values()}
        self._once = {key: one for key, one in self._once.items() if id(one) in used}

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


Operator = LayerSelect | WeightSlice | EmbeddingSlice | HeadSlice | LayerNormSlice | SubnetNorm
