"""Measures what Inductor's kernels take, by size: `python -m wsopt.torch.sweep FILE` on a GPU.

Products by the library that Inductor calls, attention as SDPA chooses it, and bytes by an elementwise kernel that
Inductor writes. Each is replayed out of a CUDA graph, over sets of operands that together exceed the L2 as far as
memory allows. FILE then is what `wsopt/torch/rates.json` holds.
"""

from __future__ import annotations

import datetime
import itertools
import json
import math
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from wsopt.bench.bench_worker import machine_facts, version_facts
from wsopt.bench.cuda_clock import CudaClock, captured
from wsopt.bench.timing import Contestant, TimingOptions, measure
from wsopt.torch.rates import Masks

FORMAT = "wsopt.rates/2"
ROWS = (16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
COLUMNS = (256, 1024, 4096, 14336)
CONTRACTED = (256, 1024, 4096, 14336)
HEADS, KEYS, DEPTHS = (16, 64, 256), (128, 512, 2048, 8192), (64, 128)
BYTES = tuple(1 << power for power in range(16, 31, 2))
_MOST_SETS, _L2_SETS = 24, 4
_LIMIT_S = 20.0
_TIMING = TimingOptions(rounds=3, sample_ms=3.0, settle_ms=60.0, warm_up_ms=60.0)
"""Each is timed at the clock that it settles at, as in a model that runs on."""
_REPLAYED_US = 2000.0
"""Microseconds of launches, about, that a graph has."""

Call = Callable[[], object]


def main() -> None:
    """Measure everything and write the file given as the argument, after each kind."""
    (path,) = map(Path, sys.argv[1:])
    rows: list[dict[str, object]] = []
    for kind in (_products, _attentions, _elementwise):
        rows += [{"kind": name, "shape": list(shape), "us": us} for name, shape, us in kind()]
        document = {
            "format": FORMAT,
            "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
            "machine": machine_facts(),
            "versions": version_facts(),
            "rows": rows,
        }
        path.write_text(json.dumps(document, indent=0) + "\n", encoding="utf-8")


Measured = tuple[str, tuple[int, ...], float]


def _products() -> Iterator[Measured]:
    """[rows, contracted] by [columns, contracted] transposed."""
    for rows, columns, contracted in itertools.product(ROWS, COLUMNS, CONTRACTED):
        nbytes = 2 * (rows * contracted + columns * contracted + rows * columns)
        calls = [_product(rows, columns, contracted) for _ in range(_sets(nbytes))]
        yield "product", (rows, columns, contracted), _microseconds(calls)


def _product(rows: int, columns: int, contracted: int) -> Call:
    x, w = _random(rows, contracted), _random(columns, contracted)
    out = torch.empty(rows, columns, dtype=torch.bfloat16, device="cuda")
    return lambda: torch.mm(x, w.t(), out=out)


def _attentions() -> Iterator[Measured]:
    """Self-attention of so many heads, keys and elements a head; the last number is one of `Masks`."""
    for heads, keys, depth, masks in itertools.product(HEADS, KEYS, DEPTHS, Masks):
        if heads * keys * keys * depth > 1 << 40:
            continue
        calls = [_attention(heads, keys, depth, masks) for _ in range(_sets(8 * heads * keys * depth))]
        yield "attention", (heads, keys, depth, int(masks)), _microseconds(calls)


def _attention(heads: int, keys: int, depth: int, masks: Masks) -> Call:
    q, k, v = (_random(1, heads, keys, depth) for _ in range(3))
    added = _random(keys, keys) if masks is Masks.READ else None
    sdpa = torch.nn.functional.scaled_dot_product_attention
    return lambda: sdpa(q, k, v, attn_mask=added, is_causal=masks is Masks.CAUSAL)


def _elementwise() -> Iterator[Measured]:
    """A kernel that Inductor writes, which reads two tensors and writes one: so many bytes in all."""

    def gated(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.silu(a) * b

    compiled = torch.compile(gated, dynamic=False)
    for nbytes in BYTES:
        elements = nbytes // 6
        pairs = [(_random(elements), _random(elements)) for _ in range(_sets(nbytes))]
        calls = [_kept(compiled, a, b) for a, b in pairs]
        yield "bytes", (nbytes,), _microseconds(calls)
        torch._dynamo.reset()


def _kept(function: Callable[..., object], *given: torch.Tensor) -> Call:
    """A call whose last result is kept, so that results of all sets are buffers of their own."""
    results: list[object] = [None]

    def call() -> None:
        results[0] = function(*given)

    return call


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.bfloat16, device="cuda") / 8


def _sets(nbytes: int) -> int:
    """Sets of operands that together exceed the L2 several times, if these are not too many."""
    cache = int(torch.cuda.get_device_properties("cuda").L2_cache_size)
    return max(1, min(_MOST_SETS, math.ceil(_L2_SETS * cache / nbytes)))


def _microseconds(calls: list[Call]) -> float:
    """The median time of a call, out of a CUDA graph."""
    clock = CudaClock(_LIMIT_S)
    clock.sample(calls, len(calls))
    count = max(1, round(_REPLAYED_US / (1e3 * clock.sample(calls, len(calls)) / len(calls))))
    replayed, launches = captured(Contestant("x", tuple(calls)), count)
    times = measure([replayed], clock, _TIMING)["x"]
    return round(statistics.median(times) / launches, 3)


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    main()
