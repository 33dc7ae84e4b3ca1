"""The kernel.py of a build whose kernels run one after the other: tensors between them, launches, `run`."""

from __future__ import annotations

from typing import Any

from wsopt import __version__
from wsopt.emit.launcher import calls
from wsopt.emit.source import printable_lines
from wsopt.emit.tensors import TORCH
from wsopt.emit.text import environment
from wsopt.graph.types import Graph, TensorType
from wsopt.partition.between import room
from wsopt.partition.document import CutRecord, Step


def sequence_text(graph: Graph, record: CutRecord) -> str:
    """The text of kernel.py, for a record whose kernels are in the folders that it names."""
    inputs = [one.name for one in graph.inputs]
    return (
        environment()
        .get_template("sequence.py.jinja")
        .render(
            name=graph.name,
            version=__version__,
            doc=printable_lines(graph.doc),
            folders=record.folders,
            inputs=[_tensor(one.name, one.type) for one in graph.inputs],
            outputs=[_tensor(name, graph.type_of(name)) for name in graph.outputs],
            between=[
                _tensor(place.tensor, graph.type_of(place.tensor))
                | {"offset": place.offset, "room": repr(room(graph.type_of(place.tensor), place.pitch))}
                for place in record.places
            ],
            workspace=record.workspace_bytes,
            steps=[_step(step, record.folders.index(step.folder)) for step in record.steps],
            names=graph.outputs,
            input_names=inputs,
            **calls(inputs),
        )
    )


def _tensor(name: str, type_: TensorType) -> dict[str, Any]:
    return {"name": name, "shape": repr(type_.shape), "dtype": TORCH[type_.dtype]}


def _step(step: Step, kernel: int) -> dict[str, Any]:
    def written(whole: tuple[str, ...]) -> str:
        own = {name: tensor for tensor, name in step.tensors.items()}
        return "{" + ", ".join(f'"{own[name]}": "{name}"' for name in whole) + "}"

    return {"kernel": kernel, "inputs": written(step.inputs), "outputs": written(step.outputs)}
