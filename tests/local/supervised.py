"""An emulated AWS as a process of its own: `python -m tests.local.supervised FOLDER` prints its endpoint."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from mark.local.emulated import EmulatedAws
from tests.local.conftest import config_for


async def main() -> None:
    aws = EmulatedAws(config_for(Path(sys.argv[1])))
    await aws.start()
    sys.stdout.write(aws.url + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
