"""Judgement: roofs read from records, criteria held against them, and the scorecard with its verdict."""

from escherlib.judge.criteria import Criterion
from escherlib.judge.roofs import Roof, Roofs, read_roofs

__all__ = ["Criterion", "Roof", "Roofs", "read_roofs"]
