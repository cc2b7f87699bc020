"""Kinds of machines that a rollout has launch templates for, and what none of them can launch."""

from __future__ import annotations

from collections.abc import Collection

from mark.domain.offerings.offering import InstanceType, MachineKind

KEPLER_FAMILIES = ("g2", "p2")
"""Their GPUs have no driver in AWS's image for containers: on all but p3 and g3 it loads NVIDIA's open kernel
module (aws/amazon-ecs-ami, scripts/al2023/gpu/nvidia-kmod-load.sh), which asks for Turing or newer
(NVIDIA/open-gpu-kernel-modules, README)."""
FREE_PLAN_TYPES = ("c7i-flex.large", "m7i-flex.large", "t3.micro", "t3.small", "t4g.micro", "t4g.small")
"""Types that a new account on AWS's Free plan may launch (aws-samples/eks-workshop-v2 #1644, of 2025-09-14)."""
INFERENTIA = "-inferentia"


def unlaunchable_reason(item: InstanceType, machines: Collection[MachineKind] | None) -> str | None:
    """Reason for which none of the machines can be of that type; None where one can, or any is there."""
    if machines is None:
        return None
    kinds = {machine.name: machine for machine in machines}
    if item.machine in kinds:
        if item.name.partition(".")[0] in KEPLER_FAMILIES and not kinds[item.machine].own_image:
            return (
                f"AWS's machine image has no driver for its {item.accelerator}: name an ami of your own in "
                "rollout.machines"
            )
        return None
    if item.machine.endswith(INFERENTIA):
        return f"no rollout launches machines of the kind {item.machine}"
    wanted = f"architecture: {item.architecture}" + (", accelerator: nvidia" if item.accelerator else "")
    return f"rollout.machines has {' and '.join(sorted(kinds))}: add {{{wanted}}} to rent it"
