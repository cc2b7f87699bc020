"""Time that a cold start imports: each handler in fresh processes, the best of them, beside a bare interpreter.

    python -m scripts.bench.handlers [--runs 7]

Milliseconds of CPU within the import: what else runs on the machine is not what is measured.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from infra.bundles.build import NAMES

MEASURE = "import sys, time; began = time.process_time(); {}; print(1000 * (time.process_time() - began))"
LATER = {"report": "lambda_handlers.mailing, mark.report.mail.plots"}
"""What a handler imports at its first event."""


def cold_ms(modules: str, runs: int) -> float:
    """The best of so many fresh processes."""
    code = MEASURE.format(f"import {modules}")
    command = [sys.executable, "-c", code]
    seconds = (subprocess.run(command, check=True, capture_output=True, text=True).stdout for _ in range(runs))  # noqa: S603
    return min(map(float, seconds))


def main() -> None:
    """Print a line a handler."""
    parser = argparse.ArgumentParser(prog="python -m scripts.bench.handlers", description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    runs = parser.parse_args().runs
    for name in NAMES:
        later = f", {cold_ms(LATER[name], runs):4.0f} ms with its first event" if name in LATER else ""
        print(f"{name:13} {cold_ms(f'lambda_handlers.{name}', runs):4.0f} ms{later}", flush=True)


if __name__ == "__main__":
    main()
