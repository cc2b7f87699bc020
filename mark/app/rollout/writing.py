"""`mark synth`: the templates in a folder, for teams that deploy plain CloudFormation themselves."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from mark.app.rollout.account import tags_of
from mark.app.rollout.synthesising import Synthesis, synthesise
from mark.app.settings import Settings
from mark.app.terminal import show
from mark.aws.names import name_of
from mark.domain.errors import Misconfigured

SCRIPT = "deploy.sh"


def write_templates(settings: Settings, folder: Path) -> None:
    """Write each stack's template, the bundles, and a script that deploys them with the AWS CLI alone."""
    synthesis = synthesise(settings)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for stale in folder.glob("*.template.json"):
            stale.unlink()
        for number, (name, template) in enumerate(synthesis.templates.items(), start=1):
            path = folder / _file(number, name)
            path.write_text(json.dumps(template, indent=2) + "\n", encoding="utf-8")
        for bundle in synthesis.bundles:
            target = folder / bundle.key
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(bundle.path, target)
        script = folder / SCRIPT
        script.write_text(_script(settings, synthesis), encoding="utf-8")
        script.chmod(0o755)
    except OSError as error:
        raise Misconfigured(f"cannot write {folder}: {error.strerror}") from error
    show(f"wrote {len(synthesis.templates)} templates, {len(synthesis.bundles)} bundles and {SCRIPT} to {folder}")


def _file(number: int, name: str) -> str:
    return f"{number:02d}-{name}.template.json"


def _script(settings: Settings, synthesis: Synthesis) -> str:
    """Deploy in order; the bundles follow the first stack, which has the bucket."""
    service, region = settings.service.name, settings.service.aws.region
    tags = " ".join(f"'{key}={value}'" for key, value in sorted(tags_of(settings).items()))
    lines = [
        "#!/usr/bin/env bash",
        f"# Deploys the service {service} with the AWS CLI alone; running it again changes nothing.",
        "set -euo pipefail",
        'cd "$(dirname "$0")"',
        f"export AWS_REGION={region}",
    ]
    for number, name in enumerate(synthesis.templates, start=1):
        lines.append(
            f"aws cloudformation deploy --no-fail-on-empty-changeset --capabilities CAPABILITY_NAMED_IAM "
            f"--stack-name {name} --template-file {_file(number, name)} --tags {tags}"
        )
        if number == 1:
            export = f"Exports[?Name=='{name_of(service, 'bucket')}'].Value"
            lines.append(f'bucket="$(aws cloudformation list-exports --query "{export}" --output text)"')
            lines += [f'aws s3 cp {bundle.key} "s3://$bucket/{bundle.key}"' for bundle in synthesis.bundles]
    return "\n".join(lines) + "\n"
