"""The operation table: an entry for each op of the format, with its operands, attributes, rules and meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from wsopt.graph import grouped, indexed, scales
from wsopt.graph import infer as rule
from wsopt.graph import meaning as value
from wsopt.graph.infer import DTypeRule
from wsopt.graph.meaning import Array, Meaning
from wsopt.graph.op_spec import AttrKind as AttrKind
from wsopt.graph.op_spec import AttrSpec, OpSpec
from wsopt.graph.op_spec import CostClass as CostClass
from wsopt.primitives import Family, FromTable, Primitive


def _elementwise(
    name: str, operands: str, dtype: DTypeRule, meaning: Meaning, doc: str, *attrs: AttrSpec
) -> OpSpec:
    names = tuple(operands.split())
    return OpSpec(name, names, CostClass.ELEMENTWISE, rule.broadcast, dtype, meaning, doc, attrs, 0, names)


def _arithmetic(name: str, operands: str, function: Callable[..., Array], doc: str) -> OpSpec:
    return _elementwise(name, operands, rule.arithmetic, value.numbers(function), doc)


def _real(name: str, operands: str, function: Callable[..., Array], doc: str) -> OpSpec:
    return _elementwise(name, operands, rule.real, value.reals(function), doc)


def _reduction(name: str, dtype: DTypeRule, meaning: Meaning, doc: str) -> OpSpec:
    attrs = (AttrSpec("axis", AttrKind.AXIS, required=True), AttrSpec("keepdims", AttrKind.FLAG, False))
    return OpSpec(name, ("x",), CostClass.REDUCTION, rule.reduced_shape, dtype, meaning, doc, attrs)


def _norm(name: str, operands: str, meaning: Meaning, eps: float, doc: str) -> OpSpec:
    attrs = (AttrSpec("eps", AttrKind.REAL, eps),)
    names = tuple(operands.split())
    return OpSpec(name, names, CostClass.COMPOSITE, rule.norm_shape, rule.real, meaning, doc, attrs)


_FAMILIES: Mapping[Family, tuple[DTypeRule, Callable[[Callable[..., Array]], Meaning]]] = MappingProxyType(
    {
        Family.ARITHMETIC: (rule.arithmetic, value.numbers),
        Family.REAL: (rule.real, value.reals),
        Family.COMPARISON: (rule.comparison, value.numbers),
        Family.LOGICAL: (rule.logical, value.bools),
        Family.CHOICE: (rule.choice, value.choices),
    }
)
"""The dtype rule of each family of primitives, and the types in which its functions are applied."""


def _of_primitive(entry: Primitive) -> OpSpec | None:
    """The op that a primitive is; None for one that the format does not have."""
    if not entry.doc:
        return None
    dtype, applied = _FAMILIES[entry.family]
    operands = " ".join(entry.operands)
    return _elementwise(entry.name, operands, dtype, applied(entry.function), entry.doc)


_MATMUL = OpSpec(
    "matmul",
    ("a", "b"),
    CostClass.CONTRACTION,
    rule.matmul_shape,
    rule.matmul_dtype,
    value.matmul,
    "Contract a's last axis with b's second-to-last, after the transposes; leading axes broadcast.",
    (
        AttrSpec("transpose_a", AttrKind.FLAG, False),
        AttrSpec("transpose_b", AttrKind.FLAG, False),
        AttrSpec("precision", AttrKind.CHOICE, choices=("tf32", "ieee")),
        AttrSpec("accumulate", AttrKind.CHOICE, "f32", choices=("f32", "fast", "promoted")),
    ),
)
_GROUPED_MATMUL = OpSpec(
    "grouped_matmul",
    ("a", "b", "offsets"),
    CostClass.CONTRACTION,
    grouped.grouped_shape,
    grouped.grouped_dtype,
    grouped.grouped_matmul,
    "The rows of a from offsets[g - 1] up to offsets[g] times matrix g of b; zeros in rows behind the last offset.",
    tuple(attr for attr in _MATMUL.attrs if attr.name != "transpose_a"),
)
_CAST = OpSpec(
    "cast",
    ("x",),
    CostClass.ELEMENTWISE,
    rule.same_shape,
    rule.cast_dtype,
    value.cast,
    "x rounded to nearest even; f8 and integers saturate.",
    (AttrSpec("dtype", AttrKind.DTYPE, required=True),),
)
_IOTA = OpSpec(
    "iota",
    (),
    CostClass.ELEMENTWISE,
    rule.iota_shape,
    rule.index_dtype,
    value.iota,
    "The index along `axis`, as i32.",
    (AttrSpec("shape", AttrKind.SHAPE, required=True), AttrSpec("axis", AttrKind.AXIS, required=True)),
)
_RESHAPE = OpSpec(
    "reshape",
    ("x",),
    CostClass.MOVEMENT,
    rule.reshaped,
    rule.same_dtype,
    value.reshape,
    "The elements of x in row-major order, in another shape; the dtype stays.",
    (AttrSpec("shape", AttrKind.SHAPE, required=True),),
)
_TRANSPOSE = OpSpec(
    "transpose",
    ("x",),
    CostClass.MOVEMENT,
    rule.transposed,
    rule.same_dtype,
    value.transpose,
    "The axes of x in the order of `perm`; the dtype stays.",
    (AttrSpec("perm", AttrKind.PERM, required=True),),
)
_SLICE = OpSpec(
    "slice",
    ("x",),
    CostClass.MOVEMENT,
    rule.sliced,
    rule.same_dtype,
    value.slice_,
    "Every `step`-th element of x along `axis`, from `start` up to `stop`, which is left out; the dtype stays.",
    (
        AttrSpec("axis", AttrKind.AXIS, -1),
        AttrSpec("start", AttrKind.PLACE, 0),
        AttrSpec("stop", AttrKind.PLACE),
        AttrSpec("step", AttrKind.COUNT, 1),
    ),
)
_CONCAT = OpSpec(
    "concat",
    ("a", "b", "c", "d", "e", "f", "g", "h"),
    CostClass.MOVEMENT,
    rule.joined,
    rule.one_dtype,
    value.concat,
    "Two to eight tensors one behind the other along `axis`; their other extents and their dtypes are the same.",
    (AttrSpec("axis", AttrKind.AXIS, -1),),
    optional=6,
)
_PAD = OpSpec(
    "pad",
    ("x",),
    CostClass.MOVEMENT,
    rule.padded,
    rule.same_dtype,
    value.pad,
    "x with `low` zeros before it and `high` behind it along each axis; the dtype stays.",
    (AttrSpec("low", AttrKind.COUNTS, required=True), AttrSpec("high", AttrKind.COUNTS, required=True)),
)
_GATHER = OpSpec(
    "gather",
    ("x", "indices"),
    CostClass.MOVEMENT,
    rule.gathered,
    rule.gathered_dtype,
    value.gather,
    "The elements of x at i32 indices along `axis`; zeros for an index outside, negative ones among them.",
    (AttrSpec("axis", AttrKind.AXIS, 0),),
)
_SCATTER_ADD = OpSpec(
    "scatter_add",
    ("x", "indices", "rows"),
    CostClass.MOVEMENT,
    indexed.scattered_shape,
    indexed.scattered_dtype,
    indexed.scatter_add,
    "x with `rows` added to its rows at i32 indices; a row whose index is outside is left out.",
)
_CUMSUM = OpSpec(
    "cumsum",
    ("x",),
    CostClass.COMPOSITE,
    rule.axis_shape,
    rule.arithmetic,
    indexed.cumsum,
    "The sum of each element and all before it along `axis`.",
    (AttrSpec("axis", AttrKind.AXIS, required=True),),
)
_SOFTMAX = OpSpec(
    "softmax",
    ("x",),
    CostClass.COMPOSITE,
    rule.axis_shape,
    rule.real,
    value.softmax,
    "exp(x - max) over its sum along `axis`; a row that is all -inf gives zeros.",
    (AttrSpec("axis", AttrKind.AXIS, -1),),
)
_SHARED_SCALES = (AttrSpec("group", AttrKind.COUNT, positional=True), AttrSpec("block", AttrKind.BLOCK))
_DEQUANTIZE = OpSpec(
    "dequantize",
    ("q", "scale", "zero"),
    CostClass.COMPOSITE,
    scales.dequantize_shape,
    scales.dequantize_dtype,
    scales.dequantize,
    "(q - zero) * scale, one scale for each `group` elements of the last axis, or each `block` of the last two.",
    _SHARED_SCALES,
    optional=1,
    scalars=("zero",),
)
_QUANTIZED = (AttrSpec("dtype", AttrKind.DTYPE, required=True), *_SHARED_SCALES)
_QUANTIZE = OpSpec(
    "quantize",
    ("x",),
    CostClass.COMPOSITE,
    scales.quantize_shape,
    scales.quantize_dtype,
    scales.quantize,
    "x over the scale of its `group` or `block`, which is as `quantize_scale` has it, rounded to nearest even.",
    _QUANTIZED,
)
_QUANTIZE_SCALE = OpSpec(
    "quantize_scale",
    ("x",),
    CostClass.COMPOSITE,
    scales.scales_shape,
    scales.scale_dtype,
    scales.quantize_scale,
    "The largest magnitude of each `group` or `block` over 448 (f8e4m3) or 127 (i8), 1 where that is zero.",
    _QUANTIZED,
)

_OTHERS: tuple[OpSpec, ...] = (
    _MATMUL,
    _GROUPED_MATMUL,
    _real("pow", "a b", np.power, "a to the power b, in f32 for integers too."),
    _real("reciprocal", "x", np.reciprocal, "1 / x."),
    _real("tanh", "x", np.tanh, "The hyperbolic tangent of x."),
    _real("sigmoid", "x", value.sigmoid, "1 / (1 + exp(-x))."),
    _arithmetic("relu", "x", value.relu, "The larger of x and 0."),
    _real("silu", "x", value.silu, "x * sigmoid(x)."),
    _elementwise(
        "gelu",
        "x",
        rule.real,
        value.gelu,
        "x times the normal distribution function of x, by erf or by the tanh approximation.",
        AttrSpec("approximate", AttrKind.CHOICE, "none", choices=("none", "tanh")),
    ),
    _CAST,
    _IOTA,
    _RESHAPE,
    _TRANSPOSE,
    _SLICE,
    _CONCAT,
    _PAD,
    _GATHER,
    _SCATTER_ADD,
    _reduction("reduce_sum", rule.arithmetic, value.reduction(np.sum), "The sum along `axis`."),
    _reduction(
        "reduce_max", rule.arithmetic, value.reduction(np.max), "The largest along `axis`; nan if one is."
    ),
    _reduction(
        "reduce_min", rule.arithmetic, value.reduction(np.min), "The smallest along `axis`; nan if one is."
    ),
    _reduction("reduce_mean", rule.real, value.reduce_mean, "The mean along `axis`, in f32."),
    _reduction(
        "reduce_argmax",
        indexed.place_dtype,
        indexed.argmax,
        "The first place of the largest along `axis`, as i32; of the first not-a-number where there is one.",
    ),
    _CUMSUM,
    _reduction(
        "logsumexp",
        rule.real,
        value.logsumexp,
        "log of the sum of exp(x) along `axis`; -inf for a row of -inf alone.",
    ),
    _SOFTMAX,
    _norm("rms_norm", "x weight", value.rms_norm, 1e-6, "x / sqrt(mean(x^2) + eps) * weight, last axis."),
    _norm(
        "layer_norm",
        "x weight bias",
        value.layer_norm,
        1e-5,
        "(x - mean) / sqrt(variance + eps) * weight + bias, over the last axis.",
    ),
    _DEQUANTIZE,
    _QUANTIZE,
    _QUANTIZE_SCALE,
)

OPS: Mapping[str, OpSpec] = FromTable(_of_primitive, {spec.name: spec for spec in _OTHERS})
"""Every op of the format by name: those that are scalar primitives, then the others."""
