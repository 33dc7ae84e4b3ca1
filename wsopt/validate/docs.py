"""Makes docs/model.md from committed validations: `python -m wsopt.validate.docs FILE... -o PAGE`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from wsopt.exit_status import with_exit_status
from wsopt.validate.files import write_text
from wsopt.validate.report import HEADS, graph_cells, point_lines, suspects, worst
from wsopt.validate.validation import Validation, load_validation

_INTRODUCTION = """\
# How far the model is to be trusted

This page is made from the JSON files beside it, by `python -m wsopt.validate.docs`; it is not edited by hand.

`wsopt validate-model` takes schedules of a graph that the model thinks good and others that it thinks bad, compiles
them as `wsopt compile` does, and measures them in turns in one process, each settled at its own clock. Times are
medians in microseconds. A short graph's launches are replayed out of a CUDA graph.

- *tau* is Kendall's rank correlation of predictions with times, *apart* the same of schedules whose times differ by
  more than 5 %: the order of others changes from run to run;
- *error* is the mean relative error of the predictions, *bias* the same with its sign (positive: the model is too
  pessimistic);
- *regret* is how much longer the model's first choice takes than the best that was measured.

What the model is, and errors over all graphs: [the performance model](performance-model.md).
"""


def page(validations: Sequence[tuple[str, Validation]]) -> str:
    """The whole page from validations with the paths of their files as the page's links have them."""
    return "\n".join([_INTRODUCTION, *(_section(name, found) for name, found in validations)])


def _section(name: str, found: Validation) -> str:
    versions = ", ".join(f"{key} {value}" for key, value in found.versions.items())
    rows = [HEADS, ["---", *["---:"] * (len(HEADS) - 1)], *(graph_cells(graph) for graph in found.graphs)]
    told = ", ".join(f"{part} ({tau:+.2f})" for part, tau in suspects(found.points))
    refused = sum(len(graph.made.refused) for graph in found.graphs)
    plot = str(Path(name).with_suffix(".svg"))
    lines = [
        f"## {found.card.get('device', 'unknown device')}, {found.date[:10]}: {Path(name).stem}",
        "",
        f"{len(found.points)} schedules of {len(found.graphs)} graphs, predicted for `{found.machine}`: mean "
        f"relative error {found.error:.1%}. {refused} other structures that were chosen have no kernel: the solver, "
        f"the interpreter or the compiler refused them. Driver {found.card.get('driver', 'unknown')}; {versions}. "
        f"Data in [`{Path(name).name}`]({name}).",
        "",
        f"![measured against predicted times]({plot})",
        "",
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
        f"Errors go with: {told}." if told else "Errors go with no part of the predictions.",
        "",
        *_published(found),
        "The worst predictions:",
        "",
        "```",
        *(line for point in worst(found) for line in point_lines(point)),
        "```",
        "",
    ]
    return "\n".join(lines)


def _published(found: Validation) -> list[str]:
    """Lines on the schedules that experts have published, where they are among those measured."""
    lines = []
    for graph in found.graphs:
        shown = [point for point in graph.points if point.candidate.overlap != "any"]
        if shown:
            told = (
                f"{p.candidate.overlap}, {p.candidate.structure['consumers']} consumers {p.measured_us:.1f} "
                f"({p.candidate.predicted_us:.1f})"
                for p in shown
            )
            first = graph.points[0]
            lines.append(
                f"- {graph.name}: first choice {first.measured_us:.1f} ({first.candidate.predicted_us:.1f}), "
                + ", ".join(told)
            )
    head = "Published schedules beside the first choice, measured (predicted), us:"
    return [head, "", *lines, ""] if lines else []


@with_exit_status
def main(arguments: Sequence[str]) -> int:
    """The command line: 0, or the exit status of what is wrong with an input."""
    parser = argparse.ArgumentParser(prog="python -m wsopt.validate.docs", description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("-o", "--output", type=Path, required=True)
    chosen = parser.parse_args(arguments)
    found = [
        (path.relative_to(chosen.output.parent).as_posix(), load_validation(path)) for path in chosen.files
    ]
    write_text(chosen.output, page(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
