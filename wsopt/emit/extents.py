"""What the launcher says of a tensor's dimensions: outputs' extents, and axes that are parts of a dimension."""

from __future__ import annotations

from wsopt.tile.types import Output, Share, View


def extent_texts(output: Output) -> tuple[str, ...]:
    """Every extent of an output as an expression of the inputs' extents at run time."""
    return tuple(_extent(dim) for dim in output.shape)


def _extent(dim: tuple[str, int] | tuple[Share | int, ...] | int) -> str:
    if isinstance(dim, int):
        return str(dim)
    match dim:
        case (str(tensor), int(place)):
            return f'tensors["{tensor}"].shape[{place}]'
        case _:
            return " * ".join(_factor(one) for one in dim if not isinstance(one, str))


def _factor(one: Share | int) -> str:
    if isinstance(one, int):
        return str(one)
    extent = f'tensors["{one.tensor}"].shape[{one.dim}]'
    return extent if one.divisor == 1 else f"({extent} // {one.divisor})"


def parts_text(view: View) -> str:
    """The (take, step) of every axis that is only a part of a dimension, by the axis's place; empty for none."""
    parts = {place: part for place, part in enumerate(view.parts) if part != (0, 1)}
    return repr(parts) if parts else ""
