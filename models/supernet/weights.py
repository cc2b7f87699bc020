"""A supernet's weights and its subnets' statistics in one file of plain arrays.

Of each norm three arrays are kept beside the weights: the statistics that differ, one after another, how many
channels each has, and which of them each subnet uses (-1: none, it does not run this norm).
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mark.domain.errors import Misconfigured
from mark.domain.supernet import Control
from mark.models.supernet.elastic import ElasticNetwork
from mark.models.supernet.operators import Statistics, SubnetNorm

Arrays = dict[str, NDArray[Any]]
CONTROLS = tuple(f"subnets.{part}" for part in Control._fields)
PARTS = ("values", "channels", "places")


def save(path: Path, elastic: ElasticNetwork) -> None:
    """Write the file."""
    controls = elastic.calibrated
    arrays: Arrays = {
        f"weights.{name}": tensor.detach().cpu().numpy() for name, tensor in elastic.network.state_dict().items()
    }
    for name, parts in zip(CONTROLS, zip(*controls, strict=True), strict=True):
        arrays[name] = np.array(parts, np.float64)
    for name, norm in elastic.norms.items():
        packed = _packed(norm, controls)
        arrays |= {f"statistics.{name}.{part}": packed[part] for part in PARTS}
    with path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def load(path: Path, elastic: ElasticNetwork) -> None:
    """Put the file into a network that was made as the saved one was, which then only answers.

    Misconfigured where the file does not fit it.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        prefix = "weights."
        state = {
            name.removeprefix(prefix): torch.from_numpy(arrays[name]) for name in arrays if name.startswith(prefix)
        }
        elastic.network.load_state_dict(state)
        controls = [
            Control(tuple(map(int, depths)), tuple(map(float, expands)), tuple(map(float, widths)))
            for depths, expands, widths in zip(*(arrays[name] for name in CONTROLS), strict=True)
        ]
        for name, norm in elastic.norms.items():
            _unpack(norm, controls, *(arrays[f"statistics.{name}.{part}"] for part in PARTS))
    except OSError as error:
        raise Misconfigured(f"cannot read {path}: {error.strerror or error}") from error
    except (KeyError, ValueError, RuntimeError, EOFError, zipfile.BadZipFile) as error:
        raise Misconfigured(f"{path} does not fit the network; train the supernet again") from error
    elastic.restore(controls)
    elastic.network.eval()


def _packed(norm: SubnetNorm, controls: tuple[Control, ...]) -> Arrays:
    places: dict[int, int] = {}
    different: list[Statistics] = []
    used = []
    for control in controls:
        found = norm.statistics.get(control)
        if found is None:
            used.append(-1)
            continue
        if id(found) not in places:
            places[id(found)] = len(different)
            different.append(found)
        used.append(places[id(found)])
    parts = [part.cpu().numpy() for found in different for part in found]
    return {
        "values": np.concatenate([np.zeros(0, np.float32), *parts]),
        "channels": np.array([len(found.mean) for found in different], np.int64),
        "places": np.array(used, np.int64),
    }


def _unpack(
    norm: SubnetNorm, controls: list[Control], values: NDArray[Any], channels: NDArray[Any], places: NDArray[Any]
) -> None:
    ends = np.cumsum(2 * channels)
    found = []
    for end, count in zip(ends, channels, strict=True):
        both = values[end - 2 * count : end].copy()
        found.append(Statistics(torch.from_numpy(both[:count].copy()), torch.from_numpy(both[count:].copy())))
    for control, place in zip(controls, places, strict=True):
        if place >= 0:
            norm.keep(control, found[place])
