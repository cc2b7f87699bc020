"""The text of a trace's file, cut into blocks of whole lines."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from itertools import chain

from mark.domain.errors import Misconfigured
from mark.simulator.traces.formats.sources import Source

HEAD_CHARS = 1 << 16
"""A format is known by so many of the first characters."""
MAX_LINE_CHARS = 1 << 22
MAX_DOCUMENT_CHARS = 1 << 28
"""A JSON document is parsed as a whole; CloudWatch and Prometheus answer with a thousandth of this at most."""
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""Byte order marks of what PowerShell's `>` writes."""


class Text:
    """A file's text, read once. `head` are its first characters, without blank lines before them.

    `unended_line`: number of the last line where no line end follows it, once `blocks` has come to it.
    `notes`: what a reader leaves out.
    """

    def __init__(self, source: Source) -> None:
        self.name = source.name
        self.source = source
        self._parts = _decoded(source)
        self._first_line = 1
        self.unended_line: int | None = None
        self.notes: tuple[str, ...] = ()
        head = ""
        while len(head) < HEAD_CHARS and (part := next(self._parts, "")):
            head += part
            while head.startswith(("\n", "\r\n")):
                head = head[head.index("\n") + 1 :]
                self._first_line += 1
        if not head.strip():
            raise EmptyFile(f"{self.name} is empty; give a trace with at least one arrival or two bins")
        self.head = head

    @property
    def first_line(self) -> int:
        """Number of the line that `head` opens with, from 1."""
        return self._first_line

    def lines(self) -> list[str]:
        """The whole lines of the head, stripped."""
        return [line.strip() for line in _plain(self.head).split("\n")]

    def blocks(self) -> Iterator[tuple[int, str]]:
        """Whole lines in blocks, with the number of the first line of each."""
        number, rest = self._first_line, ""
        for part in chain((self.head,), self._parts):
            lines, newline, after = part.rpartition("\n")
            if not newline:
                rest += part
            else:
                block = _plain(rest + lines + "\n")
                yield number, block
                number += block.count("\n")
                rest = after
            if len(rest) > MAX_LINE_CHARS:
                raise self.wrong(number, f"the line is longer than {MAX_LINE_CHARS:,} characters; give lines")
        if rest.strip():
            self.unended_line = number
            yield number, _plain(rest + "\n")

    def whole(self) -> str:
        """All of it. Misconfigured where that is too much for one document."""
        parts, length = [], 0
        for part in chain((self.head,), self._parts):
            parts.append(part)
            length += len(part)
            if length > MAX_DOCUMENT_CHARS:
                raise Misconfigured(f"{self.name} is too large for one JSON document; export it in parts")
        return "".join(parts)

    def wrong(self, line: int, what: str) -> Misconfigured:
        """The error about a line, counted from 1."""
        return Misconfigured(f"{self.name}, line {line}: {what}")


class EmptyFile(Misconfigured):
    """A file that holds no request and no datapoint: an error alone, left out among others."""


def rows_of(number: int, block: str) -> Iterator[tuple[int, str]]:
    """Number and text of the lines of a block that are not blank."""
    for at, line in enumerate(block.split("\n"), start=number):
        if row := line.strip():
            yield at, row


def _plain(text: str) -> str:
    """The text with lines that end as Unix's do."""
    return text.replace("\r\n", "\n").replace("\r", " ") if "\r" in text else text


def _decoded(source: Source) -> Iterator[str]:
    decoder = None
    for chunk in source.chunks():
        if decoder is None:
            coding = "utf-16" if chunk.startswith(UTF_16) else "utf-8-sig"
            decoder = codecs.getincrementaldecoder(coding)(errors="replace")
        text = decoder.decode(chunk)
        if "\0" in text:
            raise Misconfigured(f"{source.name} is not text; give a log, a CSV or JSON of docs/traces.md")
        if text:
            yield text
    if decoder is not None and (text := decoder.decode(b"", True)):
        yield text
