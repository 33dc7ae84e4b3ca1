"""Pairs of blocks in the text of a kernel: a program is a pair, and layouts say what each of its two blocks has.

Of a tile that is divided along a dimension the second block has the second half: rows of the left operand, columns of
the right one, rows of sums. A product is issued by the first block alone, which reads the operands of both and leaves
each its sums. So the first block has barriers for both: at them arrive the bytes of both blocks' copies, and the
consumers of both that have read sums. What a commit tells, it tells a barrier of each block's own.
"""

from __future__ import annotations

from collections.abc import Sequence

from wsopt.program.types import Structure

RELEASE = "3.8"
"""The first release of Triton that writes such kernels (`Target.paired_since`)."""

ROWS = "of both blocks of a pair"
"""What the rows of a consumer are."""


def across(s: Structure, step: Sequence[int]) -> str:
    """The end of a layout's arguments: where the second block's part begins, in parts; zeros where both have all."""
    return f", cga_layout=[{list(step)}]" if s.paired else ""


def sums(s: Structure) -> str:
    """The end of the arguments of a layout of sums in tensor memory: each block of a pair has its rows."""
    return f"{across(s, [1, 0])}, two_ctas=True" if s.paired else ""


def barrier(s: Structure, of_pair: bool) -> tuple[str, str]:
    """How many words a barrier takes in the text, and its layout: one of the pair, or one of each block."""
    if not s.paired:
        return "1", "mbarrier.MBarrierLayout()"
    return ("1", "mbarrier.MBarrierLayout([[0]])") if of_pair else ("2", "mbarrier.MBarrierLayout([[1]])")
