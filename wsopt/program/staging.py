"""Tiles of an epilogue that are alike in shared memory, so that one can be staged where another was read."""

from __future__ import annotations

from wsopt.graph.types import DType
from wsopt.program.program import Epilogue
from wsopt.program.types import Structure
from wsopt.tensors.views import Role, View

Kind = tuple[DType, tuple[Role, ...]]
"""What makes subtiles of two tensors alike: element type and order of axes, and so box, layout and bytes."""


def kind(view: View) -> Kind:
    """The kind of a tensor's subtiles."""
    return view.dtype, view.roles


def output_kinds(after: Epilogue) -> tuple[tuple[str, Kind], ...]:
    """Name and kind of each output that is stored by tiles, in the order in which a subtile stores them."""
    return tuple((output.name, kind(output.view)) for output in after.tile_outputs)


def input_kinds(after: Epilogue) -> tuple[tuple[str, Kind], ...]:
    """Name and kind of each full tile that the epilogue reads."""
    return tuple((source.name, kind(source.view)) for source in after.full)


def kind_bytes(one: Kind, s: Structure) -> int:
    """Bytes of a subtile of this kind."""
    return s.rows * s.subtile_columns * one[0].bits // 8


def staged_bytes(after: Epilogue, s: Structure) -> int:
    """Bytes of one staging buffer: a subtile of every kind that the outputs have."""
    return sum(kind_bytes(one, s) for one in {one for _, one in output_kinds(after)})


def lent_bytes(after: Epilogue, s: Structure) -> int:
    """Bytes of it that are of kinds for which the full inputs' buffers would do."""
    lent = {one for _, one in output_kinds(after)} & {one for _, one in input_kinds(after)}
    return sum(kind_bytes(one, s) for one in lent)
