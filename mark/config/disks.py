"""Root disks of the service's machines: as large as what lies on them, and no smaller than their machine image.

The bill, the launch templates and the price of a sleeping standby all take their sizes from `with_disks`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mark.domain.errors import Misconfigured
from mark.domain.offerings.snapshots import snapshot_gib

if TYPE_CHECKING:  # functions that name resources do without the settings' libraries
    from mark.config.rollout import MachineSettings, NodeSettings, RolloutSettings

SYSTEM_GIB = 3.0
"""Amazon Linux 2023 with Docker. Assumed: 1.6 GiB of its image are in use, Docker with containerd adds 0.3,
journald keeps up to a tenth of the disk (journald.conf, SystemMaxUse), and XFS takes some of it."""
GPU_SYSTEM_GIB = 12.0
"""The same with NVIDIA's driver and CUDA's libraries. Assumed."""
GPU_LEAST_GIB = 60
"""Root disk of a machine with NVIDIA's driver at least: AWS's image takes 30, and nobody has counted what it
leaves of them. A disk that fills while an image is pulled fails again and again; 30 more cost 2.40 USD a month."""
PULLED = 1.5
"""Space of a pull for each byte of the image unpacked: Docker keeps a layer compressed until it is unpacked."""
COMPRESSED = 3.0
"""Space of a pull for each byte of the image as ECR keeps it: it is twice as large unpacked. Assumed."""
IMAGE_GIB = 2.1
"""MArk's image with torch, unpacked: 2.2 GB (docs/deploy.md)."""
GPU_IMAGE_GIB = 7.5
"""The same with torch's libraries of CUDA. Assumed, after the sizes of their wheels."""
SERVER_IMAGE_GIB = 20.0
"""A model server of one's own (`rollout.model_image`). Assumed, as large as Triton's full image."""
STORE_IMAGE_GIB = 0.1
MODEL_GIB = 0.25
"""A model's files at least, so that few versions need a larger disk; Inception-v3's weights take 0.1 GiB."""
MODEL_FOLDER_GIB = 2.0
"""`rollout.bundle`, which lies in the bucket. Assumed."""
VERSIONS = 2
"""A model's files, and those of a version beside."""
STORE_OF_MODEL_GIB = 0.5
"""On a node: a model's part of the store (`STORE_OF_MODEL_MIB`), twice while the store's file is rewritten."""
SWAP_GIB = 1.0
"""On a node (infra/user_data.py)."""
SCRATCH_GIB = 0.5
"""What nobody has counted; processes write to memory."""


def with_disks(rollout: RolloutSettings, *, models: int = 1, bundles_gib: Sequence[float] = ()) -> RolloutSettings:
    """The rollout with the size of each disk, where it is left out.

    bundles_gib: the models' files, unpacked; smaller ones, and models of which nobody knows, count as `MODEL_GIB`.
    """
    files_gib = sum(max(one, MODEL_GIB) for one in bundles_gib or [0.0] * models)
    machines = tuple(
        one.model_copy(update={"disk_gib": one.disk_gib or instance_disk_gib(one, rollout, files_gib)})
        for one in rollout.machine_kinds
    )
    node = rollout.node
    kept = node.model_copy(update={"disk_gib": node.disk_gib or node_disk_gib(node, models)})
    return rollout.model_copy(update={"machines": machines, "node": kept})


def instance_disk_gib(machine: MachineSettings, rollout: RolloutSettings, files_gib: float) -> int:
    """Disk of an instance that holds these files of models, twice: a version may run beside."""
    gpu = bool(machine.accelerator)
    image = GPU_IMAGE_GIB if gpu and rollout.model_image is None else IMAGE_GIB
    images = PULLED * (image + SERVER_IMAGE_GIB * (rollout.model_image is not None))
    files = VERSIONS * files_gib + MODEL_FOLDER_GIB * (rollout.bundle is not None)
    return _rounded(machine, system_gib(machine) + images + files + SCRATCH_GIB)


def node_disk_gib(node: NodeSettings, models: int) -> int:
    """Disk of a node of the lean shape, with the files of its store."""
    images = PULLED * (IMAGE_GIB + STORE_IMAGE_GIB)
    kept = models * STORE_OF_MODEL_GIB + SWAP_GIB
    return _rounded(node.machine, SYSTEM_GIB + images + kept + SCRATCH_GIB)


def system_gib(machine: MachineSettings) -> float:
    """Space that system and driver take."""
    return GPU_SYSTEM_GIB if machine.accelerator else SYSTEM_GIB


def require_space(rollout: RolloutSettings, bundles_gib: Sequence[float]) -> None:
    """Misconfigured where a disk that the settings size has no room for the models' files and a version beside."""
    files = VERSIONS * sum(bundles_gib)
    for machine in rollout.machines or ():
        system = system_gib(machine)
        if machine.disk_gib is not None and machine.disk_gib < system + files:
            raise Misconfigured(
                f"rollout.machines: {machine.name} has disk_gib {machine.disk_gib}; the system and the models' "
                f"files, twice for a version beside, take {system + files:.1f}: leave disk_gib out, or write more"
            )


def _rounded(machine: MachineSettings, gib: float) -> int:
    """An image of one's own may be as large as AWS's largest: nobody has looked at it."""
    least = snapshot_gib(own_image=False, gpu=bool(machine.accelerator) or machine.ami is not None)
    return max(least, math.ceil(gib), GPU_LEAST_GIB if machine.accelerator else 0)
