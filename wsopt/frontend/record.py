"""A region as plain data for JSON, to be read where only a part of wsopt is installed."""

from __future__ import annotations

import dataclasses
import math
from enum import Enum
from typing import Any

from wsopt.frontend.needed import needed_bytes, needed_flops
from wsopt.frontend.types import Region


def region_data(region: Region) -> dict[str, Any]:
    """The fields of a region by name, in a fixed order. Sets are sorted lists; numbers that are not finite are
    the words that the graph's format has for them, which no tensor bears.
    """
    found: dict[str, Any] = _plain(region)
    return found


def work_data(region: Region) -> dict[str, int]:
    """The least work of a region, masks counted: `flops` of its products, `bytes` to and from memory."""
    return {"flops": needed_flops(region), "bytes": needed_bytes(region)}


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, frozenset):
        return sorted(_plain(item) for item in value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value
