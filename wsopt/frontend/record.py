"""A region as plain data for JSON, to be read where only a part of wsopt is installed."""

from __future__ import annotations

import dataclasses
import math
from enum import Enum
from typing import Any

from wsopt.frontend.needed import needed_bytes, needed_flops
from wsopt.frontend.types import Region


def region_data(part: Any) -> Any:
    """The fields of a region, or of a part of one, by name, in a fixed order. Sets are sorted lists; numbers that are
    not finite are the words that the graph's format has for them, which no tensor bears.
    """
    match part:
        case Enum():
            return part.value
        case float() if not math.isfinite(part):
            return str(part)
        case frozenset():
            return sorted(map(region_data, part))
        case tuple():
            return [region_data(item) for item in part]
        case _ if dataclasses.is_dataclass(part):
            return {field.name: region_data(getattr(part, field.name)) for field in dataclasses.fields(part)}
    return part


def work_data(region: Region) -> dict[str, int]:
    """The least work of a region, masks counted: `flops` of its products, `bytes` to and from memory."""
    return {"flops": needed_flops(region), "bytes": needed_bytes(region)}
