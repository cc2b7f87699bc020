"""The Lambda functions: inference as an image or a zip, and the handlers, each with a role of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from aws_cdk import aws_lambda
from constructs import Construct

from infra.blueprint import Blueprint, InferSpec
from infra.roles import allow, make_role, names_of, of_function_image, of_roles
from infra.stack import ServiceStack, compact, excuse, words
from infra.stacks.network import Place
from mark.aws.functions.management import RUNTIME
from mark.aws.permissions.policies import NO_RESOURCE, Statement
from mark.aws.provision import HANDLER_TIMEOUT_S, WARM_TIMEOUT_S
from mark.aws.schedules import REPORT_MEMORY_MIB, REPORT_TIMEOUT_S

HANDLER_MEMORY_MIB = 256
NETWORK_ACTIONS = (
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:UnassignPrivateIpAddresses",
)
NETWORK_WHY = f"Lambda joins the function to the network with them (Lambda developer guide): {NO_RESOURCE}"
BATCH = 10
CALLER = "AWS_SDK_UA_APP_ID"
"""Tells AWS which role calls, as `mark.aws.provision` does: the trail then says who called what."""
LIVE = "live"
"""The alias that keeps environments provisioned."""


class FunctionsStack(ServiceStack):
    """`infer` for each model that may overflow, `interruption`, `warm`, and `report` where a report is mailed."""

    def __init__(self, scope: Construct, *, blueprint: Blueprint) -> None:
        super().__init__(scope, "functions", blueprint=blueprint, about="its Lambda functions")
        for infer in blueprint.infer:
            self._infer(f"Infer{words(infer.model)}", infer)
        self._interruption()
        self._function("Warm", "warm", self._code("warm"), timeout_s=WARM_TIMEOUT_S, memory_mib=HANDLER_MEMORY_MIB)
        if blueprint.mails:
            self._report()

    def _infer(self, id_: str, spec: InferSpec) -> None:
        image = self.blueprint.rollout.functions.infer_image
        code = (
            {"packageType": "Image", "code": {"imageUri": image}} if image else self._code("infer", spec.handler)
        )
        function = self._function(
            id_,
            "infer",
            code,
            name=spec.name,
            timeout_s=spec.timeout_s,
            memory_mib=spec.memory_mib,
            environment=spec.environment,
            more=(of_function_image(names_of(self), image),) if image else (),
        )
        warm = self.blueprint.rollout.functions.provisioned
        if warm:
            identity = compact([image or self.blueprint.bundles["infer"], asdict(spec)])
            state = hashlib.sha256(identity.encode()).hexdigest()[:8]
            # a version is a copy of what the function was: one with another name has to be made when that changes
            version = aws_lambda.CfnVersion(self, f"{id_}Version{state}", function_name=function.ref)
            aws_lambda.CfnAlias(
                self,
                f"{id_}Live",
                function_name=function.ref,
                function_version=version.attr_version,
                name=LIVE,
                provisioned_concurrency_config={"provisionedConcurrentExecutions": warm},
            )

    def _interruption(self) -> None:
        function = self._function(
            "Interruption",
            "interruption",
            self._code("interruption"),
            timeout_s=HANDLER_TIMEOUT_S,
            memory_mib=HANDLER_MEMORY_MIB,
            environment={"EVENTS_QUEUE_URL": self.imported("events-url")},
        )
        aws_lambda.CfnEventSourceMapping(
            self,
            "InterruptionReads",
            event_source_arn=self.imported("raw-arn"),
            function_name=function.ref,
            batch_size=BATCH,
            function_response_types=["ReportBatchItemFailures"],
        )

    def _report(self) -> None:
        """It reads the store, so it stands in the network."""
        mails, place = self.blueprint.rollout.report, Place(self)
        function = self._function(
            "Report",
            "report",
            self._code("report"),
            timeout_s=REPORT_TIMEOUT_S,
            memory_mib=REPORT_MEMORY_MIB,
            environment={
                "MARK_SERVICE": self.blueprint.service,
                "MARK_STORE_SECRET": self.imported("store-secret"),
                "MARK_REPORT_FROM": mails.sender or "",
                "MARK_REPORT_TO": ",".join(mails.to),
                **({"MARK_REPORT_RECONCILE": "1"} if mails.reconcile else {}),
                "MARK_REPORT_BUCKET": self.imported("bucket"),
            },
            more=(allow("Network", NETWORK_ACTIONS, ("*",), why=NETWORK_WHY),),
        )
        function.vpc_config = aws_lambda.CfnFunction.VpcConfigProperty(
            subnet_ids=place.subnets, security_group_ids=[self.imported("reports-group")]
        )
        self.publish("report-arn", function.attr_arn)

    def _code(self, handler: str, where: str = "") -> dict[str, Any]:
        return {
            "code": {"s3Bucket": self.imported("bucket"), "s3Key": self.blueprint.bundles[handler]},
            "handler": where or f"lambda_handlers.{handler}.handler",
            "runtime": RUNTIME,
        }

    def _function(
        self,
        id_: str,
        role: str,
        code: Mapping[str, Any],
        *,
        timeout_s: int,
        memory_mib: int,
        name: str = "",
        environment: Mapping[str, str] | None = None,
        more: tuple[Statement, ...] = (),
    ) -> aws_lambda.CfnFunction:
        own = (
            {"secret": self.imported("store-secret"), "bucket": self.imported("bucket")}
            if role == "report"
            else {}
        )
        may = of_roles(names_of(self, **own), role)
        taken = make_role(self, f"{id_}Role", service="lambda", may=(*may, *more))
        keys = {"packageType": "package_type", "code": "code", "handler": "handler", "runtime": "runtime"}
        function = aws_lambda.CfnFunction(
            self,
            id_,
            function_name=name or self.blueprint.name(role),
            role=taken.attr_arn,
            timeout=timeout_s,
            memory_size=memory_mib,
            environment={"variables": {CALLER: f"mark-{role}", **(environment or {})}},
            reserved_concurrent_executions=self.blueprint.rollout.functions.reserved if role == "infer" else None,
            **{keys[key]: value for key, value in code.items()},
        )
        _excuse(function, role)
        return function


ERROR_HANDLING = {
    "infer": "gateways wait for its answer and count what fails",
    "interruption": "it reads a queue, which has its dead letters",
    "report": "the alarm `reportfails` tells of each failure; tomorrow's report comes anyway",
    "warm": "who calls it waits for its answer",
}
"""Who hears of a function's failures, since none has dead letters of its own."""


def _excuse(function: aws_lambda.CfnFunction, role: str) -> None:
    excuse(
        function,
        "Lambda's own role encrypts variables, and none is a secret",
        checkov=("CKV_AWS_173",),
    )
    if role != "report":
        excuse(
            function,
            "it calls AWS alone, and a network of its own would make cold starts longer",
            checkov=("CKV_AWS_117",),
        )
    excuse(function, ERROR_HANDLING[role], checkov=("CKV_AWS_116",))
    excuse(
        function,
        "the account's concurrency is the limit, as plans assume; rollout.functions.reserved sets another",
        checkov=("CKV_AWS_115",),
    )
    excuse(
        function,
        "the libraries' wheels are those of python 3.12, and the code is tested on 3.11: nothing newer",
        nag=("AwsSolutions-L1",),
    )
