"""The Lambda functions: inference as an image or a zip, and the handlers, each with a role of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from aws_cdk import aws_ec2, aws_lambda, aws_sqs
from constructs import Construct

from mark.aws.names import LEASE, ORPHANS, UNPOSTED_QUEUE, role_name
from mark.aws.permissions.policies import NO_RESOURCE, Statement
from mark.aws.resources import KEEP_DEAD_S, RUNTIME, TRAIN_TIMEOUT_S, Deferred, LambdaSpec, queue_policy
from mark.infra.blueprint import Blueprint
from mark.infra.roles import LIVE, allow, make_role, names_of, of_function_image, of_roles
from mark.infra.schedules import make_schedule
from mark.infra.stack import ServiceStack, compact, excuse, words
from mark.infra.stacks.launch import HTTPS
from mark.infra.stacks.network import Place

NETWORK_ACTIONS = (
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:UnassignPrivateIpAddresses",
)
NETWORK_WHY = f"Lambda joins the function to the network with them (Lambda developer guide): {NO_RESOURCE}"


class FunctionsStack(ServiceStack):
    """One `infer` for each model that may overflow, two where it has versions, and the handlers that are used."""

    def __init__(self, scope: Construct, *, blueprint: Blueprint) -> None:
        super().__init__(scope, "functions", blueprint=blueprint, about="its Lambda functions")
        for function in blueprint.resources.functions:
            match function.role:
                case "infer":
                    self._infer(f"Infer{words(function.model)}{'Second' * function.is_second}", function)
                case "interruption":
                    self._interruption(function)
                case "orphans":
                    self._orphans(function)
                case "probe":
                    self._probe(function)
                case "report":
                    self._report(function)
                case "train":
                    self._train(function)
                case "webhook":
                    self._webhook(function)
                case other:
                    self._function(words(other), function, self._code(function))

    def _infer(self, id_: str, spec: LambdaSpec) -> None:
        image = self.blueprint.rollout.functions.infer_image
        code = {"packageType": "Image", "code": {"imageUri": image}} if image else self._code(spec)
        more = (of_function_image(names_of(self), image),) if image else ()
        function = self._function(id_, spec, code, more=more)
        warm = self.blueprint.rollout.functions.provisioned
        if warm:
            identity = compact([image or self.blueprint.bundles["infer"], _identity(spec)])
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

    def _train(self, spec: LambdaSpec) -> None:
        """In an image of its own, which costs nothing while nobody trains."""
        image = self.blueprint.rollout.training_image
        assert image is not None, "no function trains without it"
        code = {"packageType": "Image", "code": {"imageUri": image}, "imageConfig": {"command": [spec.handler]}}
        function = self._function("Train", spec, code, more=(of_function_image(names_of(self), image),))
        aws_lambda.CfnEventInvokeConfig(  # one that ran out of time or memory would again, at the same price
            self,
            "TrainOnce",
            function_name=function.ref,
            qualifier="$LATEST",
            maximum_retry_attempts=0,
            maximum_event_age_in_seconds=TRAIN_TIMEOUT_S,
        )

    def _interruption(self, spec: LambdaSpec) -> None:
        function, reader = self._function("Interruption", spec, self._code(spec)), self.blueprint.resources.reader
        aws_lambda.CfnEventSourceMapping(
            self,
            "InterruptionReads",
            event_source_arn=self.imported("raw-arn"),
            function_name=function.ref,
            batch_size=reader.batch,
            function_response_types=list(reader.answers),
        )

    def _orphans(self, spec: LambdaSpec) -> None:
        """Its schedule stands beside it: both work where all else is gone."""
        self._function("Orphans", spec, self._code(spec))
        arn = names_of(self).arn("lambda", f"function:{spec.name}")
        schedule = self.blueprint.resources.schedule(ORPHANS)
        make_schedule(self, "OrphansSchedule", schedule, arn, role="orphans-schedule")

    def _probe(self, spec: LambdaSpec) -> None:
        """It stands in the network, and reaches nothing but what answers HTTPS there."""
        place = Place(self)
        group = aws_ec2.CfnSecurityGroup(
            self,
            "ProbeGroup",
            group_description=f"MArk {self.blueprint.service}: the function of mark try",
            vpc_id=place.vpc,
            security_group_egress=[
                {
                    "ipProtocol": "tcp",
                    "fromPort": HTTPS,
                    "toPort": HTTPS,
                    "cidrIp": place.cidr,
                    "description": "the service",
                }
            ],
        )
        reach = allow("Network", NETWORK_ACTIONS, ("*",), why=NETWORK_WHY)
        function = self._function("Probe", spec, self._code(spec), more=(reach,))
        function.vpc_config = aws_lambda.CfnFunction.VpcConfigProperty(
            subnet_ids=place.subnets, security_group_ids=[group.attr_group_id]
        )
        gateway = self.blueprint.rollout.gateway
        if gateway.scheme == "internal" and gateway.clients:  # they may leave the network's own range out
            aws_ec2.CfnSecurityGroupIngress(
                self,
                "ProbeToService",
                group_id=self.imported("nodes-group" if self.blueprint.lean else "balancer-group"),
                source_security_group_id=group.attr_group_id,
                ip_protocol="tcp",
                from_port=HTTPS,
                to_port=HTTPS,
                description="the function of mark try",
            )

    def _report(self, spec: LambdaSpec) -> None:
        """It reads the store, so it stands in the network; a snapshot of it in the lean shape, so it does not."""
        if self.blueprint.lean:
            self.publish("report-arn", self._function("Report", spec, self._code(spec)).attr_arn)
            return
        place = Place(self)
        reach = allow("Network", NETWORK_ACTIONS, ("*",), why=NETWORK_WHY)
        function = self._function("Report", spec, self._code(spec), more=(reach,))
        function.vpc_config = aws_lambda.CfnFunction.VpcConfigProperty(
            subnet_ids=place.subnets, security_group_ids=[self.imported("reports-group")]
        )
        self.publish("report-arn", function.attr_arn)

    def _webhook(self, spec: LambdaSpec) -> None:
        """In no network: it reaches the internet. What Lambda's own retries could not post goes into a queue."""
        queue = aws_sqs.CfnQueue(
            self,
            "Unposted",
            queue_name=self.blueprint.name(UNPOSTED_QUEUE),
            message_retention_period=KEEP_DEAD_S,
            sqs_managed_sse_enabled=True,
        )
        excuse(queue, "SQS's own key encrypts it; one of KMS is billed by the call", checkov=("CKV_AWS_27",))
        excuse(queue, "it is the end of the way", nag=("AwsSolutions-SQS3",))
        aws_sqs.CfnQueuePolicy(
            self, "UnpostedPolicy", queues=[queue.ref], policy_document=queue_policy(queue.attr_arn)
        )
        function = self._function("Webhook", spec, self._code(spec))
        function.dead_letter_config = aws_lambda.CfnFunction.DeadLetterConfigProperty(target_arn=queue.attr_arn)
        self.publish("webhook-arn", function.attr_arn)

    def _code(self, spec: LambdaSpec) -> dict[str, Any]:
        return {
            "code": {"s3Bucket": self.imported("bucket"), "s3Key": self.blueprint.bundles[spec.role]},
            "handler": spec.handler,
            "runtime": RUNTIME,
        }

    def _function(
        self, id_: str, spec: LambdaSpec, code: Mapping[str, Any], *, more: tuple[Statement, ...] = ()
    ) -> aws_lambda.CfnFunction:
        blueprint = self.blueprint
        known = {
            Deferred.BUCKET: self.imported("bucket"),
            Deferred.EVENTS_URL: self.imported("events-url"),
            Deferred.STORE: blueprint.name(LEASE) if blueprint.lean else self.imported("report-secret"),
        }
        reports, lean = spec.role == "report", blueprint.lean
        has_bucket = reports or spec.has_versions or spec.role in ("train", ORPHANS)
        own = {"bucket": known[Deferred.BUCKET]} if has_bucket else {}
        own |= {"secret": known[Deferred.STORE]} if reports and not lean else {}
        may = of_roles(names_of(self, **own), "snapshot-report" if reports and lean else spec.role)
        taken = make_role(self, f"{id_}Role", service="lambda", may=(*may, *more), name=role_name(spec.name))
        keys = {
            "packageType": "package_type",
            "code": "code",
            "handler": "handler",
            "imageConfig": "image_config",
            "runtime": "runtime",
        }
        most = blueprint.rollout.functions.reserved if spec.role == "infer" else None
        function = aws_lambda.CfnFunction(
            self,
            id_,
            function_name=spec.name,
            role=taken.attr_arn,
            timeout=spec.timeout_s,
            memory_size=spec.memory_mib,
            environment={"variables": spec.variables(known)},
            reserved_concurrent_executions=most,
            **{keys[key]: value for key, value in code.items()},
        )
        _excuse(function, spec.role, alone=spec.role != "probe" and (lean or not reports))
        return function


def _identity(spec: LambdaSpec) -> dict[str, Any]:
    """All of a function that a version of it is a copy of."""
    return {
        "model": spec.model,
        "name": spec.name,
        "handler": spec.handler,
        "memory_mib": spec.memory_mib,
        "timeout_s": spec.timeout_s,
        "environment": spec.environment,
    }


ERROR_HANDLING = {
    "infer": "gateways wait for its answer and count what fails",
    "interruption": "it reads a queue, which has its dead letters",
    "orphans": "the topic of the alarms hears of each failure; it looks again an hour later",
    "probe": "`mark try` waits for its answer and shows what failed",
    "report": "the alarm `reportfails` tells of each failure; tomorrow's report comes anyway",
    "train": "the controller that ordered it says that no result came, and goes on with what it has",
    "warm": "who calls it waits for its answer",
    "webhook": "it has dead letters, and the alarm `webhookfails` on them",
}
"""Who hears of a function's failures, since none has dead letters of its own."""


def _excuse(function: aws_lambda.CfnFunction, role: str, *, alone: bool) -> None:
    """alone: in no network."""
    excuse(
        function,
        "Lambda's own role encrypts variables, and none is a secret",
        checkov=("CKV_AWS_173",),
    )
    if alone:
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
