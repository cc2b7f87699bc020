"""`python -m scripts.real_account run FOLDER`, and two days later `bill FOLDER` (docs/real-account.md)."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from botocore.exceptions import BotoCoreError, ClientError

from mark.config.settings import load_settings
from mark.domain.errors import MarkError, Misconfigured
from scripts.real_account.run import Run, Way, telling_how_to_end


def main() -> int:
    """The command line; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m scripts.real_account", description=__doc__)
    parser.add_argument("what", choices=("run", "bill"))
    parser.add_argument("folder", type=Path, help="where the run keeps what it does")
    parser.add_argument("--config", type=Path, default=Path("mark.yaml"), help="your settings, at the first run")
    asked = parser.parse_args()
    try:
        run = Run(asked.folder, Way())
        if asked.what == "bill":
            print(run.bill())
            return 0
        with telling_how_to_end(run):
            run.go(None if run.config.is_file() else load_settings(asked.config, {}))
        print(run.report())
    except KeyboardInterrupt:
        return 1
    except Misconfigured as error:
        print(error, file=sys.stderr)
        return 2
    except (MarkError, subprocess.CalledProcessError, BotoCoreError, ClientError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
