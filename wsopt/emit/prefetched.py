"""Vectors and scalars of a product's epilogue, loaded by address under the first products of a tile.

What varies along the accumulator's rows, or along neither side, stays in registers. What varies along its columns
is loaded once by all threads together, a column or two each, and goes through shared memory: there each subtile
finds its columns, which every thread that has a part of them reads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from wsopt.emit import pairs
from wsopt.emit.addresses import ByAddress
from wsopt.emit.tensors import zero
from wsopt.machine.types import Machine
from wsopt.program.types import Structure
from wsopt.tensors.views import Role, Source

ROWS = "row + gl.arange(0, CONSUMER_ROWS, layout=gl.SliceLayout(1, SUBTILE_LAYOUT))"


@dataclass(frozen=True, slots=True)
class Prefetched:
    """A vector or scalar that a consumer has from the start of a tile's loop to its epilogue, and whether it varies
    along the accumulator's rows or columns.
    """

    vector: ByAddress[Source]
    along_rows: bool
    along_columns: bool

    @property
    def name(self) -> str:
        """Name of the epilogue's argument: values, or along the columns a buffer in shared memory."""
        return f"{self.vector.name}_prefetched"

    @property
    def loaded(self) -> str:
        """Its name in registers before the epilogue."""
        return f"{self.vector.name}_loaded" if self.along_columns else self.name


def load_lines(prefetched: Collection[Prefetched], places: Mapping[Role, str], s: Structure) -> list[str]:
    """The loads of a tile, with the places of its rows and columns where they are used. Nothing is computed with what
    is loaded, so that nothing waits for it.
    """
    lines = [f"rows = {ROWS}"] if any(one.along_rows for one in prefetched) else []
    columns = f"column + gl.arange(0, {vector_columns(s)}, layout=COLUMNS_LAYOUT)"
    lines += [f"columns = {columns}"] if any(one.along_columns for one in prefetched) else []
    for one in prefetched:
        side = "columns < column_extent" if one.along_columns else "rows < row_extent"
        mask = f", mask={side}, other={zero(one.vector.of.view.dtype)}"
        masked = mask if one.along_columns or one.along_rows else ""
        lines.append(f"{one.loaded} = gl.load({one.vector.at(places)}{masked})")
    return lines


def store_lines(prefetched: Iterable[Prefetched]) -> list[str]:
    """Lines that write vectors to shared memory after the loop."""
    return [f"{one.name}.store({one.loaded})" for one in prefetched if one.along_columns]


def vector_columns(s: Structure) -> str:
    """Elements of a vector along the columns as the text says them."""
    return "TILE_COLUMNS" if s.vector_columns == s.columns else str(s.vector_columns)


def layout_constants(s: Structure, machine: Machine) -> list[tuple[str, str, str]]:
    """Constants of the columns' layout in registers while they are loaded, and in shared memory."""
    each = max(1, s.vector_columns // (s.consumer_warps * machine.threads_per_warp))
    both = pairs.across(s, [0])
    blocked = f"gl.BlockedLayout([{each}], [{machine.threads_per_warp}], [{s.consumer_warps}], [0]{both})"
    return [
        ("COLUMNS_LAYOUT", blocked, "how columns are loaded"),
        ("PREFETCHED_LAYOUT", f"gl.SwizzledSharedLayout(1, 1, 1, order=[0]{both})", ""),
    ]
