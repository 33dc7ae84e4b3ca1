"""`wsopt machines`, `ops` and `schema`: lists of cards and operations, and the graph format."""

from __future__ import annotations

import json

from wsopt.cli.options import AsJson
from wsopt.terminal import print_json, print_text

_EXAMPLE = "h200"
"""The card that operations are tried for: the front end is the same for all of its kind."""


def machines(as_json: AsJson = False) -> None:
    """List the cards, with dense rates and ridge points."""
    from dataclasses import asdict

    from wsopt.machine.table import machine_rows

    rows = machine_rows()
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    heads = list(asdict(rows[0]))
    cells = [heads, *[[_cell(value) for value in asdict(row).values()] for row in rows]]
    widths = [max(len(line[column]) for line in cells) for column in range(len(heads))]
    print_text(
        "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in cells)
    )


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def ops(as_json: AsJson = False) -> None:
    """List the operations of the graph format.

    Those that no kernel takes yet are marked.
    """
    from wsopt.graph.ops import OPS
    from wsopt.lowering.support import is_lowered
    from wsopt.machine.load import load_machine

    machine = load_machine(_EXAMPLE)
    taken = {name: is_lowered(name, machine) for name in OPS}
    if as_json:
        print_json(
            [
                {
                    "op": o.name,
                    "operands": list(o.operands),
                    "cost": o.cost.value,
                    "doc": o.doc,
                    "lowered": taken[o.name],
                }
                for o in OPS.values()
            ]
        )
        return
    width = max(len(name) for name in OPS)
    for o in OPS.values():
        mark = "" if taken[o.name] else " (No kernel takes it yet.)"
        print_text(f"{o.name.ljust(width)}  {', '.join(o.operands):24s} {o.doc}{mark}")


def schema() -> None:
    """Print the JSON Schema of the graph format."""
    from wsopt.graph.schema import json_schema

    print_text(json.dumps(json_schema(), indent=2))
