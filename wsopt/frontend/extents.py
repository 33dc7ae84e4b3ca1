"""Extents that layouts in registers can have."""

from __future__ import annotations


def pow2(extent: int) -> int:
    """The least power of two that an extent fits."""
    return 1 << max(0, extent - 1).bit_length()
