"""`wsopt import`: a model of another format as a graph.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wsopt.cli.options import AsJson
from wsopt.terminal import print_json, print_text

if TYPE_CHECKING:
    from wsopt.importers.model import Imported


def import_(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="a .onnx file, or a .pt2 file of torch.export")
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="GRAPH.json", help="the graph to write")
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="write the constants too: a .safetensors or a .npz file"),
    ] = None,
    dim: Annotated[
        list[str] | None, typer.Option(metavar="NAME=N", help="fix an extent that the model leaves open")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a model of another format as a graph.

    What no graph says is listed, all of it, and nothing is written then.
    """
    from wsopt.graph.serialize import graph_to_json
    from wsopt.importers.model import parse_extents
    from wsopt.importers.read import import_model
    from wsopt.importers.weights import check_weights, write_weights

    extents = parse_extents(dim or ())
    if weights is not None:
        check_weights(weights)
    target = output or Path(f"{model.stem}.json")
    _check_target(target, model)
    found = import_model(model, extents)
    if weights is not None:
        write_weights(weights, found.contents())
    target.write_text(
        json.dumps(graph_to_json(found.graph), indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    facts = _facts(found, target, weights)
    if as_json:
        print_json(facts)
    else:
        print_text(_text(facts))


def _check_target(target: Path, model: Path) -> None:
    """Refuse a file that cannot be written, or that is the model, before any work is done."""
    from wsopt.errors import InputError, Problem

    if target.resolve() == model.resolve():
        told = "is the model itself; give a .onnx or a .pt2 file, or -o another file for the graph"
        raise InputError(str(target), [Problem("", told)])
    if target.is_dir() or not target.parent.is_dir():
        raise InputError(
            str(target), [Problem("", "is no place for a graph; give a file in a folder that is there")]
        )


def _facts(found: Imported, target: Path, weights: Path | None) -> dict[str, Any]:
    graph = found.graph
    constants = [one for one in graph.inputs if one.constant]
    return {
        "name": graph.name,
        "nodes": len(graph.nodes),
        "inputs": {one.name: str(one.type) for one in graph.inputs if not one.constant},
        "outputs": {name: str(graph.type_of(name)) for name in graph.outputs},
        "constants": {one.name: found.origins[one.name] for one in constants},
        "constant_bytes": sum(one.type.nbytes for one in constants),
        "graph": str(target),
        "weights": None if weights is None else str(weights),
    }


def _text(facts: dict[str, Any]) -> str:
    def listed(tensors: dict[str, str]) -> str:
        return ", ".join(f"{name} {kind}" for name, kind in tensors.items())

    count = len(facts["constants"])
    held = f"written to {facts['weights']}" if facts["weights"] else "not written (--weights FILE)"
    return (
        f"{facts['name']}: {facts['nodes']} nodes; {listed(facts['inputs'])} -> {listed(facts['outputs'])}\n"
        f"  {count} constants of {facts['constant_bytes']:,} bytes, {held}\n"
        f"  written to {facts['graph']}"
    )
