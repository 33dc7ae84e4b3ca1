"""What a K-block of a loop of products asks of an SM and of the paths to it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Demand:
    """Demand of one K-block: bytes of L2 lines, of those that its GPC fetches, cycles of the tensor core.

    `data` are the bytes themselves, and `touched` what one SM alone fetches of lines for them, at its own rate;
    `energy` is in cycles of the tensor core, `between` the cycles outside the loop for each of its K-blocks.
    `alone` where one consumer at a time has products under way, and waits for them: what it waits for, nobody fills.
    Products into tensor memory queue up behind each other, whoever reads the sums. `active` is the
    share of the SMs that are at work. A consumer's own thread is held for `thread` cycles; a slot is handed back
    `late`, by the cycles for which the next product is issued before. So many `blocks` of an SM ask for as much each.
    """

    lines: float
    data: float
    touched: float
    gpc: float
    tensor: float
    energy: float
    between: float
    alone: bool
    active: float = 1.0
    thread: float = 0.0
    late: float = 0.0
    blocks: int = 1
