"""What every schema shares: strict types, unknown keys forbidden, frozen once loaded."""

from typing import Annotated, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

T = TypeVar("T")

# A YAML list, kept as a tuple so that a loaded parameter can't be changed by accident.
Items = Annotated[
    tuple[T, ...], BeforeValidator(lambda found: tuple(found) if isinstance(found, list) else found)
]
Text = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(gt=0)]
Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(gt=0, le=1)]


class Strict(BaseModel):
    """Base of all schemas: no unknown key, no silent conversion, no NaN, no change after loading."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, populate_by_name=True
    )
