"""From settings to CloudFormation: what the CDK app is told, and what it wrote. The app runs as a process.

Nothing is asked of AWS here: the same settings and bundles give the same templates.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mark.aws.resources import LambdaSpec, mails
from mark.aws.stacks.cloudformation import StackTemplate
from mark.catalog.billing import BYTES_PER_GIB
from mark.config.carried import carry_files
from mark.config.disks import require_space, with_disks
from mark.config.footprint import footprint_of, gateway_machine, sized
from mark.config.settings import Settings
from mark.config.telemetry import TelemetrySettings, telemetry_of
from mark.config.training import trains_in_function
from mark.deployment.bundles import Bundle, find_bundles, overflowing
from mark.deployment.model_versions import first_bundles, in_versions
from mark.deployment.spending import Spending, limited, rounded_up, spending_of
from mark.deployment.template_sizes import TemplateSize, require_room, template_sizes
from mark.deployment.zones import require_zones
from mark.domain.billing.footprint import Footprint
from mark.domain.documents import json_text
from mark.domain.errors import Misconfigured
from mark.live.aws_resources import MODEL_FOLDER, function_of
from mark.live.gateway_settings import lambda_calls
from mark.live.models import LiveModel, make_live_models
from mark.live.version_bundles import VersionBundle
from mark.service_spec import ServedModel

SYNTH_S = 300
STACK = "aws:cloudformation:stack"
"""Kind of a stack in the manifest of a CDK app."""
NEEDED = 2
"""Exit status of the app where something has to be installed first; its line says what."""
UNPRIVILEGED, PORTS_TAKEN = 1024, (6379, 8000, 8001, 8080)
"""Ports of the service's machines (infra/stacks/launch.py), and the first that needs no privilege."""
COSTS_REGION = "us-east-1"
"""Region of Cost Explorer's endpoint (AWS general reference); functions in a network reach no other region."""
LEFT_OUT: Any = {
    **dict.fromkeys(("trace", "faults", "out"), True),
    "rollout": {
        **dict.fromkeys(("owner", "tags", "account", "service_role", "image", "agent_image"), True),
        **dict.fromkeys(("model_image", "bundle", "certificate", "ends_on"), True),
        "functions": {"bundles", "infer_image", "probe", "provisioned", "reserved"},
        "archive": True,
        "report": {"to", "schedule", "timezone"},
        "node": {"name", "certificate", "ami", "store_image"},
        "alarms": {"to", "max_overflow_share"},
    },
    "telemetry": {"headers_secret"},
    "service": {"serve": {"__all__": {"backend": {"folder"}}}},
}
"""Settings that processes in the account do not read: of the rollout they bill what is made of it. Folders of this
machine are not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Synthesis:
    """The stacks in order of deployment, name -> template, with the models that they serve and the bundles.

    `assembly`: what CDK's command line reads of the stacks beside their templates (the manifest of the app).
    """

    templates: Mapping[str, StackTemplate]
    bundles: tuple[Bundle, ...]
    assembly: Mapping[str, Any]
    models: tuple[LiveModel, ...]
    #: The versions with which models begin, by model.
    versions: Mapping[str, VersionBundle]
    footprint: Footprint
    spending: Spending
    sizes: tuple[TemplateSize, ...]
    #: Input of the CDK app that made the templates, JSON: `mark.infra.blueprint.read_blueprint` takes it.
    blueprint: str


def synthesise(settings: Settings) -> Synthesis:
    """All templates of the service, as `draft` has them. Misconfigured, too, where AWS would not take one."""
    made = draft(settings)
    require_room(made.sizes)
    return made


def draft(settings: Settings) -> Synthesis:
    """All templates of the service. Misconfigured where a setting, a bundle or a tool is missing."""
    check_settings(settings)
    require_zones(settings)
    models = make_live_models(settings)
    settings = limited(named := settings, models)
    bundles = find_bundles(settings, models)
    versions = first_bundles(settings, models)
    settings = _with_disks(settings, versions, models=len(models))
    footprint = footprint_of(settings, models=len(models))
    spending = spending_of(named, models, footprint)
    models = in_versions(settings, models, versions)
    blueprint = _blueprint(settings, models, bundles, spending, versions)
    with tempfile.TemporaryDirectory(prefix="mark-synth-") as folder:
        source, target = Path(folder) / "blueprint.json", Path(folder) / "out"
        written = json_text(blueprint, allow_nan=True)
        source.write_text(written, encoding="utf-8")
        _run_app(source, target)
        order: list[str] = json.loads((target / "order.json").read_text(encoding="utf-8"))
        manifest = json.loads((target / "manifest.json").read_text(encoding="utf-8"))
        files = {
            stack["properties"]["stackName"]: stack["properties"]["templateFile"]
            for stack in manifest["artifacts"].values()
            if stack["type"] == STACK
        }
        read: dict[str, StackTemplate] = {
            name: json.loads((target / files[name]).read_text(encoding="utf-8")) for name in order
        }
    return Synthesis(
        templates=read,
        bundles=bundles,
        assembly=manifest,
        models=models,
        versions=versions,
        footprint=footprint,
        spending=spending,
        sizes=template_sizes(
            read, settings.service.aws.region, settings=blueprint["processes"], files=blueprint["files"]
        ),
        blueprint=written,
    )


def _with_disks(settings: Settings, versions: Mapping[str, VersionBundle], *, models: int) -> Settings:
    """The settings with disks for the models' files. Misconfigured where one that they size is too small."""
    files_gib = [bundle.instance_bytes / BYTES_PER_GIB for bundle in versions.values()]
    require_space(settings.rollout, files_gib)
    rollout = with_disks(settings.rollout, models=models, bundles_gib=files_gib)
    return settings.model_copy(update={"rollout": rollout})


def check_settings(settings: Settings) -> None:
    """Check the settings that a template needs."""
    rollout = settings.rollout
    lean = rollout.shape == "lean"
    wanted = {"image": rollout.image}
    if lean:
        wanted |= {"node.name": rollout.node.name}
        wanted |= {} if rollout.node.self_signed else {"node.certificate": rollout.node.certificate}
    else:
        wanted |= {"certificate": rollout.certificate}
    if lean and rollout.certificate and rollout.node.name is None:
        raise Misconfigured(
            "rollout.certificate is for rollout.shape: ha, and the shape is lean, the default: write shape: ha, "
            "or node.name and node.certificate instead of certificate (docs/deploy.md has both shapes)"
        )
    for name, value in wanted.items():
        if value is None:
            raise Misconfigured(
                f"rollout.{name} is missing: write it into a mark.yaml (`mark init` writes one, docs/deploy.md "
                "says what it is for) and give the file by --config"
            )
    if lean and rollout.gateway.scheme == "internet-facing" and rollout.node.zone is None:
        raise Misconfigured("rollout.gateway.scheme internet-facing needs rollout.node.zone, a public hosted zone")
    _check_grpc_port(settings.service.grpc_port)
    mails(rollout.report)
    if settings.telemetry.headers_file is not None:
        raise Misconfigured("telemetry.headers_file is of this machine: use telemetry.headers_secret instead")
    region = settings.service.aws.region
    if rollout.report.reconcile and rollout.network.vpc is None and region != COSTS_REGION:
        raise Misconfigured(
            f"rollout.report.reconcile: Cost Explorer is reached from {COSTS_REGION} alone, not {region}; leave "
            "it out, and run `mark report --reconcile` elsewhere"
        )
    if rollout.network.egress == "ipv6" and region.startswith("cn-"):
        raise Misconfigured(f"rollout.network.egress ipv6: MArk knows no such endpoints of {region}; write public")
    if rollout.network.private and rollout.gateway.scheme == "internet-facing":
        raise Misconfigured("rollout.gateway.scheme internet-facing needs a network that is not private")


def _check_grpc_port(port: int | None) -> None:
    if port is not None and (port < UNPRIVILEGED or port in PORTS_TAKEN):
        taken = ", ".join(map(str, PORTS_TAKEN))
        raise Misconfigured(
            f"service.grpc_port {port}: in an account it is {UNPRIVILEGED} or above, and none of {taken}: "
            "the service's machines use those; 9000 would do"
        )


def _blueprint(
    settings: Settings,
    models: Sequence[LiveModel],
    bundles: tuple[Bundle, ...],
    spending: Spending,
    versions: Mapping[str, VersionBundle],
) -> dict[str, Any]:
    """infra/blueprint.py says what it holds."""
    settings = sized(settings, models=len(models))
    service, region = settings.service, settings.service.aws.region
    infer = [function_of(model.served) for model in overflowing(models)]
    offered = {item.instance_type.name for model in models for item in model.served.offerings}
    told, files = carry_files(_alike_alarms(settings), offered)
    return {
        "service": service.name,
        "region": region,
        "zones": settings.rollout.network.zones,
        "gateways": service.gateways,
        "grpc_port": service.grpc_port,
        "lambda_calls": lambda_calls(settings),
        "controllers": service.controllers,
        "gateway_machine": gateway_machine(settings).name,
        "rollout": settings.rollout.model_dump(mode="json"),
        "models": [model.name for model in models],
        "infer": [asdict(_elsewhere(function)) for function in infer],
        "trains": trains_in_function(settings),
        "monthly_usd": settings.budget.monthly_usd or rounded_up(spending.month_usd),
        "bundles": {bundle.handler: bundle.key for bundle in bundles},
        "versions": {
            model.name: {
                "version": versions[model.name].version,
                "function_versions": model.served.function_versions,
                **asdict(versions[model.name].backend),
                **_tensors(model.served),
            }
            for model in models
            if model.name in versions
        },
        "processes": told.model_dump_json(exclude_defaults=True, exclude=LEFT_OUT),
        "files": files,
        **_collector(settings.telemetry),
    }


def _tensors(served: ServedModel) -> dict[str, Any]:
    """What a controller, which cannot load a model with packages of its own, knows of it."""
    if not served.backend.packages:
        return {}
    return {"tensors": [[asdict(one) for one in group] for group in (served.inputs, served.outputs)]}


def _collector(telemetry: TelemetrySettings) -> dict[str, Any]:
    """The collector as the stacks know it; nothing where nothing is sent."""
    told = telemetry_of(telemetry)
    if told is None:
        return {}
    url = urlsplit(told.endpoint)
    port = url.port or (443 if url.scheme == "https" else 80)
    return {"collector_port": port, "collector_secret": telemetry.headers_secret or ""}


def _alike_alarms(settings: Settings) -> Settings:
    """The settings with the same alarm on spending at any threshold, and the same webhook.

    Processes bill that they are there. With their values in the settings, others would replace every gateway.
    """
    alarms, alike_values = settings.rollout.alarms, {"max_usd_per_hour": 1.0, "webhook": "webhook"}
    alike = alarms.model_copy(
        update={name: value for name, value in alike_values.items() if getattr(alarms, name) is not None}
    )
    return settings.model_copy(update={"rollout": settings.rollout.model_copy(update={"alarms": alike})})


def _elsewhere(function: LambdaSpec) -> LambdaSpec:
    """The function without folders of this machine."""
    variables = {key: value for key, value in function.environment.items() if key != MODEL_FOLDER}
    return replace(function, environment=variables)


def _run_app(source: Path, target: Path) -> None:
    """Run the CDK app; Misconfigured with its last line where it does not end well."""
    try:
        done = subprocess.run(  # noqa: S603 - our own module
            [sys.executable, "-P", "-m", "mark.infra.app", str(source), str(target)],
            capture_output=True,
            text=True,
            check=False,
            timeout=SYNTH_S,
        )
    except subprocess.TimeoutExpired as error:
        raise Misconfigured(f"the CDK app gave no templates within {SYNTH_S} s") from error
    if done.returncode == 0:
        return
    output = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    if done.returncode == NEEDED and output:
        raise Misconfigured(output[-1])
    found = _violations(target / "validation-report.json")
    raise Misconfigured(f"the CDK app failed: {'; '.join(found) or (output or ['it said nothing'])[-1]}")


def _violations(report: Path) -> list[str]:
    """Violations that cdk-nag found: rule and construct."""
    if not report.is_file():
        return []
    return [
        f"{rule['ruleName']} at {construct['constructPath']}"
        for plugin in json.loads(report.read_text(encoding="utf-8"))["pluginReports"]
        for rule in plugin.get("violations", [])
        if rule.get("severity") == "error"
        for construct in rule["violatingConstructs"]
    ]
