"""Files of a trace: one file, a folder, a pattern or a prefix of S3, as chunks of unpacked bytes."""

from __future__ import annotations

import fnmatch
import glob
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Protocol

from mark.domain.errors import Misconfigured

CHUNK_BYTES = 1 << 20
GZIP_MAGIC = b"\x1f\x8b"
UNPACKED_BYTES, MOST_TIMES = 256 * 1024**2, 200
"""A file may unpack to so much, or to so many times its size: gzip makes logs 10 to 50 times smaller."""
GZIP_WINDOW = 31
"""zlib's `wbits` for a gzip header and trailer."""
S3 = "s3://"
NOT_LOGS = ("ELBAccessLogTestFile",)
"""Files beside logs that hold none: Elastic Load Balancing writes this one to try its permission."""
MAGIC = re.compile(r"[*?\[]")


class Objects(Protocol):
    """Objects of S3. Errors: MarkError."""

    def names(self, bucket: str, prefix: str) -> Iterator[str]:
        """Keys that begin with `prefix`, rising."""

    def read(self, bucket: str, key: str) -> Iterator[bytes]:
        """The object's bytes in chunks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file of a trace. `open` gives its bytes anew, as they are stored."""

    name: str
    open: Callable[[], Iterator[bytes]]

    def chunks(self) -> Iterator[bytes]:
        """The bytes, unpacked where they are gzip; never more than a few MiB at a time."""
        return _unpacked(self.name, self.open())


def find_sources(place: str, objects: Objects | None) -> tuple[Source, ...]:
    """The files of a path, a folder and all below it, a pattern such as `logs/*.gz`, or `s3://BUCKET/PREFIX`.

    Hidden files are left out. Misconfigured where there is none.
    """
    if place.startswith(S3):
        return _in_bucket(place, objects)
    path = Path(place)
    try:
        if path.is_dir():
            paths = [
                found for found in path.rglob("*") if found.is_file() and not _hidden(found.relative_to(path))
            ]
        elif MAGIC.search(place) and not path.exists():
            paths = [Path(found) for found in glob.glob(place, recursive=True) if Path(found).is_file()]
        else:
            return (_file(path),)
    except OSError as error:
        raise Misconfigured(f"{place} cannot be read: {error.strerror}; check its permissions") from error
    found = tuple(_file(one) for one in sorted(paths) if one.name not in NOT_LOGS)
    if not found:
        raise Misconfigured(f"{place}: no file is there; check the path")
    return found


def name_of(place: str) -> str:
    """Name of a trace: the file, folder or last part of a prefix, without endings and patterns."""
    parts = [part for part in place.removeprefix(S3).split("/") if part and not MAGIC.search(part)]
    last = parts[-1] if parts else "trace"
    return last.removesuffix(".gz").rsplit(".", 1)[0] or last


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _file(path: Path) -> Source:
    return Source(name=str(path), open=lambda: _file_chunks(path))


def _file_chunks(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk
    except FileNotFoundError:
        raise Misconfigured(f"{path}: no such trace file; check the path") from None
    except OSError as error:
        raise Misconfigured(f"{path} cannot be read: {error.strerror}; check its permissions") from error


def _in_bucket(place: str, objects: Objects | None) -> tuple[Source, ...]:
    bucket, _, key = place.removeprefix(S3).partition("/")
    if not bucket:
        raise Misconfigured(f"{place} names no bucket; write s3://BUCKET/PREFIX")
    if objects is None:
        raise Misconfigured(f"{place} cannot be read from here; copy it with `aws s3 sync` and name the folder")
    store = objects
    pattern = MAGIC.search(key)
    names = store.names(bucket, key[: pattern.start()] if pattern else key)
    taken = [
        name
        for name in names
        if not name.endswith("/")
        and name.rsplit("/", 1)[-1] not in NOT_LOGS
        and (not pattern or fnmatch.fnmatchcase(name, key))
    ]
    if not taken:
        raise Misconfigured(f"{place}: no object is there; check bucket and prefix")
    return tuple(
        Source(name=f"{S3}{bucket}/{name}", open=lambda name=name: store.read(bucket, name))  # type: ignore[misc]
        for name in taken
    )


def _unpacked(name: str, packed: Iterator[bytes]) -> Iterator[bytes]:
    first = next(packed, b"")
    if not first.startswith(GZIP_MAGIC):
        if first and name.endswith(".gz"):
            raise Misconfigured(f"{name} is not gzip although its name ends in .gz; rename or compress it")
        yield from chain((first,), packed)
        return
    unpacker = zlib.decompressobj(GZIP_WINDOW)
    waiting, read, unpacked = first, len(first), 0
    while True:
        try:
            part = unpacker.decompress(waiting, CHUNK_BYTES)
        except zlib.error as error:
            raise Misconfigured(f"{name} is damaged gzip ({error}); fetch it again") from error
        unpacked += len(part)
        if unpacked > max(UNPACKED_BYTES, MOST_TIMES * read):
            raise Misconfigured(f"{name} unpacks to more than {MOST_TIMES} times its size, which no log does")
        if part:
            yield part
        waiting = unpacker.unconsumed_tail
        if unpacker.eof:
            waiting = unpacker.unused_data
            while len(waiting) < len(GZIP_MAGIC) and (more := next(packed, b"")):
                waiting, read = waiting + more, read + len(more)
            if not waiting.startswith(GZIP_MAGIC):  # padding; else one more member, as `cat a.gz b.gz` makes
                return
            unpacker = zlib.decompressobj(GZIP_WINDOW)
        elif not waiting and not part:
            waiting = next(packed, b"")
            read += len(waiting)
            if not waiting:
                raise Misconfigured(f"{name} is truncated gzip; fetch it again")
