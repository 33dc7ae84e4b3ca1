"""`wsopt trace`: a build's kernel with stamps inside, measured on this GPU."""

from __future__ import annotations

from typing import Annotated

import typer

from wsopt.cli.options import AsJson, Folder
from wsopt.terminal import print_json, print_text


def trace(
    folder: Folder,
    blocks: Annotated[
        int, typer.Option(min=1, max=1024, metavar="N", help="blocks of the grid that keep records")
    ] = 8,
    tiles: Annotated[int, typer.Option(min=1, max=1024, metavar="N", help="tiles of each of them")] = 4,
    iterations: Annotated[
        int, typer.Option(min=4, max=4096, metavar="N", help="iterations of each tile")
    ] = 64,
    prepare: Annotated[
        bool, typer.Option("--prepare", help="write the traced kernel and end: no GPU is needed")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Measure when a build's operations start on this GPU.

    The starts that were predicted stand beside them. Both are written to DIR/trace.
    """
    from wsopt.emit.stamps import Trace
    from wsopt.folder import read_folder
    from wsopt.requirements import require_torch, require_triton
    from wsopt.trace.make import make_traced
    from wsopt.trace.measure import measure_trace
    from wsopt.trace.table import text

    require_triton("trace")
    if not prepare:
        require_torch("trace", f"`wsopt trace {folder} --prepare` writes the traced kernel without it")
    made = make_traced(read_folder(folder), Trace(blocks, tiles, iterations))
    if prepare:
        where = f"measure it on the GPU: python3 -m wsopt.trace.measure {folder}"
        if as_json:
            print_json({"directory": str(made)})
        else:
            print_text(f"written to {made}\n{where}")
        return
    found = measure_trace(folder)
    if as_json:
        print_json(found)
    else:
        print_text(text(found))
