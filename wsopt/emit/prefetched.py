"""Vectors and scalars of a product's epilogue, loaded by address under the first products of a tile.

What varies along the accumulator's rows, or along neither side, stays in registers. What varies along its columns
is loaded once by all threads together, a column or two each, and goes through shared memory: there each subtile
finds its columns, which every thread that has a part of them reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from wsopt.emit.addresses import ByAddress
from wsopt.emit.channels import Buffer
from wsopt.emit.tensors import GLUON, zero
from wsopt.machine.types import Machine
from wsopt.program.types import Structure, column_role, row_role
from wsopt.tensors.views import Role, Source

ROWS = "row + gl.arange(0, CONSUMER_ROWS, layout=gl.SliceLayout(1, SUBTILE_LAYOUT))"
COLUMNS = "column + gl.arange(0, TILE_COLUMNS, layout=COLUMNS_LAYOUT)"


@dataclass(frozen=True, slots=True)
class Prefetched:
    """A vector or scalar that a consumer has from the start of a tile's loop to its epilogue."""

    vector: ByAddress[Source]
    structure: Structure

    @property
    def name(self) -> str:
        """Name of the epilogue's argument: values, or along the columns a buffer in shared memory."""
        return f"{self.vector.name}_prefetched"

    @property
    def along_columns(self) -> bool:
        """Whether it varies along the accumulator's columns."""
        return column_role(self.structure.swap) in self.vector.of.spans

    @property
    def along_rows(self) -> bool:
        """Whether it varies along the accumulator's rows."""
        return row_role(self.structure.swap) in self.vector.of.spans

    @property
    def loaded(self) -> str:
        """Its name in registers before the epilogue."""
        return f"{self.vector.name}_loaded" if self.along_columns else self.name

    def load(self, places: Mapping[Role, str]) -> str:
        """The line that loads it; nothing is computed with it, so that nothing waits for it."""
        side = "columns < column_extent" if self.along_columns else "rows < row_extent"
        other = zero(self.vector.of.view.dtype)
        mask = f", mask={side}, other={other}" if self.along_columns or self.along_rows else ""
        return f"{self.loaded} = gl.load({self.vector.at(places)}{mask})"

    @property
    def value(self) -> str:
        """Its values in the epilogue of the subtile numbered `subtile`."""
        if not self.along_columns:
            return self.name
        part = f"{self.name}.slice(subtile * SUBTILE_COLUMNS, SUBTILE_COLUMNS)"
        return f"{part}.load(gl.SliceLayout(0, SUBTILE_LAYOUT))"

    @property
    def buffer(self) -> Buffer:
        """The shared memory that it goes through."""
        return Buffer(self.name, GLUON[self.vector.of.view.dtype], ("TILE_COLUMNS",), "PREFETCHED_LAYOUT")


def load_lines(prefetched: Iterable[Prefetched], places: Mapping[Role, str]) -> list[str]:
    """The loads of a tile, with the places of its rows and columns where they are used."""
    every = tuple(prefetched)
    lines = [f"rows = {ROWS}"] if any(one.along_rows for one in every) else []
    lines += [f"columns = {COLUMNS}"] if any(one.along_columns for one in every) else []
    return lines + [one.load(places) for one in every]


def store_lines(prefetched: Iterable[Prefetched]) -> list[str]:
    """Lines that write vectors to shared memory after the loop."""
    return [f"{one.name}.store({one.loaded})" for one in prefetched if one.along_columns]


def layout_constants(s: Structure, machine: Machine) -> list[tuple[str, str, str]]:
    """Constants of the columns' layout in registers while they are loaded, and in shared memory."""
    each = max(1, s.columns // (s.consumer_warps * machine.threads_per_warp))
    blocked = f"gl.BlockedLayout([{each}], [{machine.threads_per_warp}], [{s.consumer_warps}], [0])"
    return [
        ("COLUMNS_LAYOUT", blocked, "how columns are loaded"),
        ("PREFETCHED_LAYOUT", "gl.SwizzledSharedLayout(1, 1, 1, order=[0])", ""),
    ]
