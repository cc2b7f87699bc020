"""`python -m scripts.try_wheel PART`: tries a part of what the running Python's installation promises."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

from scripts.try_wheel.commands import try_alone, try_base, try_rollout
from scripts.try_wheel.first_report import follow
from scripts.try_wheel.installation import Broken, Installation, installed_here

PARTS: Mapping[str, Callable[[Installation], list[str]]] = {
    "base": try_base,
    "alone": try_alone,
    "first-report": follow,
    "rollout": try_rollout,
}


def main(words: Sequence[str]) -> int:
    """Try the part; the exit status."""
    (part,) = words
    with installed_here() as there:
        try:
            done = PARTS[part](there)
        except Broken as error:
            sys.stderr.write(f"{part}: {error}\n")
            return 1
    sys.stdout.write("\n".join([*done, f"{part}: the wheel needs no clone", ""]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
