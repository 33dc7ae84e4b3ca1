"""Small ONNX models in ONNX's own text form, and what ONNX's reference computes of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from wsopt.graph.reference import evaluate
from wsopt.importers.model import Imported


def written(folder: Path, body: str, opset: int = 20, others: str = "", **weights: Any) -> Path:
    """A file of a model whose graph is `body`; `others` are further domains, `weights` initializers by name."""
    import onnx

    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}{others}]>\n{body}')
    for key, array in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), key))
    path = folder / "model.onnx"
    onnx.save(model, path)
    return path


def computed(found: Imported, path: Path, seed: int = 0, **given: Any) -> list[tuple[Any, Any]]:
    """Each output as an imported graph means it, and as ONNX's reference has it, on the same random inputs."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    model = onnx.load(path)
    drawn = {}
    for number, one in enumerate(model.graph.input):
        rng = np.random.default_rng([seed, number])
        shape = [dim.dim_value for dim in one.type.tensor_type.shape.dim]
        kind = onnx.helper.tensor_dtype_to_np_dtype(one.type.tensor_type.elem_type)
        values = rng.integers(0, 3, shape) if np.dtype(kind).kind in "iub" else rng.standard_normal(shape)
        drawn[one.name] = np.asarray(given.get(one.name, values)).astype(kind)
    expected = ReferenceEvaluator(model).run(None, drawn)
    actual = evaluate(found.graph, {**of_graph(found, drawn), **found.contents()})
    return list(zip(actual.values(), expected, strict=True))


def of_graph(found: Imported, drawn: Mapping[str, Any]) -> dict[str, Any]:
    """A model's inputs in the names and types of its graph; those that it does not need are left out."""
    from wsopt.importers.model import plain_name

    wanted = {one.name: one.type.dtype.numpy for one in found.graph.inputs if not one.constant}
    named = {plain_name(name): array for name, array in drawn.items()}
    return {name: named[name].astype(kind) for name, kind in wanted.items()}
