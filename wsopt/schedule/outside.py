"""What the space of a search did not hold for a graph, and how much of the machine stands idle for it.

Plain data of a certificate: `solve/outside.py` computes it, `report/outside.py` says it in words.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Absent(StrEnum):
    """A choice that no structure has, for a graph that could be given it."""

    SPLIT = "split of the contracted axis"
    KERNELS = "more than one kernel"
    CLUSTERS = "clusters of blocks"
    DYNAMIC = "tiles taken at run time"
    BLOCKS = "several blocks an SM"


@dataclass(frozen=True, slots=True)
class Padded:
    """An axis of the graph, by its role: its `extent`, and how many elements tiles compute along it."""

    axis: str
    extent: int
    computed: int


@dataclass(frozen=True, slots=True)
class Outside:
    """Limits of the emitter, by name, each with how many `structures` it left schedules out of, or left out; choices
    that are `absent`.

    Of the schedule that was taken: `idle_sms` are those without a tile in the last wave (0 where masks make tiles
    unequal, which do not come in waves), `idle` the share of the time of the SMs' blocks without a tile while others
    have one, `padding` the share of the products' work beyond the tensors' ends.
    """

    limits: tuple[tuple[str, int], ...]
    absent: tuple[Absent, ...]
    idle_sms: int
    idle: float
    padded: tuple[Padded, ...]
    padding: float
