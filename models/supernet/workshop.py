"""Supernets in torch as `mark supernet` asks for them: train one, open one that was trained, measure it.

Everything is imported when this module is: later a user's own package called `models` may hide ours.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from mark.domain.errors import Misconfigured
from mark.domain.supernet import Actuation, Control, ElasticSpace, Subnet, TrainedSupernet
from mark.domain.tensor import TensorSpec
from mark.models.supernet import weights
from mark.models.supernet.elastic import ElasticNetwork, network_bytes
from mark.models.supernet.search import Evaluated, evenly, pareto_front, search
from mark.models.supernet.shrinking import shrink
from mark.models.training import repeatable
from mark.models.weights import load_weights, save_weights
from mark.ports import SupernetSource

CHOOSE_EVERY, MOST_CHOSEN = 5, 1_000
"""Each fifth example that is not held out is not learned from, of many only so many: they choose the front."""
CALIBRATION_BATCHES, CALIBRATION_BATCH = 4, 128
SIX = 6
SWITCHES, RELOADS, STORED = 2_000, 200, 32
COMPARED = 64
"""Examples on which subnets and extracted ones are compared."""


class Workshop:
    """Workshop that the command line asks for (`mark.ports.SupernetWorkshop`)."""

    def train(self, source: SupernetSource, *, name: str, target: str, seed: int, epochs: int) -> OpenedSupernet:
        """Train, calibrate and search; the same seed gives the same weights on the same machine and torch."""
        learned, chosen = _split(*_examples(source, held_out=False))
        judged = _examples(source, held_out=True)
        began = time.perf_counter()
        with repeatable(seed):
            elastic = _elastic(source)
            shrink(elastic, *learned, epochs=epochs)
            trained_s = time.perf_counter() - began
            batches = _calibration(learned[0])
            elastic.calibrate(elastic.space.largest, batches)
            for norm in elastic.norms.values():
                norm.share(elastic.space.largest)
            found = search(elastic.space, _evaluation(elastic, batches, chosen), np.random.default_rng(seed))
            example = learned[0][:1]
            sys.stderr.write("\n")
            front, six = pareto_front(found), evenly(found, SIX)
            if len(found) < len(elastic.space):  # statistics of all that was evaluated may outgrow the weights
                elastic.keep({*front, *six})
            own = {control: _accuracy(elastic, control, judged) for control in front}
            with elastic.sharing():  # nothing to share without batch norms
                shared = (
                    {control: _accuracy(elastic, control, judged) for control in front} if elastic.norms else own
                )
            subnets = tuple(
                Subnet(
                    control=control,
                    macs=found[control].macs,
                    extracted_bytes=network_bytes(elastic.extract(control, example)),
                    accuracy=own[control],
                    shared_accuracy=shared[control],
                    chosen_loss=found[control].loss,
                )
                for control in front
            )
            figures = TrainedSupernet(
                name=name,
                target=target,
                seed=seed,
                epochs=epochs,
                trained_s=trained_s,
                possible=len(elastic.space),
                evaluated=len(found),
                calibrated=len(elastic.calibrated),
                learned=len(learned[0]),
                chosen=len(chosen[0]),
                judged=len(judged[0]),
                memory_bytes=elastic.memory_bytes(),
                statistics_bytes=elastic.statistics_bytes(),
                six=tuple(control.variant for control in six),
                six_bytes=sum(network_bytes(elastic.extract(control, example)) for control in six),
                subnets=subnets,
            )
        return OpenedSupernet(elastic, figures, judged[0])

    def open(self, source: SupernetSource, figures: TrainedSupernet, path: Path, *, gpu: bool) -> OpenedSupernet:
        """Make the network again and read its weights and statistics. Misconfigured where they do not fit it."""
        if gpu and not torch.cuda.is_available():
            raise Misconfigured("torch sees no GPU here: measure without --gpu, or on a machine that has one")
        elastic = _elastic(source)
        weights.load(path, elastic)
        unknown = [subnet.variant for subnet in figures.subnets if subnet.control not in elastic.calibrated]
        if unknown:
            raise Misconfigured(f"{path} has no statistics of {', '.join(unknown)}; train the supernet again")
        judged = _examples(source, held_out=True)[0]
        if gpu:
            elastic.network.to("cuda")
            judged = judged.to("cuda")
        return OpenedSupernet(elastic, figures, judged)


class OpenedSupernet:
    """A trained supernet in memory (`mark.ports.OpenSupernet`). judged: inputs that are held out."""

    def __init__(self, elastic: ElasticNetwork, figures: TrainedSupernet, judged: Tensor) -> None:
        self.figures = figures
        self._elastic, self._judged = elastic, judged
        elastic.network.eval()
        elastic.network.requires_grad_(requires_grad=False)

    def save(self, path: Path) -> None:
        """Write weights and statistics as plain arrays."""
        weights.save(path, self._elastic)

    def model(self, variant: str) -> ServedSubnet:
        """The model that switches to that subnet and answers."""
        return ServedSubnet(self._elastic, variant, self._judged[:1])

    @property
    def gpu(self) -> str:
        """The GPU that holds the network; empty on a CPU."""
        return torch.cuda.get_device_name(self._judged.device) if self._judged.is_cuda else ""

    def actuation(self) -> Actuation:
        """Time random switches and reloads, and compare every calibrated subnet with the same one extracted."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            rng = np.random.default_rng(self.figures.seed)
            switched = _switch_times(self._elastic, rng, _finisher(self._judged))
            reloaded = _reload_times(self._elastic, self.figures, self._judged[:1], rng)
            difference, largest = _differences(self._elastic, self._judged[:COMPARED])
        finally:
            torch.set_num_threads(threads)
        return Actuation(
            switch_median_s=float(np.median(switched)),
            switch_p99_s=float(np.quantile(switched, 0.99)),
            switches=len(switched),
            reload_median_s=float(np.median(reloaded)),
            reloads=len(reloaded),
            largest_difference=difference,
            largest_score=largest,
        )


class ServedSubnet:
    """A model as agents serve it (`mark.ports.VariantModel`); each call switches to its subnet first."""

    def __init__(self, elastic: ElasticNetwork, variant: str, example: Tensor) -> None:
        self._elastic, self._device = elastic, example.device
        self._controls = {control.variant: control for control in elastic.calibrated}
        self.switch(variant)
        elastic.switch(self._control)
        shape, classes = tuple(example.shape[1:]), int(elastic(example).shape[1])
        self._kind: type[np.generic] = np.float32 if example.is_floating_point() else np.int64
        datatype = "INT64" if self._kind is np.int64 else "FP32"
        self.inputs = (TensorSpec(name="input", datatype=datatype, shape=(-1, *shape)),)
        self.outputs = (
            TensorSpec(name="probabilities", datatype="FP32", shape=(-1, classes)),
            TensorSpec(name="label", datatype="INT64", shape=(-1,)),
        )

    def switch(self, variant: str) -> None:
        """Answer with that subnet from the next batch on. Errors: Misconfigured."""
        if variant not in self._controls:
            raise Misconfigured(f"no variant {variant!r}; there are {', '.join(self._controls)}")
        self._control = self._controls[variant]

    def predict(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answer a batch with probabilities and the likeliest label."""
        self._elastic.switch(self._control)
        items = torch.from_numpy(np.ascontiguousarray(inputs["input"], self._kind))
        probabilities = torch.softmax(self._elastic(items.to(self._device)), dim=1).cpu().numpy()
        return {"probabilities": probabilities, "label": probabilities.argmax(axis=1)}


Examples = tuple[Tensor, Tensor]


def _elastic(source: SupernetSource) -> ElasticNetwork:
    network, space = source.network(), source.space
    if not isinstance(network, torch.nn.Module):
        raise Misconfigured(f"network() must make an nn.Module, not a {type(network).__name__}")
    if not isinstance(space, ElasticSpace):
        raise Misconfigured(f"space must be a mark.domain.supernet.ElasticSpace, not a {type(space).__name__}")
    return ElasticNetwork(network, space)


def _examples(source: SupernetSource, *, held_out: bool) -> Examples:
    inputs, labels = source.examples(held_out=held_out)
    tokens = np.asarray(inputs).dtype == np.int64  # all else is measured, such as the brightness of bytes
    items = torch.from_numpy(np.ascontiguousarray(inputs, np.int64 if tokens else np.float32))
    truth = torch.from_numpy(np.ascontiguousarray(labels, np.int64))
    if truth.ndim != 1 or len(items) != len(truth) or len(truth) < CHOOSE_EVERY:
        raise Misconfigured(
            f"examples(held_out={held_out}) must be inputs and one label for each, {CHOOSE_EVERY} or more, "
            f"not arrays of shape {tuple(items.shape)} and {tuple(truth.shape)}"
        )
    return items, truth


def _split(items: Tensor, labels: Tensor) -> tuple[Examples, Examples]:
    """Examples to learn from, and those to choose by."""
    chosen = torch.arange(len(labels)) % max(CHOOSE_EVERY, len(labels) // MOST_CHOSEN) == 0
    return (items[~chosen], labels[~chosen]), (items[chosen], labels[chosen])


def _calibration(items: Tensor) -> list[Tensor]:
    """Batches of one size from the front of what was learned: all of it where there is less than a batch."""
    size = min(CALIBRATION_BATCH, len(items))
    return [items[first : first + size] for first in range(0, len(items) - size + 1, size)][:CALIBRATION_BATCHES]


def _evaluation(
    elastic: ElasticNetwork, batches: Sequence[Tensor], chosen: Examples
) -> Callable[[Control], Evaluated]:
    """Calibrates a subnet and evaluates it."""
    count = itertools.count(1)

    def evaluate(control: Control) -> Evaluated:
        sys.stderr.write(f"\rsubnet {next(count)}")
        elastic.calibrate(control, batches)
        loss = functional.cross_entropy(_scores(elastic, chosen[0]), chosen[1])
        return Evaluated(elastic.macs(control, chosen[0][:1]), float(loss))

    return evaluate


def _accuracy(elastic: ElasticNetwork, control: Control, judged: Examples) -> float:
    elastic.switch(control)
    return float((_scores(elastic, judged[0]).argmax(dim=1) == judged[1]).double().mean())


def _scores(elastic: ElasticNetwork, items: Tensor) -> Tensor:
    """Scores of many items, by batches that a processor's cache holds."""
    return torch.cat([elastic(batch) for batch in torch.split(items, CALIBRATION_BATCH)])


def _finisher(example: Tensor) -> Callable[[], None]:
    """Waits until the example's device has done all that it was told: a GPU works behind the program's back."""
    return torch.cuda.synchronize if example.is_cuda else lambda: None


def _switch_times(elastic: ElasticNetwork, rng: np.random.Generator, finish: Callable[[], None]) -> list[float]:
    """Seconds of switches between subnets that are drawn."""
    known = elastic.calibrated
    took = []
    for place in rng.integers(len(known), size=SWITCHES):
        began = time.perf_counter()
        elastic.switch(known[int(place)])
        finish()
        took.append(time.perf_counter() - began)
    return took


def _reload_times(
    elastic: ElasticNetwork, figures: TrainedSupernet, example: Tensor, rng: np.random.Generator
) -> list[float]:
    """Seconds to read extracted subnets' weights, from files that are cached, into networks that are built."""
    finish = _finisher(example)
    with tempfile.TemporaryDirectory(prefix="mark-supernet-") as folder:
        stored = []
        for subnet in figures.subnets[:: -(-len(figures.subnets) // STORED)]:
            network, path = elastic.extract(subnet.control, example), Path(folder) / f"{subnet.variant}.npz"
            save_weights(path, network, compress=False)
            stored.append((path, network))
        took = []
        for place in rng.integers(len(stored), size=RELOADS):
            path, network = stored[int(place)]
            began = time.perf_counter()
            load_weights(path, network)
            finish()
            took.append(time.perf_counter() - began)
    return took


def _differences(elastic: ElasticNetwork, items: Tensor) -> tuple[float, float]:
    """Largest difference between scores of a calibrated subnet and of the same one extracted; largest score."""
    difference = largest = 0.0
    for control in elastic.calibrated:
        extracted = elastic.extract(control, items[:1])
        elastic.switch(control)
        scores = elastic(items)
        with torch.inference_mode():
            others = extracted(items)
        difference = max(difference, float((scores - others).abs().max()))
        largest = max(largest, float(others.abs().max()))
    return difference, largest
