"""Archive that outlives the service: its bucket and its logs. It costs nothing while empty."""

from __future__ import annotations

from typing import Any

from aws_cdk import CfnDeletionPolicy, aws_logs, aws_s3
from constructs import Construct

from mark.aws.names import HANDLERS, TRAIN
from mark.aws.resources import ExpirySpec, called_as
from mark.infra.blueprint import Blueprint
from mark.infra.stack import ServiceStack, document, excuse, words

LOGS = ("agent", "controller", "gateway")


class ArchiveStack(ServiceStack):
    """The bucket (lambda/, artifacts/, journal/, reports/, training/), a log group a process and a function."""

    def __init__(self, scope: Construct, *, blueprint: Blueprint) -> None:
        super().__init__(scope, "archive", blueprint=blueprint, about="bucket and logs, which outlive it")
        self._bucket()
        for process in LOGS:
            self._log(f"{process.capitalize()}Log", blueprint.log(process))
        for handler in (*HANDLERS, *((TRAIN,) if blueprint.trains else ())):
            self._log(f"{handler.capitalize()}Log", f"/aws/lambda/{blueprint.name(handler)}")
        if blueprint.rollout.shape == "ha":  # else Container Insights makes it, without an end or a tag
            self._log("InsightsLog", f"/aws/ecs/containerinsights/{blueprint.name('control')}/performance")
        for infer in blueprint.infer:
            for end, name in zip(("", "Second"), called_as(infer), strict=False):
                self._log(f"InferLog{words(infer.model)}{end}", f"/aws/lambda/{name}")

    def _bucket(self) -> None:
        bucket = aws_s3.CfnBucket(
            self,
            "Bucket",
            bucket_encryption={
                "serverSideEncryptionConfiguration": [
                    {"serverSideEncryptionByDefault": {"sseAlgorithm": "AES256"}, "bucketKeyEnabled": False}
                ]
            },
            lifecycle_configuration={
                "rules": [_lifecycle_rule(expiry) for expiry in self.blueprint.resources.expiries]
            },
            ownership_controls={"rules": [{"objectOwnership": "BucketOwnerEnforced"}]},
            public_access_block_configuration={
                "blockPublicAcls": True,
                "blockPublicPolicy": True,
                "ignorePublicAcls": True,
                "restrictPublicBuckets": True,
            },
            versioning_configuration={"status": "Enabled"},
        )
        _goes_with_the_stack(bucket)
        excuse(
            bucket,
            "only the service's roles read it, and an access log would be a second bucket to keep",
            nag=("AwsSolutions-S1",),
            checkov=("CKV_AWS_18",),
        )
        self._policy(bucket)
        self.publish("bucket", bucket.ref)

    def _policy(self, bucket: aws_s3.CfnBucket) -> None:
        """Nobody reads or writes in the clear."""
        aws_s3.CfnBucketPolicy(
            self,
            "BucketPolicy",
            bucket=bucket.ref,
            policy_document=document(
                {
                    "Sid": "EncryptedOnTheWay",
                    "Effect": "Deny",
                    "Principal": "*",
                    "Action": "s3:*",
                    "Resource": [bucket.attr_arn, f"{bucket.attr_arn}/*"],
                    "Condition": {"Bool": {"aws:SecureTransport": "false"}},
                }
            ),
        )

    def _log(self, id_: str, name: str) -> None:
        group = aws_logs.CfnLogGroup(
            self, id_, log_group_name=name, retention_in_days=self.blueprint.rollout.keep_logs_days
        )
        _goes_with_the_stack(group)
        excuse(
            group,
            "CloudWatch encrypts logs by itself, and no request's content is logged: a key would cost for nothing",
            checkov=("CKV_AWS_158",),
        )
        if self.blueprint.rollout.keep_logs_days < 365:
            excuse(group, "rollout.keep_logs_days says so", checkov=("CKV_AWS_338",))


def _lifecycle_rule(expiry: ExpirySpec) -> dict[str, Any]:
    old, uploads = expiry.old_versions_days, expiry.uploads_days
    days = {
        "expirationInDays": expiry.objects_days,
        "noncurrentVersionExpiration": old and {"noncurrentDays": old},
        "abortIncompleteMultipartUpload": uploads and {"daysAfterInitiation": uploads},
    }
    return {
        "id": expiry.name,
        "status": "Enabled",
        **({"prefix": expiry.prefix} if expiry.prefix else {}),
        **{name: value for name, value in days.items() if value is not None},
    }


def _goes_with_the_stack(resource: aws_s3.CfnBucket | aws_logs.CfnLogGroup) -> None:
    """The stack is what stays: once it is removed, or its making fails, nothing is in the way of the next one.

    A log group that is there could not be made again. S3 itself refuses to remove a bucket that is not empty.
    """
    resource.cfn_options.deletion_policy = CfnDeletionPolicy.DELETE
    resource.cfn_options.update_replace_policy = CfnDeletionPolicy.RETAIN
