"""A trained supernet as agents serve it: opened from its folder, its variants switched in place."""

from __future__ import annotations

from pathlib import Path

from mark.catalog.load import SUPERNETS
from mark.offline.supernet.artifact import WEIGHTS_FILE, read_artifact
from mark.plugins.load import make_supernet, make_workshop
from mark.ports import VariantModel


def served_supernet(folder: Path, *, gpu: bool = False) -> VariantModel:
    """The model in a folder that `mark supernet train` wrote; it begins with its most accurate variant.

    A network of one's own is looked for beside the folder, as it was when it was trained. Errors: Misconfigured.
    """
    known = read_artifact(folder).trained
    home = folder.absolute().parent
    where, _, name = known.target.rpartition(":")
    target = f"{home / where}:{name}" if where.endswith(".py") else known.target
    source = make_supernet(target, None if target in SUPERNETS.values() else home)
    opened = make_workshop().open(source, known, folder / WEIGHTS_FILE, gpu=gpu)
    best = max(known.subnets, key=lambda subnet: (subnet.accuracy, subnet.variant))
    return opened.model(best.variant)
