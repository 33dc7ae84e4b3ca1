"""`wsopt export`: a build as a cubin with a description of its launch and a C++ launcher."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wsopt.cli.options import AsJson, Folder
from wsopt.terminal import print_json, print_text


def export(
    folder: Folder,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="OUT", help="the folder to write")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a build as a cubin and a C++ launcher.

    A description of the launch, launch.json, is beside them. The launcher needs the CUDA driver alone. No GPU is
    needed to export.
    """
    from wsopt.export.write import export_folder
    from wsopt.requirements import require_triton

    require_triton("export")
    target = output or folder.with_name(f"{folder.resolve().name.removesuffix('.wsopt')}.export")
    made = export_folder(folder, target)
    if as_json:
        print_json({**made.summary, "directory": str(target)})
        return
    facts = made.summary
    print_text(
        f"{facts['name']} for {facts['target']}, compiled by Triton {facts['triton']}: "
        f"{facts['registers']} registers, {facts['threads']} threads, {facts['dynamic_shared_bytes']} bytes shared\n"
        f"  {', '.join(facts['files'])}\n  written to {target}"
    )
