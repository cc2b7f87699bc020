"""`mark synth`: the templates in a folder, for teams that deploy plain CloudFormation themselves, or with CDK.

The folder is also what CDK calls a cloud assembly: `cdk deploy` in it deploys these very templates.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mark.aws.names import bucket_pattern, name_of, repository_of, rollout_role
from mark.aws.permissions.policies import Statement
from mark.aws.permissions.scopes import Names
from mark.aws.stacks.access import access_template
from mark.aws.stacks.cloudformation import LONGEST_BODY, StackTemplate
from mark.config.settings import Settings
from mark.config.training import trains_in_function
from mark.deployment.account import tags_of
from mark.deployment.deployment_plan import TEMPLATES
from mark.deployment.spending import spending_line
from mark.deployment.synth import STACK, Synthesis, synthesise
from mark.domain.documents import json_text
from mark.domain.errors import Misconfigured
from mark.live.local.first_price import first_price
from mark.report.overhead import overhead_line
from mark.report.terminal import show

SCRIPT, UPLOADS = "deploy.sh", "bundles.sh"
MANIFEST, CDK, BLUEPRINT = "manifest.json", "cdk.json", "blueprint.json"
ACCESS = "access.json"
"""Template of what an administrator makes so that others may deploy the stacks."""
THIS_ACCOUNT = "${AWS::AccountId}"


def write_templates(settings: Settings, folder: Path) -> None:
    """Write each stack's template, the bundles, and what the AWS CLI's and CDK's command line deploy them with."""
    synthesis = synthesise(settings)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for stale in folder.glob("*.template.json"):
            stale.unlink()
        for name, template in synthesis.templates.items():
            _write_json(folder / _file(synthesis, name), template)
        _write_json(folder / MANIFEST, _manifest(synthesis))
        _write_json(folder / CDK, {"app": "."})
        (folder / BLUEPRINT).write_text(synthesis.blueprint + "\n", encoding="utf-8")
        _write_json(folder / ACCESS, _access(settings, synthesis))
        for bundle in synthesis.bundles:
            target = folder / bundle.key
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(bundle.path, target)
        for version in synthesis.versions.values():
            (folder / version.key).parent.mkdir(parents=True, exist_ok=True)
            version.write(folder / version.key)
        _write_script(folder / UPLOADS, _uploads(settings, synthesis))
        _write_script(folder / SCRIPT, _deploys(settings, synthesis))
    except OSError as error:
        raise Misconfigured(f"cannot write {folder}: {error.strerror}") from error
    show(overhead_line(synthesis.footprint), spending_line(synthesis.spending))
    show(*first_price(settings, synthesis.models).lines)
    show(f"wrote {len(synthesis.templates)} templates, {len(synthesis.bundles)} bundles and {SCRIPT} to {folder}")


def _access(settings: Settings, synthesis: Synthesis) -> StackTemplate:
    """By the types that the templates have; buckets get their names from their stack's."""
    rollout, service = settings.rollout, settings.service
    names = Names(
        service=service.name,
        region=service.aws.region,
        account=rollout.account or THIS_ACCOUNT,
        bucket=bucket_pattern(service.name),
        sender=rollout.report.sender or "",
        zone=(rollout.node.zone or "*") if rollout.shape == "lean" else "",
        host=rollout.node.name or "",
        webhook=rollout.alarms.webhook or "",
    )
    certificate = rollout.node.certificate
    trains = rollout.training_image if trains_in_function(settings) else None
    images = sorted({one for one in (rollout.functions.infer_image, trains) if one})
    return access_template(
        names,
        types_of(synthesis),
        secrets=tuple(filter(None, (certificate, settings.telemetry.headers_secret))),
        more=(_reads(images, names.partition),) if images else (),
    )


def _reads(images: Sequence[str], partition: str) -> Statement:
    """Statement that lets the creator of functions read their images (Lambda developer guide)."""
    return Statement(
        sid="StackFunctionImage",
        actions=("ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"),
        resources=tuple(dict.fromkeys(repository_of(image, partition) for image in images)),
        conditions={},
        why="the images that functions run",
    )


def types_of(synthesis: Synthesis) -> frozenset[str]:
    """The types of resources that the templates have."""
    found = (template["Resources"].values() for template in synthesis.templates.values())
    return frozenset(str(resource["Type"]) for resources in found for resource in resources)


def _file(synthesis: Synthesis, name: str) -> str:
    number = list(synthesis.templates).index(name) + 1
    return f"{number:02d}-{name}.template.json"


def _text(document: object) -> str:
    """A document as it is written; in characters of one byte."""
    return json_text(document, indent=2) + "\n"


def _write_json(path: Path, document: object) -> None:
    path.write_text(_text(document), encoding="utf-8")


def _manifest(synthesis: Synthesis) -> dict[str, Any]:
    """The app's manifest with its stacks alone, and the templates under the names that they have here."""
    stacks = {}
    for name, artifact in synthesis.assembly["artifacts"].items():
        if artifact["type"] != STACK:
            continue
        about = artifact["properties"]
        stacks[name] = {key: value for key, value in artifact.items() if key != "additionalMetadataFile"}
        stacks[name]["properties"] = {**about, "templateFile": _file(synthesis, about["stackName"])}
    return {**synthesis.assembly, "artifacts": stacks}


def _write_script(path: Path, lines: Sequence[str]) -> None:
    head = ["#!/usr/bin/env bash", lines[0], "set -euo pipefail", 'cd "$(dirname "$0")"']
    path.write_text("\n".join([*head, *lines[1:]]) + "\n", encoding="utf-8")
    path.chmod(0o755)


def _uploads(settings: Settings, synthesis: Synthesis) -> list[str]:
    """Bring the functions' code and the models' files into the bucket, which the first stack has."""
    keys = [*(one.key for one in synthesis.bundles), *(one.key for one in synthesis.versions.values())]
    return [
        f"# Uploads the functions' code and the models' files; {next(iter(synthesis.templates))} must stand.",
        f"export AWS_REGION={settings.service.aws.region}",
        _finds_bucket(settings),
        *(f'aws s3 cp {key} "s3://$bucket/{key}"' for key in dict.fromkeys(keys)),
    ]


def _finds_bucket(settings: Settings) -> str:
    export = f"Exports[?Name=='{name_of(settings.service.name, 'bucket')}'].Value"
    return f'bucket="$(aws cloudformation list-exports --query "{export}" --output text)"'


def _deploys(settings: Settings, synthesis: Synthesis) -> list[str]:
    """Deploy in order; the bundles follow the first stack."""
    tags = " ".join(f"'{key}={value}'" for key, value in sorted(tags_of(settings).items()))
    service = settings.service.name
    account = settings.rollout.account or "$(aws sts get-caller-identity --query Account --output text)"
    role = f' --role-arn "arn:aws:iam::{account}:role/{rollout_role(service)}"'
    by_bucket = f' --s3-bucket "$bucket" --s3-prefix {TEMPLATES.rstrip("/")}'
    deploys = [
        f"aws cloudformation deploy --no-fail-on-empty-changeset --capabilities CAPABILITY_NAMED_IAM "
        f"--stack-name {name} --template-file {_file(synthesis, name)} --tags {tags}"
        f"{role if settings.rollout.service_role else ''}"
        f"{by_bucket if len(_text(template)) > LONGEST_BODY else ''}"
        for name, template in synthesis.templates.items()
    ]
    return [
        f"# Deploys the service {service} with the AWS CLI alone; running it again changes nothing.",
        f"export AWS_REGION={settings.service.aws.region}",
        deploys[0],
        f"./{UPLOADS}",
        _finds_bucket(settings),
        *deploys[1:],
    ]
