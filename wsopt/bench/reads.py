"""A kernel that only reads: the time of its bytes is what no kernel that has to read them can be faster than.

Programs take stretches of memory in turns, each thread some words of 16 bytes at a time, and leave one number each,
so that no load is left out.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

_STRETCH, _WARPS, _PROGRAMS_AN_SM = 4096, 8, 4
"""Words of four bytes that a program reads at a time, its warps, and programs for each SM."""


@triton.jit  # type: ignore[untyped-decorator]
def _read(source, results, words, stretch: tl.constexpr):  # type: ignore[no-untyped-def]
    found = tl.zeros([stretch], tl.int32)
    own, step = tl.program_id(0).to(tl.int64) * stretch, tl.num_programs(0) * stretch
    for first in range(own, words, step):
        places = first + tl.arange(0, stretch)
        found ^= tl.load(source + places, mask=places < words, other=0)
    tl.store(results + tl.program_id(0), tl.xor_sum(found, 0))


def reading(nbytes: int, device: torch.device) -> Callable[[], tuple[Tensor, ...]]:
    """A launch that reads so many bytes of device memory of its own."""
    words = -(-nbytes // 4)
    source = torch.empty(words, dtype=torch.int32, device=device)
    programs = _PROGRAMS_AN_SM * torch.cuda.get_device_properties(device).multi_processor_count
    results = torch.empty(programs, dtype=torch.int32, device=device)

    def launch() -> tuple[Tensor, ...]:
        _read[(programs,)](source, results, words, _STRETCH, num_warps=_WARPS)
        return (results,)

    return launch
