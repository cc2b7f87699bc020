"""What a forecaster learned elsewhere: the order of a training, its result, and what of a result is taken (pure).

An order says all that a training depends on; its digest is part of the key that it lies under, so another load,
seed, forecaster or version of MArk is another key. A result is one object, so it is there whole or not at all: a
line of JSON that says of which order it is, and a zip of the files that the forecaster left in its cache. It is
taken if its checksum is right and it is of this order and this version; whoever takes it makes the forecaster from
these files, as from a cache of its own.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from mark.adapters import adapter_of
from mark.domain.demand import Demand
from mark.plugins.load import forecaster_names

FORMAT = 1
"""Raise it when a result's form changes."""
PENDING = b""
"""Result of a training that was ordered and is not over."""
LARGEST_BYTES = 64 << 20
"""Of a result, unpacked: the shipped forecasters leave some hundred KiB."""
PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
"""Names of files that are taken: none leaves the folder."""
TRAINED_WITH_TORCH = ("lstm", "lstm-vanilla", "mixture")
"""Forecasters that learn with torch; `mixture` goes without its LSTM where torch is absent, and says so."""


class ResultRefused(Exception):
    """A training's result that is not taken; the message has the reason."""


def may_train_with_torch(forecaster: str) -> bool:
    """True for a forecaster of one's own, too: nobody knows what it needs."""
    return forecaster in TRAINED_WITH_TORCH or forecaster not in forecaster_names()


def may_train_elsewhere(forecaster: str) -> bool:
    """True for one that an image with torch may train: it has no file of the team's, `path/file.py:Name`."""
    return may_train_with_torch(forecaster) and not forecaster.rpartition(":")[0].endswith(".py")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOrder:
    """All that a training depends on."""

    forecaster: str
    history: Demand
    seed: int
    #: MArk's; another one may learn, or keep, something else.
    version: str

    @property
    def digest(self) -> str:
        """SHA-256 of the order, hex."""
        return hashlib.sha256(compose_order(self)).hexdigest()

    @property
    def name(self) -> str:
        """Part of its key: when its history ended, and what makes it another than any other order."""
        return f"{self.history.end_at:.0f}-{self.digest[:16]}"


def compose_order(order: TrainingOrder) -> bytes:
    """The order as an object of the bucket."""
    return adapter_of(TrainingOrder).dump_json(order)


def read_order(document: bytes) -> TrainingOrder:
    """The order in an object. Errors: ResultRefused where it is none."""
    try:
        return adapter_of(TrainingOrder).validate_json(document)
    except ValidationError as error:
        raise ResultRefused("the object is not an order of a training") from error


def compose_result(order: TrainingOrder, files: Mapping[str, bytes]) -> bytes:
    """Result of a training that left these files, by name, in its cache."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name), files[name])
    return _document(order, packed.getvalue(), error="")


def compose_failure(order: TrainingOrder, error: str) -> bytes:
    """Result of a training that failed, with the reason in one line."""
    return _document(order, b"", error=" ".join(error.split()) or "no reason given")


def read_result(document: bytes, order: TrainingOrder) -> dict[str, bytes]:
    """Files by name of what was trained for this order. Errors: ResultRefused with the reason."""
    head, _, packed = document.partition(b"\n")
    try:
        said = json.loads(head)
        fields = {key: said[key] for key in ("format", "version", "order", "sha256", "error")}
    except (ValueError, KeyError, TypeError) as error:
        raise ResultRefused("it is not a result of a training") from error
    if fields["format"] != FORMAT:
        raise ResultRefused(f"its format is {fields['format']}, and {FORMAT} is read here")
    if fields["version"] != order.version:
        raise ResultRefused(
            f"it is of MArk {fields['version']}, and the controller is {order.version}: build the training image "
            "of the same version"
        )
    if fields["order"] != order.digest:
        raise ResultRefused("it is of another order")
    if fields["sha256"] != _checksum(packed, fields["error"]):
        raise ResultRefused("its checksum is wrong")
    if fields["error"]:
        raise ResultRefused(str(fields["error"]))
    return _unpacked(packed)


def _document(order: TrainingOrder, packed: bytes, *, error: str) -> bytes:
    head = {
        "format": FORMAT,
        "version": order.version,
        "order": order.digest,
        "sha256": _checksum(packed, error),
        "error": error,
    }
    return json.dumps(head, separators=(",", ":")).encode() + b"\n" + packed


def _checksum(packed: bytes, error: object) -> str:
    return hashlib.sha256(str(error).encode() + b"\n" + packed).hexdigest()


def _unpacked(packed: bytes) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            entries = archive.infolist()
            if sum(entry.file_size for entry in entries) > LARGEST_BYTES:
                raise ResultRefused(f"it holds more than {LARGEST_BYTES >> 20} MiB")
            for entry in entries:
                if not PLAIN.fullmatch(entry.filename):
                    raise ResultRefused(f"it holds {entry.filename!r}, which is no plain file name")
            return {entry.filename: archive.read(entry) for entry in entries}
    except (zipfile.BadZipFile, EOFError) as error:
        raise ResultRefused("its files cannot be read") from error
