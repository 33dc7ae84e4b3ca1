"""An ONNX file as a graph of ours."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from wsopt.importers.finish import Result, finished
from wsopt.importers.model import Imported, Unsaid, plain_name, refuse
from wsopt.importers.onnx_file import OnnxFile, read_onnx
from wsopt.importers.onnx_lower import Lowered, contents_of, lower
from wsopt.importers.onnx_operations import TABLE
from wsopt.torch.values import Untaken


def import_onnx(path: Path, extents: Mapping[str, int]) -> Imported:
    """The graph of an ONNX file, open extents of its inputs fixed.

    Raises InputError for a file that is none and for open extents, LoweringError with all operations that
    graphs of ours cannot express.
    """
    file = read_onnx(path, extents, frozenset(TABLE))
    found = lower(file)
    results = _results(found, file)
    refuse(str(path), found.unsaid)
    origins = {name: name for name in (*found.weights, *found.made)}
    given = [one.name for one in file.graph.input if one.name not in found.weights]
    graph, unsaid, names = finished(found.writer, plain_name(path.stem), given, origins, results)
    refuse(str(path), unsaid)
    kept = {tensor: name for tensor, name in names.items() if tensor in origins}
    return Imported(graph, {name: tensor for tensor, name in kept.items()}, lambda: contents_of(found, kept))


def _results(found: Lowered, file: OnnxFile) -> list[Result]:
    """The values of outputs; those that cannot be said are noted."""
    results = []
    for place, one in enumerate(file.graph.output):
        pointer = f"/graph/output/{place}"
        if not found.is_said(one.name):
            continue
        try:
            results.append(Result(one.name, pointer, found.value(one.name)))
        except Untaken as reason:
            found.unsaid.append(Unsaid(pointer, one.name, "output", str(reason)))
    return results
