"""Writes an attention as a library's call, as people would: SDPA, FlexAttention, flash-attn-4.

Every text is a function of the graph's inputs that makes views, masks and whatever else a caller would keep, and
returns a launch: what is timed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wsopt.bench.attention import Attention, find_attention
from wsopt.bench.eager_source import Inapplicable, variable
from wsopt.bench.heads import Heads, Shape, find_heads, of_keys, of_queries
from wsopt.bench.raw_region import BATCH, COLUMN, GROUP, HEAD, INNER, ROW, STREAM, RawRegion, RawView
from wsopt.bench.scores import Expr, Names, leaves, linear, neat, take_scale, text_of, text_of_sum
from wsopt.runtime.raw_graph import RawGraph

SDPA_BACKENDS = {"sdpa": "", "sdpa_cudnn": "CUDNN_ATTENTION", "sdpa_flash": "FLASH_ATTENTION"}
_INDEX = {"iota_row": "q_idx", "iota_stream": "kv_idx", "scores": "score"}


@dataclass(frozen=True, slots=True)
class Call:
    """An attention as libraries see it: its four-dimensional tensors, and what their texts are called.

    `shapes` are of all tensors of the graph.
    """

    graph: RawGraph
    found: Attention
    heads: Heads
    shapes: Mapping[str, Shape]

    def view(self, view: RawView, wanted: tuple[Shape, Shape]) -> str:
        """The text of an input as a tensor of these sizes and strides."""
        given = self.graph.input(view.tensor)
        assert given is not None, "views of a region are of inputs"
        name = variable(view.tensor)
        if view.offset == 0 and wanted == (given.shape, given.strides or _dense(given.shape)):
            return name
        return _strided(view, *wanted)

    def inputs(self) -> str:
        """The line that makes the query, the key and the value."""
        f = self.found
        texts = (
            self.view(f.query, of_queries(f.query, self.heads, INNER)),
            self.view(f.key, of_keys(f.key, self.heads, INNER)),
            self.view(f.value, of_keys(f.value, self.heads, COLUMN)),
        )
        return f"query_, key_, value_ = {', '.join(texts)}"

    def result(self, name: str) -> str:
        """The text of a result (batch, heads, queries, column) in the shape of the graph's output."""
        size, strides = of_queries(self.found.output.view, self.heads, COLUMN)
        long = [dim for dim in range(4) if size[dim] > 1]
        order = sorted(long, key=lambda dim: -strides[dim])
        order += [dim for dim in range(4) if dim not in order]
        shape = self.shapes[self.found.output.name]
        if [dim for dim in order if dim in long] == long:
            return name if shape == size else f"{name}.reshape({shape})"
        return f"{name}.permute({tuple(order)}).reshape({shape})"


def _strided(view: RawView, sizes: Shape, strides: Shape) -> str:
    """The text of an input as a tensor that begins where a view does. Raises Inapplicable for zeros around it."""
    if view.padded:
        raise Inapplicable(f"{view.tensor} has zeros around it, which are a copy to a library")
    begin = f", {view.offset}" if view.offset else ""
    return f"{variable(view.tensor)}.as_strided({sizes}, {strides}{begin})"


def _dense(shape: Shape) -> Shape:
    strides, step = [0] * len(shape), 1
    for dim in reversed(range(len(shape))):
        strides[dim] = step
        step *= shape[dim]
    return tuple(strides)


def attention_call(graph: RawGraph, region: RawRegion | None, shapes: Mapping[str, Shape]) -> Call:
    """The attention of a graph. Raises Inapplicable with the reason if it is none."""
    found = find_attention(region)
    return Call(graph, found, find_heads(found, shapes), shapes)


def _function(
    call: Call, name: str, lines: Sequence[str], launch: Sequence[str], outputs: Sequence[str]
) -> str:
    arguments = ", ".join(variable(item.name) for item in call.graph.inputs)
    inner = [*launch, f"return {', '.join(outputs)},"]
    body = [
        call.inputs(),
        *lines,
        "",
        "def launch():",
        *(f"    {line}" for line in inner),
        "",
        "return launch",
    ]
    text = [f"def {name}({arguments}):", *(f"    {line}" if line else "" for line in body), ""]
    return "\n".join(text)


# --- what a library can say -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Mask:
    """A mask as libraries have it: the last key that any query sees, and the keys that query i sees by

    i - `left` <= j <= i + `right`, None for no such limit.
    """

    keys: int
    left: int | None
    right: int | None


def _mask(found: Attention, library: str) -> _Mask:
    """The mask of an attention. Raises Inapplicable if it is not made of these limits."""
    keys, left, right = found.keys, None, None
    for row, key, constant in found.bounds:
        if (row, key) == (0, -1):
            keys = min(keys, constant + 1)
        elif (row, key) == (1, -1):
            right = constant if right is None else min(right, constant)
        elif (row, key) == (-1, 1):
            left = constant if left is None else min(left, constant)
        else:
            raise Inapplicable(f"{library} has no mask of {_said(found)}")
    if found.others:
        raise Inapplicable(f"{library} has no mask of {_said(found)}")
    return _Mask(keys, left, right)


def _named(found: Attention) -> Names:
    """Names of leaves for people: indices, and tensors by their own."""
    return lambda leaf: (
        _INDEX.get(leaf.op) or (found.region.sources[leaf.name].tensor if leaf.op == "source" else leaf.op)
    )


def _said(found: Attention) -> str:
    """The conditions of the mask in words of its indices and tensors."""
    return " and ".join(text_of(x, _named(found)) for x in found.conditions)


def _no_scores(call: Call, library: str) -> Inapplicable:
    return Inapplicable(f"{library} has no scores of {text_of_sum(call.found.score, _named(call.found))}")


def _sliced(call: Call, mask: _Mask) -> list[str]:
    """Lines that leave off the keys that no query sees."""
    if mask.keys == call.found.keys:
        return []
    return [f"key_, value_ = key_[:, :, :{mask.keys}], value_[:, :, :{mask.keys}]"]


def _no_lse(call: Call, library: str) -> None:
    if call.found.lse is not None:
        raise Inapplicable(f"{library} does not give output {call.found.lse.name}, a statistic of the rows")


# --- SDPA -----------------------------------------------------------------------------------------------


def sdpa_source(call: Call, name: str) -> str:
    """`F.scaled_dot_product_attention`, by the back end that `name` asks for. Inapplicable if it cannot say it."""
    _no_lse(call, "SDPA")
    scale, bias = _scale_and_bias(call)
    mask = _mask(call.found, "SDPA")
    lines = _sliced(call, mask)
    arguments = ["query_", "key_", "value_", *_sdpa_mask(call, mask, bias, name, lines), f"scale={scale!r}"]
    if call.heads.group > 1:
        arguments.append("enable_gqa=True")
    attend = f"o = F.scaled_dot_product_attention({', '.join(arguments)})"
    backend = SDPA_BACKENDS[name]
    launch = [f"with sdpa_kernel(SDPBackend.{backend}):", f"    {attend}"] if backend else [attend]
    return _function(call, name, lines, launch, [call.result("o")])


def _scale_and_bias(call: Call) -> tuple[float, RawView | None]:
    """The factor of the scores, and the tensor that is added to them, if any."""
    scale, score = take_scale(call.found.score)
    bias: RawView | None = None
    for factor, term in score.terms:
        if term.op == "scores":
            continue
        view = call.found.region.sources.get(term.name) if term.op == "source" else None
        if view is None or factor != 1 or bias is not None or not {ROW, STREAM} <= set(view.roles):
            raise _no_scores(call, "SDPA")
        bias = view
    return scale, bias


def _sdpa_mask(call: Call, mask: _Mask, bias: RawView | None, name: str, lines: list[str]) -> list[str]:
    """The arguments for mask and bias; lines that make them are added to `lines`."""
    if mask.left is not None or mask.right not in (None, 0, call.found.keys - call.heads.queries):
        raise Inapplicable(f"SDPA has a mask of {_said(call.found)} only as a tensor of all scores")
    if bias is not None and mask.right is None:
        _check_bias(call, bias, name)
        lines.append(f"bias_ = {call.view(bias, _bias_layout(call, bias))}[..., :{mask.keys}]")
        return ["attn_mask=bias_"]
    if bias is not None:
        raise Inapplicable("SDPA has no causal mask beside a tensor that is added to the scores")
    if mask.right is None:
        return []
    if mask.right == 0:
        return ["is_causal=True"]
    if name == "sdpa_cudnn" or mask.keys != call.found.keys:
        raise Inapplicable("SDPA with cuDNN has causal masks from the first key only, not up to the last")
    lines.append(f"mask_ = causal_lower_right({call.heads.queries}, {call.found.keys})")
    return ["attn_mask=mask_"]


def _check_bias(call: Call, bias: RawView, name: str) -> None:
    if name == "sdpa_flash":
        raise Inapplicable("SDPA with FlashAttention takes no tensor that is added to the scores")
    if bias.dtype != call.found.query.dtype:
        raise Inapplicable(f"SDPA takes a tensor to add in the type of the queries only, not {bias.dtype}")


def _bias_layout(call: Call, bias: RawView) -> tuple[Shape, Shape]:
    heads, batch = call.heads, bias.stride(BATCH)
    if heads.group > 1:
        raise Inapplicable("SDPA adds no tensor to the scores of grouped heads here")
    outer, step = (batch * heads.heads, batch) if heads.merged else (batch, bias.stride(GROUP))
    size = (heads.batch, heads.heads, heads.queries, call.found.keys)
    return size, (outer, step, bias.stride(ROW), bias.stride(STREAM))


# --- FlexAttention --------------------------------------------------------------------------------------


def flex_source(call: Call) -> str:
    """Compiled FlexAttention, with its score_mod and mask_mod written from the graph's own values."""
    scale, score = take_scale(call.found.score)
    used: dict[str, str] = {}
    names = _flex_names(call, used)
    score_text = text_of_sum(score, names)
    mask_text = " & ".join(f"({text_of(x, names)})" for x in call.found.conditions)
    lines = [f"{used[name]} = {_source_text(call, name)}" for name in used]
    arguments = ["query_", "key_", "value_"]
    if score_text != "score":
        lines += ["", "def score_mod(score, b, h, q_idx, kv_idx):", f"    return {score_text}"]
        arguments.append("score_mod=score_mod")
    if mask_text:
        sizes = f"{_mask_sizes(call)}, {call.heads.queries}, {call.found.keys}"
        lines += ["", "def mask_mod(b, h, q_idx, kv_idx):", f"    return {mask_text}", ""]
        lines.append(f"block_mask = create_block_mask(mask_mod, {sizes}, device=query_.device)")
        arguments.append("block_mask=block_mask")
    arguments.append(f"scale={scale!r}")
    if call.heads.group > 1:
        arguments.append("enable_gqa=True")
    if call.found.lse is None:
        launch = [f"o = flex_attention({', '.join(arguments)})"]
        return _function(call, "flex", lines, launch, [call.result("o")])
    launch = [f"o, aux = flex_attention({', '.join(arguments)}, return_aux=AuxRequest(lse=True))"]
    return _function(call, "flex", lines, launch, _in_order(call, call.found.lse.name))


def _in_order(call: Call, lse: str) -> list[str]:
    """The texts of the outputs in the graph's order."""
    texts = {
        call.found.output.name: call.result("o"),
        lse: f"aux.lse.reshape({call.shapes[lse]})",
    }
    return [texts[name] for name in call.graph.outputs]


def _flex_names(call: Call, used: dict[str, str]) -> Names:
    """Names of leaves inside score_mod and mask_mod; sources that are read are noted in `used`."""
    heads = call.heads
    index = {BATCH: heads.batch_index(), HEAD: heads.head_index(), GROUP: heads.group_index()}
    index |= {ROW: "q_idx", STREAM: "kv_idx"}

    def name(leaf: Expr) -> str:
        if leaf.op == "source":
            view = call.found.region.sources[leaf.name]
            own = used.setdefault(leaf.name, f"{variable(view.tensor)}_{len(used)}")
            return f"{own}[{', '.join(index[role] for role in view.roles) or '0'}]"
        if leaf.op in ("iota_batch", "iota_group"):
            return f"({index[leaf.op.removeprefix('iota_')]})"
        return _INDEX[leaf.op]

    return name


def _source_text(call: Call, name: str) -> str:
    view = call.found.region.sources[name]
    sizes, strides = (view.extents, view.strides) if view.roles else ((1,), (1,))
    return _strided(view, sizes, strides)


def _mask_sizes(call: Call) -> str:
    """Batches and heads of the block mask: one for all unless the mask depends on them."""
    heads, read = call.heads, set[str]()
    for leaf in (leaf for x in call.found.conditions for leaf in leaves(x)):
        source = call.found.region.sources.get(leaf.name)
        read.update(source.roles if source else (leaf.op.removeprefix("iota_"),))
    by_head = bool({HEAD, GROUP} & read) or (BATCH in read and heads.merged and heads.heads > 1)
    return f"{heads.batch if BATCH in read else None}, {heads.heads * heads.group if by_head else None}"


# --- flash-attn-4 ---------------------------------------------------------------------------------------


def flash_attn_4_source(call: Call) -> str:
    """flash-attn-4's `flash_attn_func`, which wants (batch, sequence, heads, head)."""
    _no_lse(call, "flash_attn_func")
    scale, cap = _scale_and_cap(call)
    mask = _mask(call.found, "flash_attn_func")
    shift = mask.keys - call.heads.queries  # its indices are aligned at the ends of queries and keys
    arguments = ["*turned", f"softmax_scale={scale!r}"]
    if mask.left is None and mask.right == shift:
        arguments.append("causal=True")
    elif mask.left is not None or mask.right is not None:
        left = None if mask.left is None else mask.left + shift
        arguments.append(f"window_size=({left}, {None if mask.right is None else mask.right - shift})")
    if cap:
        arguments.append(f"softcap={cap!r}")
    lines = [*_sliced(call, mask), "turned = [x.transpose(1, 2) for x in (query_, key_, value_)]"]
    launch = [
        f"o = flash_attn_func({', '.join(arguments)})",
        "o = (o[0] if isinstance(o, tuple) else o).transpose(1, 2)",
    ]
    return _function(call, "flash_attn_4", lines, launch, [call.result("o")])


def _scale_and_cap(call: Call) -> tuple[float, float]:
    """The factor of the scores, and the cap c of c tanh(scores / c), 0 for none."""
    match call.found.score.terms:
        case ((factor, Expr("scores")),):
            return float(factor), 0.0
        case ((cap, Expr("tanh", (inner,))),) if cap > 0:
            found = linear(inner)
            if found.constant == 0 and len(found.terms) == 1 and found.terms[0][1] == Expr("scores"):
                return neat(cap * found.terms[0][0]), float(cap)
    raise _no_scores(call, "flash_attn_func")
