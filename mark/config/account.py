"""Settings of the AWS account that a service runs in."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from mark.config.parts import Part, Share


class AccountSettings(Part):
    """Commitments that the account has already (docs/saving.md)."""

    commitments: Path | None = Field(
        None,
        description="File of the Savings Plans and Reserved Instances that the account has; where this is left "
        "out, a service in AWS reads them of the account.",
    )
    read_commitments: bool = Field(
        True, description="Whether a service in AWS reads them of the account once a day."
    )
    share: Share = Field(
        1.0, description="Share of what is read of the account that this service may count; a file says its own."
    )
