"""Sentences of AWS's interface documentation and the service that each is about, as botocore ships them.

botocore is installed with MArk. Another release of it has other sentences, so figures are those of one release.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

SERVICES = (
    *(
        "autoscaling",
        "backup",
        "batch",
        "cloudformation",
        "cloudfront",
        "cognito-idp",
        "config",
        "dms",
        "dynamodb",
    ),
    *("ecs", "eks", "fsx", "guardduty", "iot", "kendra", "kms", "lambda", "logs", "opensearch", "rds", "redshift"),
    *("route53", "s3", "ssm"),
)
LENGTH, WORDS = 16, 4096
"""Words of a sentence that are read, and numbers for words: 0 is none, others are shared by words by chance."""
LEAST_WORDS = 5
HELD_OUT_OF = 8
"""One sentence of so many is held out, chosen by its words."""


def examples(*, held_out: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Numbers of the words, shape (n, LENGTH), and places of the services in SERVICES, shape (n,).

    Words of the services' names are left out, and so is what several services say.
    """
    rows = [
        ([_number(word) for word in sentence] + [0] * (LENGTH - len(sentence)), place)
        for sentence, place in _sentences().items()
        if (zlib.crc32(" ".join(sentence).encode()) % HELD_OUT_OF == 0) == held_out
    ]
    return np.array([numbers for numbers, _ in rows], np.int64), np.array([place for _, place in rows], np.int64)


@cache
def _sentences() -> dict[tuple[str, ...], int]:
    """The words of each sentence and the place of its service."""
    models = [_model(service) for service in SERVICES]
    names = {word for model in models for word in _words(" ".join(_names(model)))}
    found: dict[tuple[str, ...], set[int]] = {}
    for place, model in enumerate(models):
        for text in _documentation(model):
            sentence = tuple(word for word in _words(text) if word not in names)[:LENGTH]
            if len(sentence) >= LEAST_WORDS:
                found.setdefault(sentence, set()).add(place)
    return {sentence: places.pop() for sentence, places in found.items() if len(places) == 1}


def _model(service: str) -> dict[str, Any]:
    """The newest description of a service's interface."""
    versions = [folder for folder in (files("botocore") / "data" / service).iterdir() if folder.is_dir()]
    newest = max(versions, key=lambda folder: folder.name) / "service-2.json.gz"
    model: dict[str, Any] = json.loads(gzip.decompress(newest.read_bytes()))
    return model


def _names(model: dict[str, Any]) -> Iterator[str]:
    named = ("serviceId", "serviceFullName", "serviceAbbreviation", "endpointPrefix", "signingName")
    return (model["metadata"][key] for key in named if key in model["metadata"])


def _documentation(model: dict[str, Any]) -> Iterator[str]:
    for described in (*model["operations"].values(), *model["shapes"].values()):
        yield described.get("documentation", "")
        for member in described.get("members", {}).values():
            yield member.get("documentation", "")


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z]+", re.sub(r"<[^>]*>", " ", text).lower())


def _number(word: str) -> int:
    return 1 + zlib.crc32(word.encode()) % (WORDS - 1)
