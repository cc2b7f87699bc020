"""Input of the stacks: the settings, the inference functions, and where the handlers' bundles are.

`mark synth` writes it as JSON and runs the app with it, so `mark` needs no CDK and the app no planner.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any

from mark.aws.names import name_of
from mark.aws.resources import LambdaSpec, Resources, StoreVariable, describe, mails
from mark.config.rollout import MachineSettings, RolloutSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """All that the stacks say.

    `models` are all that are served, `infer` the functions of those that overflow. `trains`: whether a function
    trains forecasters. `zones` are the settings', or the region's first two. `grpc_port`: where clients reach
    gateways by gRPC, None for nowhere. `lambda_calls`: how many calls of Lambda one gateway may have at once.
    `gateway_machine`: name of the kind that gateways and controllers run on.
    `monthly_usd`: what the service may cost in a month, as AWS's own budget has it. `bundles`: handler -> key in
    the service's bucket. `versions`: model -> the version with which it begins, and its backend, as
    `mark/live/processes/cloud_controller.py` reads them. `processes`: the settings as controllers read them, JSON;
    `files`: files that these name, as `mark.config.carried` packs them, empty where they name none.
    """

    service: str
    region: str
    zones: tuple[str, ...]
    gateways: int
    grpc_port: int | None
    lambda_calls: int
    controllers: int
    gateway_machine: str
    rollout: RolloutSettings
    models: tuple[str, ...]
    infer: tuple[LambdaSpec, ...]
    trains: bool
    monthly_usd: float
    bundles: Mapping[str, str]
    versions: Mapping[str, Mapping[str, Any]]
    processes: str
    files: str
    #: where spans and metrics are sent: port of the collector, and the secret (ARN) with its headers
    collector_port: int | None = None
    collector_secret: str = ""

    def name(self, part: str) -> str:
        """`mark-SERVICE-PART`."""
        return name_of(self.service, part)

    def log(self, process: str) -> str:
        """The log group of a process of the service."""
        return f"/mark/{self.service}/{process}"

    @property
    def resources(self) -> Resources:
        """Resources that the service has on the emulated AWS too."""
        store: StoreVariable = "MARK_REPORT_TABLE" if self.lean else "MARK_STORE_SECRET"
        return describe(self.service, self.rollout, self.infer, store=store, trains=self.trains)

    @property
    def lean(self) -> bool:
        """True for the lean shape: nodes instead of gateways, controllers and ElastiCache."""
        return self.rollout.shape == "lean"

    @property
    def settings_variables(self) -> dict[str, str]:
        """Variables from which controllers read the settings (mark/live/processes/cloud_controller.py)."""
        return {"MARK_SETTINGS": self.processes, **({"MARK_FILES": self.files} if self.files else {})}

    @property
    def gateway_variables(self) -> dict[str, str]:
        """Variables from which a gateway starts (mark/live/processes/cloud_gateway.py)."""
        settings = hashlib.sha256((self.processes + self.files).encode()).hexdigest()
        return {
            "MARK_SERVICE": self.service,
            "MARK_LAMBDA_CALLS": str(self.lambda_calls),
            **({"MARK_GRPC_PORT": str(self.grpc_port)} if self.grpc_port else {}),
            # Nobody reads it: other settings replace the gateways, which read the service's spec when they start
            "MARK_SETTINGS_SHA256": settings,
        }

    @property
    def collector_secrets(self) -> dict[str, str]:
        """Variable of gateways that holds the collector's headers -> its secret."""
        return {"MARK_OTLP_HEADERS": self.collector_secret} if self.collector_secret else {}

    @property
    def mails(self) -> bool:
        """True where a report is mailed."""
        return mails(self.rollout.report)

    @property
    def posts(self) -> bool:
        """True where alarms are posted to a webhook."""
        return self.rollout.alarms.webhook is not None

    @property
    def subnet_cidrs(self) -> tuple[str, ...]:
        """Addresses of each zone's subnet, where the network is our own: sixteenths of it."""
        parts = list(ip_network(self.rollout.network.cidr).subnets(prefixlen_diff=4))
        return tuple(str(part) for part in parts[: len(self.zones)])

    @property
    def machine(self) -> MachineSettings:
        """The kind that gateways and controllers run on."""
        return next(one for one in self.rollout.machine_kinds if one.name == self.gateway_machine)

    @property
    def image(self) -> str:
        """The image of gateways, and of all processes that have none of their own."""
        assert self.rollout.image, "checked before the app runs"
        return self.rollout.image

    @property
    def agent_image(self) -> str:
        """The image of agents."""
        return self.rollout.agent_image or self.image


def read_blueprint(text: str) -> Blueprint:
    """The blueprint that `mark synth` wrote."""
    raw: dict[str, Any] = json.loads(text)
    return Blueprint(
        **{
            **raw,
            "zones": tuple(raw["zones"]),
            "models": tuple(raw["models"]),
            "rollout": RolloutSettings.model_validate(raw["rollout"]),
            "infer": tuple(LambdaSpec(**one) for one in raw["infer"]),
        }
    )
