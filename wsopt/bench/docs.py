"""Makes docs/benchmarks.md from committed measurements: `python -m wsopt.bench.docs FILE... -o PAGE`."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from wsopt.bench.rows import Document, load_document
from wsopt.bench.table import baseline_names, markdown_table
from wsopt.exit_status import with_exit_status

_INTRODUCTION = """\
# Benchmarks

This page is made from the JSON files beside it, by `python -m wsopt.bench.docs`; it is not edited by hand.

Kernel and baselines are timed in one process, taking turns in every round, on sets of inputs that together
exceed the L2. Before, the kernel's outputs are poisoned and compared with an f32 reference; after, they are
compared once more.

- *us* is the median over the rounds, *spread* half the distance of the quartiles. Short kernels are replayed
  out of a CUDA graph.
- *TFLOP/s* count the products alone, *GB/s* each input and output once; neither counts what a mask leaves out.
- *roofline* is the share of the time that the roofline is: the arithmetic at the clock that it would settle at
  by itself, or the compulsory bytes if they take longer.
- *error* is the largest relative error of an output.
- *vs* a baseline is its time over the kernel's, round by round: above 1 the kernel is faster. The first figure
  is of turns of 10 ms, which share a clock, so it compares cycles. The second, after the slash, is settled:
  each runs on, untimed, until it is at the clock that its own power leaves it. In brackets is the ratio of
  plain launches, host time included, where the others are of a CUDA graph.
- `cublas` is the matrix products of the graph alone, `scaled_mm` torch's f8 product with its scales, `grouped_mm`
  torch's product of groups of rows, `copy` a copy that reads and writes as many bytes as the graph. `sdpa_cudnn`,
  `sdpa_flash`, `flex` and `flash_attn_4` are an attention by SDPA's back ends, compiled FlexAttention and
  flash-attn-4, as far as these have its masks and scores.
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


@with_exit_status
def main(arguments: Sequence[str]) -> int:
    """The command line: 0, or the exit status of what is wrong with an input."""
    parser = argparse.ArgumentParser(prog="python -m wsopt.bench.docs", description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("-o", "--output", type=Path, required=True)
    chosen = parser.parse_args(arguments)
    text = page([(path.name, load_document(path)) for path in chosen.files])
    chosen.output.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
