"""Outputs that are the halves of one tensor's pairs, as of numbers that are turned in pairs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from wsopt.tensors.views import PAIR, Output


def other_half(output: Output, outputs: Iterable[Output]) -> Output | None:
    """The output that has the other element of each of a tensor's pairs, if threads store both: together, for apart
    each element would be an access of its own.
    """
    if output.view.step != PAIR or not output.by_threads:
        return None
    other = replace(output.view, offset=PAIR - 1 - output.view.offset)
    return next((one for one in outputs if one.by_threads and one.view == other), None)
