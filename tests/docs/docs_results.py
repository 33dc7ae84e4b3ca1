"""README's table of results, as the committed benchmarks have it: `python tests/docs/docs_results.py` prints it."""

from __future__ import annotations

import math
from pathlib import Path

from wsopt.bench.rows import BaselineRow, Document, Row, load_document

ROOT = Path(__file__).parents[2]

KERNELS = {
    "gemm_bf16": ("cublas", "8192 x 8192 x 8192, bf16"),
    "gemm_small_k": ("cublas", "4096 x 4096 x 512, bf16"),
    "gemm_ragged": ("cublas", "1000 x 4104 x 520, bf16"),
    "gemm_f8_fast": ("scaled_mm", "8192 x 8192 x 8192, f8, scales of rows and columns"),
    "gemm_bias_gelu": ("inductor", "8192 x 14336 x 4096, bf16, bias and GELU"),
    "gemm_swiglu": ("inductor", "8192 x 14336 x 4096, bf16, two products"),
    "attention": ("sdpa_cudnn", "64 heads of 4096 x 128"),
    "attention_causal": ("sdpa_cudnn", "the same, causal"),
    "attention_window": ("flex", "the same, a window of 1024 keys"),
    "attention_softcap": ("flex", "the same, scores capped by tanh"),
    "softmax_rows": ("inductor", "32768 rows of 4096, bf16"),
    "layer_norm": ("inductor", "32768 rows of 4096, bf16"),
    "rms_norm_matmul": ("inductor", "a norm of rows before 8192 x 6144 x 4096"),
}
"""Kernels of the table, each with the baseline that it stands beside and what it computes."""

MEANS = {
    "cublas": "products",
    "scaled_mm": "f8 products",
    "inductor": "fused products and norms",
    "sdpa_cudnn": "attention",
    "flex": "attention with other masks and scores",
}
"""Baselines whose geometric mean over all kernels measured beside them is in the table."""

NAMES = {
    "cublas": "cuBLAS",
    "scaled_mm": "torch scaled_mm",
    "inductor": "Inductor",
    "sdpa_cudnn": "cuDNN SDPA",
    "flex": "FlexAttention",
}

Measured = dict[tuple[str, str], tuple[Row, BaselineRow]]


def documents() -> list[Document]:
    """The committed benchmarks, oldest first."""
    found = [load_document(path) for path in (ROOT / "docs" / "benchmarks").glob("*.json")]
    return sorted(found, key=lambda document: document.date)


def measured() -> Measured:
    """The newest measurement of every kernel beside every baseline."""
    return {
        (row.name, item.name): (row, item)
        for document in documents()
        for row in document.rows
        for item in row.baselines
        if row.status == "ok" and item.ratio is not None
    }


def in_turns(item: BaselineRow) -> float:
    """A baseline's time over the kernel's where they take turns, from a CUDA graph where there is one."""
    ratio = item.graph_ratio or item.ratio
    assert ratio is not None
    return ratio


def table() -> list[str]:
    """The rows of the table, one for each kernel, then one for each mean."""
    found = measured()
    lines = [_kernel_line(name, *found[name, baseline]) for name, (baseline, _) in KERNELS.items()]
    return lines + [_mean_line(baseline, found) for baseline in MEANS]


def _kernel_line(name: str, row: Row, item: BaselineRow) -> str:
    share = "" if row.roofline is None else f"{row.roofline:.0%}"
    cells = (
        f"[{name}](problems/{name}.json)",
        KERNELS[name][1],
        f"{row.best_us:.1f}",
        share,
        NAMES[item.name],
    )
    return "| " + " | ".join([*cells, f"{in_turns(item):.2f}", f"{item.settled_ratio:.2f}"]) + " |"


def _mean_line(baseline: str, found: Measured) -> str:
    items = [item for (_, name), (_, item) in found.items() if name == baseline]
    means = (_mean([in_turns(item) for item in items]), _mean([item.settled_ratio or 0.0 for item in items]))
    told = f"*geometric mean of {len(items)}*"
    return f"| {told} | {MEANS[baseline]} | | | {NAMES[baseline]} | {means[0]:.2f} | {means[1]:.2f} |"


def _mean(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


if __name__ == "__main__":
    print("\n".join(table()))
