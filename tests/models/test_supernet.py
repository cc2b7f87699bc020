"""SubNetAct's operators: what they answer, what they keep, and what they refuse."""

from __future__ import annotations

import copy
import hashlib
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from torch import nn

from mark.domain.errors import Misconfigured
from mark.domain.supernet import Control, ElasticSpace
from mark.models.supernet import Supernet, weights
from mark.models.supernet.elastic import ElasticNetwork, network_bytes
from mark.models.supernet.operators import LayerSelect, Share, WeightSlice
from mark.models.supernet.workshop import Workshop
from mark.models.training import repeatable
from tests.models.small_net import Net, SmallNet

SPACE = SmallNet.space
IMAGES = torch.from_numpy(SmallNet().examples(held_out=False)[0])


def wrapped() -> ElasticNetwork:
    with repeatable(3):
        return ElasticNetwork(Net(), SPACE)


@pytest.fixture
def calibrated() -> ElasticNetwork:
    elastic = wrapped()
    for control in SPACE.controls():
        elastic.calibrate(control, [IMAGES[:64], IMAGES[64:128]])
    return elastic


def test_the_largest_subnet_is_the_network_that_was_wrapped() -> None:
    with repeatable(3):
        network = Net().eval()
    before = network(IMAGES)
    names = network.state_dict().keys() - {f"{name}.num_batches_tracked" for name, _ in network.named_modules()}

    elastic = ElasticNetwork(network, SPACE)

    torch.testing.assert_close(elastic(IMAGES), before.detach())
    assert elastic.network.state_dict().keys() == names


def test_what_moves_the_network_moves_each_subnet_s_statistics_once(calibrated: ElasticNetwork) -> None:
    smallest = min(SPACE.controls())
    calibrated.switch(smallest)
    before, once = calibrated(IMAGES), calibrated.statistics_bytes()

    calibrated.network.to(torch.float64)

    torch.testing.assert_close(calibrated(IMAGES.double()), before.double(), rtol=1e-4, atol=1e-4)
    calibrated.switch(smallest)
    assert calibrated(IMAGES.double()).dtype is torch.float64
    assert calibrated.statistics_bytes() == 2 * once


@pytest.mark.parametrize("control", [pytest.param(control, id=control.variant) for control in SPACE.controls()])
def test_a_subnet_answers_as_the_same_one_extracted(calibrated: ElasticNetwork, control: Control) -> None:
    calibrated.switch(SPACE.largest)
    extracted = calibrated.extract(control, IMAGES[:1])
    calibrated.switch(control)

    with torch.inference_mode():
        torch.testing.assert_close(calibrated(IMAGES), extracted(IMAGES))
    kinds = {type(module) for module in extracted.modules()}
    assert kinds == {
        Net,
        nn.Sequential,
        type(Net().first[0]),
        nn.Conv2d,
        nn.BatchNorm2d,
        nn.Linear,
        nn.BatchNorm1d,
    }
    calibrated.switch(SPACE.smallest)
    with torch.inference_mode():
        extracted_again = calibrated.extract(control, IMAGES[:1])
        torch.testing.assert_close(extracted_again(IMAGES), extracted(IMAGES))


def test_a_smaller_subnet_is_smaller_and_costs_less(calibrated: ElasticNetwork) -> None:
    small, large = SPACE.smallest, SPACE.largest

    assert calibrated.macs(small, IMAGES[:1]) < calibrated.macs(large, IMAGES[:1])
    assert network_bytes(calibrated.extract(small, IMAGES[:1])) < network_bytes(
        calibrated.extract(large, IMAGES[:1])
    )


def test_macs_are_those_of_the_layers() -> None:
    elastic = ElasticNetwork(nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Flatten(), nn.Linear(16, 3)), BARE)

    assert elastic.macs(BARE.largest, torch.zeros(1, 1, 2, 2)) == 4 * 9 * 4 + 16 * 3


def test_switching_moves_and_copies_no_weight(calibrated: ElasticNetwork) -> None:
    def places() -> dict[str, int]:
        return {name: tensor.data_ptr() for name, tensor in calibrated.network.state_dict().items()}

    values = copy.deepcopy(calibrated.network.state_dict())
    before, memory = places(), calibrated.memory_bytes()
    for control in SPACE.controls():
        calibrated.switch(control)
        calibrated(IMAGES[:2])

    assert places() == before
    assert calibrated.memory_bytes() == memory
    torch.testing.assert_close(calibrated.network.state_dict(), values)


def test_a_slice_is_a_view_of_the_weights() -> None:
    layer = nn.Conv2d(4, 8, kernel_size=3)
    slicing = WeightSlice(layer, Share("widths", 0))
    slicing.switch(Control((), (), (0.3,)))

    assert slicing.weight is layer.weight
    assert slicing(torch.zeros(1, 2, 5, 5)).shape == (1, 3, 3, 3)  # 0.3 of 8, rounded up


@pytest.mark.parametrize(("kept", "running"), [("first", [0, 1]), ("even", [0, 2])])
def test_blocks_beyond_the_depth_are_not_called(kept: Literal["first", "even"], running: list[int]) -> None:
    called = []

    class Block(nn.Module):
        def __init__(self, place: int) -> None:
            super().__init__()
            self.place = place

        def forward(self, items: torch.Tensor) -> torch.Tensor:
            called.append(self.place)
            return items

    space = replace(BARE, stages=("other", "stage"), depths=(2, 4), kept=kept)
    stage = LayerSelect(nn.Sequential(*map(Block, range(4))), 1, space)
    stage.switch(Control((4, 2), (), ()))
    stage(torch.zeros(1))

    assert called == running


def test_calibrated_statistics_are_those_of_the_batches() -> None:
    elastic = wrapped()
    control = SPACE.smallest
    elastic.calibrate(control, [IMAGES])
    extracted = elastic.extract(control, IMAGES[:1])
    elastic.switch(control)

    with torch.no_grad():
        torch.testing.assert_close(elastic(IMAGES), extracted.train()(IMAGES), rtol=1e-4, atol=1e-5)


def test_statistics_of_several_batches_are_those_of_all_their_items() -> None:
    """Of the first norm, whose inputs no other norm changes."""
    whole, parted = wrapped(), wrapped()
    whole.calibrate(SPACE.largest, [IMAGES])
    parted.calibrate(SPACE.largest, [IMAGES[:75], IMAGES[75:]])

    one, other = (elastic.norms["first.0.inside_norm"].statistics[SPACE.largest] for elastic in (whole, parted))
    torch.testing.assert_close(one, other)


def test_statistics_of_subnets_that_are_alike_so_far_are_kept_once(calibrated: ElasticNetwork) -> None:
    first, last = (calibrated.norms[name].statistics for name in ("first.0.inside_norm", "hidden_norm"))

    assert len(first) == len(last) == len(SPACE)
    assert len({id(found) for found in first.values()}) == 4  # expand x width, whatever the depths
    assert len({id(found) for found in last.values()}) == len(SPACE)


def test_subnets_that_are_not_kept_leave_no_statistics(calibrated: ElasticNetwork) -> None:
    calibrated.switch(SPACE.smallest)
    before, bytes_of_all = calibrated(IMAGES), calibrated.statistics_bytes()

    calibrated.keep({SPACE.smallest, SPACE.largest})

    assert calibrated.calibrated == (SPACE.smallest, SPACE.largest)
    assert {len(norm.statistics) for norm in calibrated.norms.values()} <= {1, 2}
    assert calibrated.statistics_bytes() < bytes_of_all
    assert torch.equal(calibrated(IMAGES), before)


def test_own_statistics_normalise_what_shared_ones_do_not(calibrated: ElasticNetwork) -> None:
    seen = []
    for norm in calibrated.norms.values():
        norm.share(SPACE.largest)
    hook = calibrated.norms["hidden_norm"].register_forward_hook(lambda _module, _items, out: seen.append(out))
    calibrated.switch(SPACE.smallest)

    calibrated(IMAGES[:128])
    with calibrated.sharing():
        calibrated(IMAGES[:128])
    calibrated(IMAGES[:128])
    hook.remove()

    own, shared, again = (float(out.mean(dim=0).abs().max()) for out in seen)
    assert own == again < 0.1 < shared


def test_a_subnet_that_was_not_calibrated_uses_the_largest_one_s_statistics() -> None:
    elastic = wrapped()
    elastic.calibrate(SPACE.largest, [IMAGES])
    for norm in elastic.norms.values():
        norm.share(SPACE.largest)

    with elastic.sharing():
        shared = elastic(IMAGES)
    torch.testing.assert_close(elastic(IMAGES), shared)


def test_weights_and_statistics_come_back_from_their_file(calibrated: ElasticNetwork, tmp_path) -> None:
    weights.save(tmp_path / "w.npz", calibrated)
    other = ElasticNetwork(Net(), SPACE)
    weights.load(tmp_path / "w.npz", other)

    assert other.calibrated == calibrated.calibrated == tuple(SPACE.controls())
    assert other.memory_bytes() == calibrated.memory_bytes()
    for control in SPACE.controls():
        calibrated.switch(control)
        other.switch(control)
        assert torch.equal(calibrated(IMAGES), other(IMAGES))


@pytest.mark.parametrize("content", [b"", b"no zip", None], ids=["empty", "no-archive", "another-network"])
def test_a_file_that_does_not_fit_the_network_is_refused(content: bytes | None, tmp_path) -> None:
    path = tmp_path / "w.npz"
    if content is None:
        with path.open("wb") as file:
            np.savez(file, a=np.zeros(1))
    else:
        path.write_bytes(content)

    with pytest.raises(Misconfigured, match="does not fit"):
        weights.load(path, wrapped())


def test_a_network_without_norms_has_its_subnets_too(tmp_path) -> None:
    space = replace(BARE, outer=(("0",),), widths=(0.5, 1.0))

    def made() -> ElasticNetwork:
        with repeatable(1):
            return ElasticNetwork(nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2)), space)

    elastic = made()
    elastic.calibrate(space.smallest, [torch.ones(2, 4)])
    weights.save(tmp_path / "w.npz", elastic)
    other = made()
    weights.load(tmp_path / "w.npz", other)

    assert other.calibrated == elastic.calibrated == (space.smallest,)


BARE = ElasticSpace(stages=(), depths=(1,), inner=(), expands=(1.0,), outer=(), widths=(1.0,))


@pytest.mark.parametrize(
    ("network", "change", "said"),
    [
        (Net, {"outer": (("steam",),)}, "no layer that can be sliced is named 'steam'"),
        (Net, {"stages": ("stem",)}, "must be an nn.Sequential or nn.ModuleList of 2 blocks"),
        (Net, {"depths": (1, 3)}, "must be an nn.Sequential or nn.ModuleList of 3 blocks"),
        (lambda: nn.Sequential(nn.Conv2d(4, 4, 1, groups=2)), None, "groups one or one a channel"),
        (lambda: nn.Sequential(nn.BatchNorm2d(4, affine=False)), None, "must be affine"),
    ],
    ids=["name", "stage", "depth", "groups", "norm"],
)
def test_a_network_that_cannot_be_wrapped_is_refused(network, change, said) -> None:
    space = BARE if change is None else replace(SPACE, **change)
    with pytest.raises(Misconfigured, match=said):
        ElasticNetwork(network(), space)


def test_a_control_of_another_space_is_refused() -> None:
    elastic = wrapped()
    with pytest.raises(Misconfigured, match="no subnet"):
        elastic.switch(Control((5, 5), (1.0,), (1.0,)))
    assert elastic.control == SPACE.largest


def test_the_same_seed_trains_the_same_weights(tmp_path) -> None:
    def digest(name: str, seed: int) -> bytes:
        trained = Workshop().train(SmallNet(), name="small-net", target="here", seed=seed, epochs=1)
        trained.save(tmp_path / name)
        return hashlib.sha256((tmp_path / name).read_bytes()).digest()

    one, two, other = digest("one", 5), digest("two", 5), digest("other", 6)
    assert one == two != other


def test_the_shipped_network_fits_its_space() -> None:
    source = Supernet()
    elastic = ElasticNetwork(source.network(), source.space)
    images = torch.from_numpy(source.examples(held_out=True)[0])[:2]

    for control in (source.space.smallest, source.space.largest):
        elastic.switch(control)
        assert elastic(images).shape == (2, 10)
