"""An emulated AWS as a process of its own: `python -m tests.emulator.supervised FOLDER` prints its endpoint."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from mark.emulator.aws_server import EmulatedAws
from tests.emulator.conftest import config_for


def say(url: str) -> None:
    sys.stdout.write(url + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(EmulatedAws(config_for(Path(sys.argv[1]))).serve(say))
