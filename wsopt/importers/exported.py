"""A file of torch.export as a graph of ours, by the table that the backend of torch.compile has."""

from __future__ import annotations

import contextlib
import logging
import operator
import pickle
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch._inductor.decomposition import select_decomp_table
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from wsopt.errors import InputError, Problem
from wsopt.graph.types import DType
from wsopt.importers.bands import said
from wsopt.importers.exported_table import MORE
from wsopt.importers.finish import Result, finished
from wsopt.importers.model import Array, Imported, Unsaid, check_extents, plain_name, refuse
from wsopt.torch.dtypes import dtype_of
from wsopt.torch.lower import Lowered, lower
from wsopt.torch.values import Untaken, Value
from wsopt.torch.writer import number

_KNOWN = (torch.int64, torch.int32, torch.bool)
"""Integers and truth values: what a model brings of them are positions and masks, not weights."""


def import_exported(path: Path, extents: Mapping[str, int]) -> Imported:
    """The graph of a file of torch.export, open extents fixed.

    Raises InputError for a file that is none and for open extents, LoweringError with all operations that no graph
    of ours says.
    """
    program = _fixed(_loaded(path), extents, str(path))
    with torch.no_grad(), _quiet():
        program = program.run_decompositions(_decompositions())
    brought = _brought(program)
    contents = {
        name: one.tensor
        for name, one in brought.items()
        if one.tensor.dtype in _KNOWN or one.tensor.ndim == 0
    }
    found = lower(program.graph_module, brought, contents=contents, narrows=True, more=MORE)
    unsaid = [*_written_to(program), *_unsaid(found)]
    refuse(str(path), unsaid)
    results = _results(found, program, contents, unsaid)
    refuse(str(path), unsaid)
    origins = {name: one.name for name, one in brought.items()}
    given = program.graph_signature.user_inputs
    graph, unsaid, names = finished(found.writer, plain_name(path.stem), given, origins, results)
    refuse(str(path), unsaid)
    kept = {tensor: name for tensor, name in names.items() if tensor in brought}
    return Imported(
        graph,
        {name: origins[tensor] for tensor, name in kept.items()},
        lambda: {
            name: _array(brought[tensor].tensor, found.writer.types[tensor].dtype)
            for tensor, name in kept.items()
        },
    )


def _decompositions() -> dict[Any, Any]:
    """Inductor's, but for what an import says as it is: pools, whose decomposition wants Inductor's own lowering."""
    return {op: write for op, write in select_decomp_table().items() if op not in MORE}


def _loaded(path: Path) -> ExportedProgram:
    try:
        with _quiet():
            return torch.export.load(path)
    except OSError as error:
        raise InputError(str(path), [Problem("", f"cannot be read: {error.strerror or error}")]) from error
    except (RuntimeError, ValueError, KeyError, zipfile.BadZipFile, pickle.UnpicklingError) as error:
        first = str(error).strip().splitlines()[:1] or [type(error).__name__]
        raise InputError(str(path), [Problem("", f"is no file of torch.export: {first[0]}")]) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """While this lasts, torch tells nothing of its own: what is wrong with a file is told once, by us."""
    logger = logging.getLogger("torch.export")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


# --- extents that are open ------------------------------------------------------------------------------


def _fixed(program: ExportedProgram, extents: Mapping[str, int], source: str) -> ExportedProgram:
    """The program, exported again where extents are open, with numbers for them."""
    inputs = [node for node in program.graph.nodes if node.name in program.graph_signature.user_inputs]
    wanted = [
        (str(extent), f"/graph/input/{place} ({node.name}, axis {axis})")
        for place, node in enumerate(inputs)
        for axis, extent in enumerate(getattr(node.meta.get("val"), "shape", ()))
        if not isinstance(extent, int) and extent.node.expr.is_symbol
    ]
    check_extents(source, wanted, extents)
    if not wanted:
        return program
    given = iter(_example(node, extents) for node in inputs)
    args, kwargs = torch.utils._pytree.tree_unflatten(list(given), program.call_spec.in_spec)
    try:
        return torch.export.export(program.module(), args, kwargs)
    except (AssertionError, RuntimeError, ValueError) as error:
        told = str(error).strip().splitlines()[0]
        raise InputError(
            source, [Problem("--dim", f"the model does not take these extents: {told}")]
        ) from error


def _example(node: fx.Node, extents: Mapping[str, int]) -> Any:
    """An input of the given extents, all zeros; what is no tensor stays what it is."""
    val = node.meta.get("val")
    if not isinstance(val, torch.Tensor):
        return val
    shape = [
        one
        if isinstance(one, int)
        else int(one.node.expr.subs({s: extents[str(s)] for s in one.node.expr.free_symbols}))
        for one in val.shape
    ]
    return torch.zeros(shape, dtype=val.dtype, device=val.device)


# --- what the model brings ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Brought:
    """A parameter, buffer or constant of a model, and its name there."""

    name: str
    tensor: torch.Tensor


def _brought(program: ExportedProgram) -> dict[str, Brought]:
    """What the model brings, by placeholder."""
    found = {}
    held = {**program.state_dict, **program.constants}
    for spec in program.graph_signature.input_specs:
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            tensor = held[spec.target]
            found[spec.arg.name] = Brought(str(spec.target), tensor.detach())
    return found


def _array(tensor: torch.Tensor, dtype: DType) -> Array:
    """A tensor's elements in the type of its input."""
    plain = tensor.detach().cpu().contiguous()
    bits = {2: torch.int16, 1: torch.int8}
    of_torch_alone = plain.dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
    found: Array = (plain.view(bits[plain.element_size()]) if of_torch_alone else plain).numpy()
    return found.view(dtype.numpy) if of_torch_alone else found.astype(dtype.numpy)


# --- what is said, and what is not ----------------------------------------------------------------------


def _written_to(program: ExportedProgram) -> Iterator[Unsaid]:
    """Buffers and inputs that the model writes to: a graph has results alone."""
    for place, spec in enumerate(program.graph_signature.output_specs):
        if spec.kind is not OutputKind.USER_OUTPUT:
            told = f"the model writes to {spec.target}, and a graph has results alone; export it without"
            yield Unsaid(f"/graph/output/{place}", str(spec.target), spec.kind.name.lower(), told)


def _unsaid(found: Lowered) -> list[Unsaid]:
    """Operations that outputs depend on and that could not be said, in the order of the graph."""
    waiting = [node for node in found.graph.nodes if node.op == "output"]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        if node.op == "output" or found.folded.known.get(node) is None:
            new = [one for one in node.all_input_nodes if one not in seen]
            seen.update(new)
            waiting += new
    told = []
    for place, node in enumerate(found.graph.nodes):
        follows = node.target is operator.getitem and node.args[0].name in found.refused
        if node in seen and node.name in found.refused and not follows:
            reason = found.refused[node.name].removeprefix(f"{node.target}: ")
            told.append(Unsaid(f"/graph/node/{place}", node.name, str(node.target), reason))
    return told


def _results(
    found: Lowered, program: ExportedProgram, contents: Mapping[str, torch.Tensor], unsaid: list[Unsaid]
) -> list[Result]:
    """The values of outputs; those that cannot be said are noted."""
    nodes = {node.name: node for node in found.graph.nodes}
    results = []
    for place, name in enumerate(program.graph_signature.user_outputs):
        pointer = f"/graph/output/{place}"
        try:
            results.append(Result(str(name), pointer, _result(found, nodes.get(str(name)), contents)))
        except Untaken as reason:
            unsaid.append(Unsaid(pointer, str(name), "output", str(reason)))
    return results


def _result(found: Lowered, node: fx.Node | None, contents: Mapping[str, torch.Tensor]) -> Value:
    """The value of an output."""
    if node is None:
        raise Untaken("it is no tensor")
    value = found.values.get(node.name)
    if isinstance(value, Value):
        return value
    if node.op != "placeholder":
        raise Untaken("it is no tensor")
    if node.name in contents:
        known = contents[node.name]
        return number(known.item()) if known.ndim == 0 else said(found.writer, known.numpy())
    val = node.meta["val"]
    return found.writer.input(node.name, tuple(val.shape), dtype_of(val.dtype))
