"""`python -m mark.infra.app BLUEPRINT FOLDER`: write the stacks of a blueprint into a folder, and their order.

What is missing on this machine is one line on stderr and exit status 2.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from mark.domain.errors import Misconfigured
from mark.extras import require_extra

WRONG_USE, REFUSED = 2, 3
ORDER = "order.json"
LEAST_NODE = 18


def main(arguments: list[str]) -> int:
    """Write the templates; the exit status."""
    lacking = what_is_missing()
    if lacking:
        sys.stderr.write(f"{lacking}\n")
        return WRONG_USE
    # CDK's own rules only warn, where nobody reads it, and take half of the time; cdk-nag's are not among them
    os.environ.setdefault("CDK_VALIDATION", "false")
    # CDK starts a node process when it is imported
    from mark.infra.blueprint import read_blueprint  # noqa: PLC0415
    from mark.infra.build import synthesise  # noqa: PLC0415

    source, folder = Path(arguments[0]), Path(arguments[1])
    names = synthesise(read_blueprint(source.read_text(encoding="utf-8")), folder)
    (folder / ORDER).write_text(json.dumps(names), encoding="utf-8")
    return 0


def what_is_missing() -> str:
    """Missing prerequisites in one line, empty where all are there. Silences jsii's warnings."""
    try:
        require_extra("infra", "making templates")
    except Misconfigured as error:
        return str(error)
    node = shutil.which("node")
    if node is None:
        return (
            f"CDK needs Node.js {LEAST_NODE} or newer, and there is no `node` in PATH: install it from nodejs.org"
        )
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout  # noqa: S603
    found = re.match(r"v(\d+)\.", version)
    if found is None or int(found[1]) < LEAST_NODE:
        return (
            f"CDK needs Node.js {LEAST_NODE} or newer, not {version.strip() or node}: install it from nodejs.org"
        )
    # jsii warns on each run of a version that Node's makers have retired; ours is chosen above
    os.environ["JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION"] = found[1]
    os.environ["JSII_SILENCE_WARNING_DEPRECATED_NODE_VERSION"] = found[1]
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
