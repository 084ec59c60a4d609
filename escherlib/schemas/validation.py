"""Schema of parameters/validation.yaml: how far a figure of ours may lie from an external validator's.

Percentages are of the validator's figure: (ours − theirs) ÷ theirs.
"""

from typing import Literal

from pydantic import Field, model_validator

from escherlib.schemas.base import Count, Items, Positive, Strict, Text


class Tolerance(Strict):
    """One group of metrics.

    sizes: `same` compares equal sizes only; `plateau` compares what each reaches at its own size. judged_from_bytes:
    smaller sizes are shown, not judged. reasons: what is known to make the two differ, told beside a miss.
    """

    metrics: Items[Text]
    below_pct: Positive
    above_pct: Positive
    sizes: Literal["same", "plateau"]
    judged_from_bytes: Count | None = None
    reasons: Items[Text] = ()


class Validation(Strict):
    """The whole file."""

    tolerances: dict[Text, Tolerance] = Field(min_length=1)

    @model_validator(mode="after")
    def _each_metric_once(self):
        named = [metric for group in self.tolerances.values() for metric in group.metrics]
        twice = sorted({metric for metric in named if named.count(metric) > 1})
        if twice:
            raise ValueError(f"{', '.join(twice)} stands in more than one group; expected one")
        return self

    def of(self, metric):
        """The Tolerance of a metric, or None."""
        return next((group for group in self.tolerances.values() if metric in group.metrics), None)
