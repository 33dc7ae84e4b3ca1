"""The backend of `torch.compile`: pieces of a graph become operators, and Inductor compiles the graph with them."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import fx

from wsopt.errors import InternalError, RequirementError
from wsopt.machine.load import load_machine
from wsopt.torch.by_strides import tell_by_shape
from wsopt.torch.choose import Judged
from wsopt.torch.chosen_rows import put_rows_together, take_rows_apart
from wsopt.torch.cutting import Oracle, Way, best_cut, ways
from wsopt.torch.execute import by_kernel, referred
from wsopt.torch.gradients import put_gradients_together, take_gradients_apart
from wsopt.torch.later import Later, Work, copied
from wsopt.torch.masks import join_masks, repeat_masks
from wsopt.torch.nested import graphs_of, nested_graphs
from wsopt.torch.operands import copy_operands, leave_copies
from wsopt.torch.operators import operator
from wsopt.torch.options import Options, read_options
from wsopt.torch.outside import Limits, Within, has_changing
from wsopt.torch.piece import Piece
from wsopt.torch.rounds import Settled, settle
from wsopt.torch.siblings import families, join, with_more
from wsopt.torch.splice import splice
from wsopt.torch.strided import put_together, take_apart
from wsopt.torch.whole_attention import asks_for_none, keep_whole, note_what_agrees
from wsopt.torch.whole_layers import write_out

_ORACLES: dict[str, Oracle] = {}


_WATCHES: list[list[Settled]] = []


@contextlib.contextmanager
def watching() -> Iterator[list[Settled]]:
    """The graphs that are compiled while this lasts."""
    seen: list[Settled] = []
    _WATCHES.append(seen)
    try:
        yield seen
    finally:
        _WATCHES[:] = [one for one in _WATCHES if one is not seen]


def backend(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Any:
    """Compile a graph from Dynamo, for `torch.compile(model, backend="wsopt", options={...})`.

    Raises InputError for wrong options, RequirementError where kernels are to be executed and there is no GPU.
    """
    read = read_options(options, mode)
    load_machine(read.machine)
    if read.execute == "kernel" and not torch.cuda.is_available():
        raise RequirementError(
            "torch sees no GPU here, and a kernel needs one; options={'execute': 'reference', 'take': 'all'} compute "
            "the pieces in torch"
        )
    for graph in graphs_of(module):
        note_what_agrees(graph)
    usual = copied(module)
    if asks_for_none(module, inputs):
        for graph in graphs_of(module):
            write_out(graph)
            keep_whole(graph)
    limits = Limits()
    how = _with_inductor if read.rest == "inductor" else _eagerly
    compile_ = partial(how, options=read, limits=limits)
    found = compile_(module, inputs, _nothing_pends) if read.wait else Later(compile_, module, inputs)
    return (
        Within(found, usual, limits, partial(_usually, options=read)) if has_changing(usual.graph) else found
    )


Pend = Callable[[Work], None]
"""Takes the builds that a compilation does not wait for."""


def _nothing_pends(_work: Work) -> None:
    raise InternalError("a compilation that waits for its builds has left some")


def _usually(module: fx.GraphModule, inputs: Sequence[Any], options: Options) -> Any:
    """What computes a graph from Dynamo without pieces."""
    from torch._inductor.compile_fx import compile_fx

    if options.rest == "eager":
        return module
    return compile_fx(module, list(inputs), config_patches=dict(options.inductor) or None)


def _with_inductor(
    module: fx.GraphModule, inputs: Sequence[Any], pend: Pend, options: Options, limits: Limits
) -> Any:
    from torch._functorch import config as functorch_config
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner

    def inner(graph: fx.GraphModule, example: Sequence[Any], **how: Any) -> Any:
        kind = {one: bool(how.get(one)) for one in ("is_backward", "is_inference")}
        take(graph, options, pend, limits, **kind)
        return compile_fx_inner(graph, example, **how)

    # Its cache of whole graphs knows nothing of the operators that pieces become, and would call them unmade.
    with functorch_config.patch(enable_autograd_cache=False):
        return compile_fx(module, inputs, inner_compile=inner, config_patches=dict(options.inductor) or None)


def _eagerly(
    module: fx.GraphModule, inputs: Sequence[Any], pend: Pend, options: Options, limits: Limits
) -> Any:
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func
    from torch._inductor.decomposition import select_decomp_table

    importlib.import_module("torch._inductor.lowering")  # which its decomposition of pooling takes for loaded

    def forward(graph: fx.GraphModule, _example: Sequence[Any]) -> Any:
        take(graph, options, pend, limits)
        return make_boxed_func(graph.forward)

    def inference(graph: fx.GraphModule, _example: Sequence[Any]) -> Any:
        take(graph, options, pend, limits, is_inference=True)
        return make_boxed_func(graph.forward)

    def backward(graph: fx.GraphModule, _example: Sequence[Any]) -> Any:
        take(graph, options, pend, limits, is_backward=True)
        return make_boxed_func(graph.forward)

    compiled = aot_autograd(
        fw_compiler=forward,
        bw_compiler=backward,
        inference_compiler=inference,
        decompositions=select_decomp_table(),
        keep_inference_input_mutations=True,
    )
    return compiled(module, inputs)


def take(
    module: fx.GraphModule,
    options: Options,
    pend: Pend,
    limits: Limits,
    *,
    is_backward: bool = False,
    is_inference: bool = False,
) -> None:
    """Put operators for the pieces of an FX graph that are worth it into it, and into the graphs that it runs.

    What a backward graph is given is the forward graph's, and nothing of it counts as fixed before a call; nor are
    weights packed that are trained, which change at every step. `pend` takes the builds that are not waited for,
    `limits` the ranges of the pieces. Graphs that a graph runs are given what it has computed, and nothing of that is
    fixed.
    """
    for inside in nested_graphs(module):
        _take(inside, options, pend, limits, frozenset(), packs=False)
    fixed = frozenset[str]() if is_backward else constants(module.graph)
    _take(module, options, pend, limits, fixed, packs=is_inference and _may_pack(options))


def _take(
    module: fx.GraphModule,
    options: Options,
    pend: Pend,
    limits: Limits,
    fixed: frozenset[str],
    *,
    packs: bool,
) -> None:
    """Put operators into one graph. `fixed` are the inputs whose contents are there before a call."""
    oracle = _ORACLES.get(options.machine)
    if oracle is None:
        oracle = _ORACLES[options.machine] = Oracle(load_machine(options.machine))
    device = "cuda" if options.execute == "kernel" else None
    tell_by_shape(module.graph)
    take_apart(module.graph)
    take_rows_apart(module.graph)
    take_gradients_apart(module.graph)
    repeat_masks(module.graph)
    copy_operands(module.graph)
    later, settled = _settled(module, fixed, oracle, device, options, packs)
    for work in later:
        pend(work)
    if settled.lowered.graph is not module.graph:
        module.graph = settled.lowered.graph
    limits.note(piece.changing for piece in settled.taken)
    judged = settled.judged
    splice(settled.lowered, [(one, _operator(one, judged[one.key], options)) for one in settled.taken])
    put_together(module.graph)
    put_rows_together(module.graph)
    put_gradients_together(module.graph)
    join_masks(module.graph)
    leave_copies(module.graph)
    module.recompile()
    for seen in _WATCHES:
        seen.append(settled)


def _may_pack(options: Options) -> bool:
    """Whether kernels may read packed constants: of weights that are frozen, for CUDA graphs are replayed without a
    look at them; and not beside measurements, which know nothing of packing.
    """
    return options.frozen and options.take != "measure"


def _settled(
    module: fx.GraphModule,
    fixed: frozenset[str],
    oracle: Oracle,
    device: str | None,
    options: Options,
    packs: bool,
) -> tuple[list[Work], Settled]:
    """The builds that are not waited for, and what became of a graph. Products of one tensor are joined where a
    kernel of them together is taken, and only there.
    """
    plain = ways(module, fixed, oracle, device, packs=packs)
    apart = _products_apart(module, fixed, plain) if packs else None
    kept_apart: set[str] = set()
    later: list[Work] = []
    while True:
        trial, joined = (module, {}) if apart is None else _joined(module, fixed, apart, kept_apart)
        here = ways(trial, fixed, oracle, device, packs=packs) if joined else plain
        settled = settle(here, options, tells=bool(_WATCHES))
        if settled.pending:
            unchanged = ways(copied(trial), fixed, oracle, device, packs=packs)
            later.append(partial(settle, unchanged, replace(options, wait=True)))
        covered = frozenset[str]().union(*(piece.covered for piece in settled.taken))
        lost = {key for name, key in joined.items() if name not in covered}
        if not lost:
            return later, settled
        kept_apart |= lost


def _products_apart(
    module: fx.GraphModule, fixed: frozenset[str], plain: Sequence[Way]
) -> frozenset[str] | None:
    """The products with which kernels do more; None if there are none to be joined at all."""
    if not any(True for _ in families(module.graph, fixed)):
        return None
    return with_more(best_cut(plain)[1].pieces)


def _joined(
    module: fx.GraphModule, fixed: frozenset[str], apart: frozenset[str], kept_apart: Collection[str]
) -> tuple[fx.GraphModule, dict[str, str]]:
    """A copy of a graph with products of one tensor joined, and the keys of their families by the product's name; the
    graph itself where there are none.
    """
    if all(one.key in kept_apart for one in families(module.graph, fixed, apart)):
        return module, {}
    trial = copied(module)
    found = [one for one in families(trial.graph, fixed, apart) if one.key not in kept_apart]
    return trial, {join(trial.graph, family).name: family.key for family in found}


def _operator(piece: Piece, judged: Judged, options: Options) -> Any:
    """The operator of a piece and of all that are alike."""
    if options.execute != "kernel":
        return operator(f"reference_{piece.key}", piece.graph, referred(piece))
    assert judged.build is not None, "what a kernel computes was built"
    # Kernels of one graph differ by machine.
    text = "".join(text for name, text in sorted(judged.build.files.items()) if name.endswith("kernel.py"))
    source = hashlib.sha256(text.encode()).hexdigest()[:8] + ("_frozen" if options.frozen else "")
    return operator(f"piece_{piece.key}_{source}", piece.graph, by_kernel(piece, judged.build))


def constants(graph: fx.Graph) -> frozenset[str]:
    """The placeholders whose contents are fixed before a call: parameters and buffers that nothing here writes to."""
    context = torch._guards.TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    fixed = set(getattr(metadata, "static_input_indices", None) or ())
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    return frozenset(
        node.name for number, node in enumerate(placeholders) if number in fixed and not _is_written(node)
    )


def _is_written(node: fx.Node) -> bool:
    """Whether a call writes to a placeholder."""
    for user in node.users:
        schema = getattr(user.target, "_schema", None)
        if schema is not None and schema.is_mutable and user.args and user.args[0] is node:
            return True
    return False
