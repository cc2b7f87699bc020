"""Snapshots of AWS's machine images, on no smaller disk than which EC2 launches them."""

from __future__ import annotations

SNAPSHOT_GIB, GPU_SNAPSHOT_GIB = 8, 30
"""Amazon Linux 2023, and the image for containers on GPUs (amazonlinux/amazon-linux-2023#268 and
aws/containers-roadmap#134, read on 2026-11-28)."""


def snapshot_gib(*, own_image: bool, gpu: bool) -> int:
    """The least disk that an image starts on; of an image of one's own `mark doctor` compares it."""
    if own_image:
        return 1
    return GPU_SNAPSHOT_GIB if gpu else SNAPSHOT_GIB
