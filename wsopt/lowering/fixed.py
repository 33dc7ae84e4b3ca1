"""What of a region is in the text of each of its kernels, whatever the structure."""

from __future__ import annotations

from dataclasses import dataclass

from wsopt.frontend.types import Region
from wsopt.tensors.views import Role, View, takes_row


@dataclass(frozen=True, slots=True)
class Fixed:
    """The length of rows that are reduced, 0 if none are, and how tensors lie along the region's axes."""

    row: int
    views: tuple[View, ...]


def fixed_of(region: Region) -> Fixed:
    """What is fixed of a region."""
    reduces = any(map(takes_row, (*region.statements, *region.running)))
    operands = (one for product in region.contractions for one in (product.left, product.right))
    views = [one.view for one in region.sources] + [one.view for one in region.outputs]
    views += [one for one in operands if isinstance(one, View)]
    return Fixed(region.extent(Role.COLUMN) if reduces else 0, tuple(views))
