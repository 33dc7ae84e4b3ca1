"""What the launcher says of a tensor's dimensions: outputs' extents, and axes that are parts of a dimension."""

from __future__ import annotations

from wsopt.emit.integers import PYTHON, Extent, Integer, floor_divide, multiply, text
from wsopt.frontend.types import Output, Share, View


def output_extents(output: Output) -> tuple[Integer, ...]:
    """Every extent of an output as an expression of the inputs' extents at run time."""
    return tuple(_extent(dim) for dim in output.shape)


def extent_texts(output: Output) -> tuple[str, ...]:
    """The same as Python text."""
    return tuple(text(extent, PYTHON) for extent in output_extents(output))


def _extent(dim: tuple[str, int] | tuple[Share | int, ...] | int) -> Integer:
    if isinstance(dim, int):
        return dim
    match dim:
        case (str(tensor), int(place)):
            return Extent(tensor, place)
        case _:
            return multiply(*(_factor(one) for one in dim if not isinstance(one, str)))


def _factor(one: Share | int) -> Integer:
    return one if isinstance(one, int) else floor_divide(Extent(one.tensor, one.dim), one.divisor)


def parts_text(view: View) -> str:
    """The (take, step) of every axis that is only a part of a dimension, by the axis's place; empty for none."""
    parts = {place: part for place, part in enumerate(view.parts) if part != (0, 1)}
    return repr(parts) if parts else ""
