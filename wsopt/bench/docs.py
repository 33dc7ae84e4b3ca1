"""Makes docs/benchmarks.md from committed measurements: `python -m wsopt.bench.docs FILE... -o PAGE`."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from wsopt.bench.rows import Document, load_document
from wsopt.bench.table import baseline_names, markdown_table
from wsopt.errors import WsoptError

_INTRODUCTION = """\
# Benchmarks

This page is made from the JSON files beside it, by `python -m wsopt.bench.docs`; it is not edited by hand.

Before a kernel is timed, its outputs are poisoned, and what it writes for random inputs has to agree with an
f32 reference; they are compared once more after timing. Kernel and baselines are timed in one process, taking
turns in every round, on sets of inputs that together exceed the L2; a time is the median over the rounds, its
spread half the distance of the quartiles. A ratio is the baseline's time over the kernel's, taken round by
round: above 1 the kernel is faster. Turns of 10 ms share a clock, for it follows the power of the last tenth
of a second: such a ratio compares cycles. Behind a stroke stands the ratio where each settles, untimed, for
that long before its samples: then each is at the clock that its own power leaves it. Where a kernel is short,
time and ratio are those of launches replayed out of a CUDA graph, with the ratio of plain launches, host time
and all, in brackets. The roofline is the time of the arithmetic at the clock that it would settle at by itself, or of
the compulsory bytes where they take longer, and the column has its share of the kernel's time. GB/s count each input
and output once, TFLOP/s the products alone; neither counts what a mask leaves out. `cublas` is the matrix products of
the graph alone, without what surrounds them, `copy` a copy that reads and writes as many bytes as the graph.
`sdpa_cudnn`, `sdpa_flash`, `flex` and `flash_attn_4` are an attention by SDPA's back ends, compiled FlexAttention and
flash-attn-4, in so far as they can say it.
"""


def page(documents: Sequence[tuple[str, Document]]) -> str:
    """The whole page from documents with the names of their files, the newest first."""
    ordered = sorted(documents, key=lambda item: (item[1].date, item[0]), reverse=True)
    return "\n".join([_INTRODUCTION, *(_section(name, document) for name, document in ordered)])


def _section(name: str, document: Document) -> str:
    machine, versions = dict(document.machine), dict(document.versions)
    told = ", ".join(f"{key} {value}" for key, value in versions.items())
    lines = [
        f"## {machine.get('device', 'unknown device')}, {document.date[:10]}",
        "",
        f"{machine.get('multiprocessors', '?')} SMs, driver {machine.get('driver', 'unknown')}; {told}. "
        f"Measured {document.date}, data in `{name}`.",
        "",
        markdown_table(document),
        *_means(document),
    ]
    return "\n".join(lines)


def _means(document: Document) -> list[str]:
    """The geometric mean of the ratios to each baseline, in graphs where there are such."""
    lines = []
    for name in baseline_names(document):
        found = [
            item.graph_ratio or item.ratio
            for row in document.rows
            if row.status == "ok"
            for item in row.baselines
            if item.name == name
        ]
        ratios = [value for value in found if value]
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            lines.append(f"- geometric mean against {name}, {len(ratios)} kernels: {mean:.3f}")
    return [*lines, ""]


def main(arguments: Sequence[str]) -> int:
    """The command line: 0, or the exit status of what is wrong with an input."""
    parser = argparse.ArgumentParser(prog="python -m wsopt.bench.docs", description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("-o", "--output", type=Path, required=True)
    chosen = parser.parse_args(arguments)
    try:
        text = page([(path.name, load_document(path)) for path in chosen.files])
    except WsoptError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    chosen.output.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
