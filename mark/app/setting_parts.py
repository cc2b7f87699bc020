"""What every part of the settings is made of."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
PositiveInt = Annotated[int, Field(gt=0)]
NotNegativeInt = Annotated[int, Field(ge=0)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Part(BaseModel):
    """A frozen part of the tree; an unknown key is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)
