"""Facts of a region that are in the text of each of its kernels, whatever the kernel's structure."""

from __future__ import annotations

from dataclasses import dataclass

from wsopt.frontend.types import Region
from wsopt.tensors.statements import takes_row
from wsopt.tensors.views import Role, View


@dataclass(frozen=True, slots=True)
class Fixed:
    """The length of rows that are reduced, 0 if none are, and how tensors lie along the region's axes: `tiles`, which
    TMA moves where it can, and `others`, which are read and stored by address.
    """

    row: int
    tiles: tuple[View, ...]
    others: tuple[View, ...]


def fixed_of(region: Region) -> Fixed:
    """What is fixed of a region."""
    reduces = any(map(takes_row, (*region.statements, *region.running)))
    tiles = [*region.streams, *region.stationary_operands, *(one.view for one in region.full_sources)]
    tiles += [one.view for one in region.outputs if one.has_columns]
    every = [one.view for one in region.sources] + [one.view for one in region.outputs]
    others = [view for view in every if view not in tiles]
    return Fixed(region.extent(Role.COLUMN) if reduces else 0, tuple(tiles), tuple(others))
