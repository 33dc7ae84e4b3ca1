"""The scalar primitives that kernels compute with: one record each, from which every room reads its part."""

from wsopt.primitives.table import PRIMITIVES, FromTable, added, comparison_of, family_of
from wsopt.primitives.types import NAN_RULE, Comparison, Family, Implementation, Primitive

__all__ = [
    "NAN_RULE",
    "PRIMITIVES",
    "Comparison",
    "Family",
    "FromTable",
    "Implementation",
    "Primitive",
    "added",
    "comparison_of",
    "family_of",
]
