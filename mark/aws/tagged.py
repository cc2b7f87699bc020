"""Everything in the region that bears a service's tag, whichever service of AWS has it."""

from __future__ import annotations

from mark.aws.ec2.tags import SERVICE
from mark.aws.errors import translated
from mark.aws.session import Aws


def tagged_resources(aws: Aws, service: str) -> tuple[str, ...]:
    """ARNs with the service's tag, sorted; the MarkError where AWS does not tell.

    The list is late: what was removed stays in it for a while, instances for about an hour. IAM's roles and the
    resources of other regions are not in it (Resource Groups Tagging API, GetResources).
    """
    with translated():
        pages = aws.tagging.get_paginator("get_resources").paginate(
            TagFilters=[{"Key": SERVICE, "Values": [service]}]
        )
        return tuple(sorted(one["ResourceARN"] for page in pages for one in page["ResourceTagMappingList"]))
