"""Makes docs/host_cost.md from committed measurements: `python -m wsopt.bench.host_cost_docs FILE... -o PAGE`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wsopt.errors import InputError, Problem
from wsopt.runtime.json_file import read_json

_INTRODUCTION = """\
# What a call costs the host

This page is made from the JSON files in `host_cost/`, by `python -m wsopt.bench.host_cost_docs`; it is not edited by
hand.

Microseconds of the host for one warm call, from its beginning to its return, without waiting for the device: the
median of some rounds of some calls in one process, in which all take turns. `run` makes its output; `launch` is what
`prepare` returned. Beside them `torch.mm` of two bf16 matrices of 2048 x 2048, and for attention torch's
`scaled_dot_product_attention` on the same tensors.
"""
_CALLS = {"run": "run", "launch": "launch", "torch_mm": "torch.mm", "sdpa": "SDPA"}
_RATIOS = ("run/torch_mm", "run/sdpa", "launch/torch_mm")


def page(documents: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """The whole page from documents with the names of their files, the newest first."""
    ordered = sorted(documents, key=lambda item: (item[1]["date"], item[0]), reverse=True)
    return "\n".join([_INTRODUCTION, *(_section(name, document) for name, document in ordered)])


def _section(name: str, document: Mapping[str, Any]) -> str:
    machine, versions = document["machine"], document["versions"]
    titles = [*_CALLS.values(), *(ratio.replace("torch_mm", "mm") for ratio in _RATIOS)]
    lines = [
        f"## {machine['device']}, {document['date']}\n",
        f"{document['rounds']} rounds of {document['calls']} calls; driver {machine['driver']}, Python "
        f"{versions['python']}, torch {versions['torch']}, Triton {versions['triton']} (`{name}`).\n",
        f"| build | {' | '.join(titles)} |",
        "|---|" + "---:|" * len(titles),
        *(_row(row) for row in document["rows"]),
    ]
    return "\n".join(lines) + "\n"


def _row(row: Mapping[str, Any]) -> str:
    times = [f"{row['us'][name]:.1f}" if name in row["us"] else "" for name in _CALLS]
    ratios = [f"{row['ratios'][name]:.2f}" if name in row["ratios"] else "" for name in _RATIOS]
    return f"| {row['build']} | {' | '.join([*times, *ratios])} |"


def _document(path: Path) -> Mapping[str, Any]:
    found = read_json(path)
    if not isinstance(found, dict) or found.get("kind") != "host_cost":
        raise InputError(
            str(path), [Problem("/kind", 'not a measurement of calls, whose kind is "host_cost"')]
        )
    return found


def main(arguments: Sequence[str]) -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(prog="python -m wsopt.bench.host_cost_docs", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("-o", "--output", required=True, type=Path)
    chosen = parser.parse_args(arguments)
    chosen.output.write_text(page([(path.name, _document(path)) for path in chosen.files]), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
