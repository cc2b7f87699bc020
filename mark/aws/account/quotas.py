"""Quotas of an account and region: vCPUs by family and market, and how many calls Lambda runs at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from mark.aws.errors import translated
from mark.aws.session import Aws
from mark.domain.offerings.offering import Market
from mark.domain.offerings.quota import P5, STANDARD, Quotas, VcpuQuota

EC2 = "ec2"
CODES: Mapping[str, tuple[str, Market]] = MappingProxyType(
    {
        "L-1216C47A": (STANDARD, Market.ON_DEMAND),
        "L-34B43A08": (STANDARD, Market.SPOT),
        "L-DB2E81BA": ("g", Market.ON_DEMAND),
        "L-3819A6DF": ("g", Market.SPOT),
        "L-417A185B": ("p", Market.ON_DEMAND),
        "L-7212CCBC": ("p", Market.SPOT),
        "L-C4BD4855": (P5, Market.SPOT),
        "L-74FC7D96": ("f", Market.ON_DEMAND),
        "L-88CF9481": ("f", Market.SPOT),
        "L-7295265B": ("x", Market.ON_DEMAND),
        "L-E3A00192": ("x", Market.SPOT),
        "L-1945791B": ("inf", Market.ON_DEMAND),
        "L-B5D1601B": ("inf", Market.SPOT),
    }
)
"""Service Quotas' code -> the family of `mark.domain.offerings.quota`, and the market."""


KEPT_UNRESERVED = 100
"""Lambda refuses a reservation that leaves fewer calls at once to the other functions (its guide, reserved
concurrency); an account that has no more may reserve none (aws-samples/one-observability-demo #278)."""


def code_of_quota(family: str, market: Market) -> str:
    """The code by which a quota is asked for in Service Quotas; empty where none is known."""
    return next((code for code, known in CODES.items() if known == (family, market)), "")


def read_quotas(aws: Aws) -> Quotas:
    """Quotas of vCPUs as the account has them now, by family and market. Errors as AWS has them."""
    found: list[VcpuQuota] = []
    with translated():
        pages = aws.quotas.get_paginator("list_service_quotas")
        for page in pages.paginate(ServiceCode=EC2, PaginationConfig={"PageSize": 100}):
            for quota in page.get("Quotas", []):
                known = CODES.get(quota.get("QuotaCode", ""))
                if known is not None and "Value" in quota:
                    found.append(VcpuQuota(family=known[0], market=known[1], vcpus=quota["Value"]))
    return tuple(sorted(found, key=lambda item: (item.family, item.market.value)))


@dataclass(frozen=True, slots=True, kw_only=True)
class LambdaConcurrency:
    """Calls that Lambda runs at once for the whole account in this region."""

    limit: int
    #: The part of it that no function has for itself.
    unreserved: int

    @property
    def kept(self) -> int:
        """The part that no function may reserve; in an account with fewer, all of them."""
        return min(KEPT_UNRESERVED, self.limit)


def lambda_concurrency(aws: Aws) -> LambdaConcurrency:
    """Lambda's concurrency as the account has it now. Errors as AWS has them."""
    with translated():
        found = aws.lambda_.get_account_settings()["AccountLimit"]
    return LambdaConcurrency(
        limit=found["ConcurrentExecutions"], unreserved=found["UnreservedConcurrentExecutions"]
    )
