"""Bounds of integers: int64 of FX is i32 here, where it is known to be no more than that holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from wsopt.graph.extents import value_at
from wsopt.graph.types import DType, Operand, TensorType
from wsopt.torch.values import Untaken

Bounds = tuple[int, int]
"""The least and the largest that an integer may be."""

_OF_TYPE: dict[DType, Bounds] = {
    DType.I32: (-(1 << 31), (1 << 31) - 1),
    DType.I8: (-128, 127),
    DType.BOOL: (0, 1),
}
_LEAST, _MOST = _OF_TYPE[DType.I32]
_CHOOSE = ("reshape", "transpose", "slice", "concat", "gather", "cast", "maximum", "minimum")
"""Operations whose results are elements of operands."""


@dataclass(slots=True)
class Integers:
    """The bounds of tensors of integers, by name. Where what is written is `wide`, of int64 in FX, none may be
    more than i32 holds; where it is not, they wrap around there as here. `limits` are the largest that the symbols in
    extents may be.
    """

    wide: bool = False
    limits: Mapping[str, int] = field(default_factory=dict)
    _bounds: dict[str, Bounds] = field(default_factory=dict)

    def enter(
        self,
        name: str,
        op: str,
        operands: Sequence[Operand],
        types: Mapping[str, TensorType],
        result: TensorType,
    ) -> None:
        """Enter a node. Raises Untaken if its integers may be too large."""
        for one in operands:
            if isinstance(one, int) and not _LEAST <= one <= _MOST:
                raise Untaken(f"{op} of {one}, which i32 does not hold")
        if result.dtype is not DType.I32:
            return
        known = [self._of(one, types) for one in operands]
        if op == "iota":
            found: Bounds | None = 0, max((value_at(n, self.limits) for n in result.shape), default=1) - 1
        else:
            found = _bounds(op, [one for one in known if one is not None])
        fits = found is not None and found[0] >= _LEAST and found[1] <= _MOST
        if self.wide and not fits:
            raise Untaken(f"{op} of int64, which may give more than i32 holds")
        if fits and found is not None:
            self._bounds[name] = found

    def _of(self, operand: Operand, types: Mapping[str, TensorType]) -> Bounds | None:
        """The bounds of an operand; None if it is no integer."""
        if isinstance(operand, str):
            return self._bounds.get(operand, _OF_TYPE.get(types[operand].dtype))
        return None if isinstance(operand, float) else (operand, operand)


def _bounds(op: str, operands: Sequence[Bounds]) -> Bounds | None:
    """The bounds of what an operation gives, were there no end to integers; None where they are not known."""
    if not operands:
        return None
    if op == "where":
        operands = operands[1:]
    ends = [end for one in operands for end in one]
    if op in ("where", *_CHOOSE):
        return min(ends), max(ends)
    if op in ("pad", "relu"):
        return min(0, *ends), max(0, *ends)
    if op in ("neg", "abs"):
        return min(-ends[1], *ends), max(-ends[0], *ends)
    if op == "add":
        return sum(least for least, _ in operands), sum(most for _, most in operands)
    if op == "sub":
        return ends[0] - ends[3], ends[1] - ends[2]
    if op == "mul":
        products = [a * b for a in operands[0] for b in operands[1]]
        return min(products), max(products)
    return None
