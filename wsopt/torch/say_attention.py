"""What the forms of attention that an FX graph has on one device or another mean in our graphs."""

from __future__ import annotations

import math

from wsopt.graph.types import DType
from wsopt.torch.table import as_numbers, aten, entry, found
from wsopt.torch.values import Untaken, Value
from wsopt.torch.writer import Writer, number


def attention(
    w: Writer, q: Value, k: Value, v: Value, mask: Value | None, causal: bool, scale: float | None
) -> Value:
    """softmax(scale * q @ k.T + mask) @ v of [batch, heads, rows, width] each; groups of query heads share keys.

    Scores and their softmax are f32; weights are rounded to the type of v, as every kernel for this does.
    """
    scores, v = scores_of(w, q, k, v, scale)
    if mask is not None and isinstance(mask.tensor, bool):  # the same everywhere, as one of no padding is
        if not mask.tensor:
            raise Untaken("attention whose mask lets nothing through")
        mask = None
    if mask is not None:
        mask = _as_truth_values(w, mask)
        boolean = w.dtype(mask) is DType.BOOL
        scores = (
            w.elementwise("where", mask, scores, number(-math.inf))
            if boolean
            else w.elementwise("add", scores, mask)
        )
    if causal:
        rows, columns = scores.shape[-2:]
        seen = w.elementwise("less_equal", w.index((1, columns), 1), w.index((rows, 1), 0))
        scores = w.elementwise("where", seen, scores, number(-math.inf))
    return weighted(w, scores, v)


def scores_of(w: Writer, q: Value, k: Value, v: Value, scale: float | None) -> tuple[Value, Value]:
    """The scores of every query head, by 1 / sqrt(width) if no scale is given, and the values of each."""
    heads, shared = q.shape[1], k.shape[1]
    if heads % shared:
        raise Untaken(f"{heads} query heads of {shared} heads of keys")
    if heads != shared:
        k, v = (_for_groups(w, one, heads // shared) for one in (k, v))
    scores = w.matmul(q, k, transpose_b=True)
    return as_numbers("mul", w, scores, 1 / math.sqrt(q.shape[-1]) if scale is None else float(scale)), v


def weighted(w: Writer, scores: Value, v: Value) -> Value:
    """The values weighted by the softmax of their scores."""
    return w.matmul(w.cast(w.softmax(scores), w.dtype(v)), v)


_LEAST = -65504.0
"""The least number of f16. Torch puts it, -65536 or -inf in the place of what a mask of truth values leaves out."""


def _as_truth_values(w: Writer, mask: Value) -> Value:
    """A mask that is added, as the truth values that torch has made it of for kernels that take no others.

    Truth values that come from outside stay as they are: no kernel reads them.
    """
    node = w.nodes.get(str(mask.tensor))
    if node is not None and node.op == "cast":
        node = w.nodes.get(str(node.inputs[0]))
    if node is None or node.op != "where":
        return mask
    seen, kept, left_out = node.inputs
    made = kept == 0 and not isinstance(left_out, str) and left_out <= _LEAST
    made = made and w.types[str(seen)].shape == node.type.shape and not _reads_truth_values(w, str(seen))
    return Value(seen, mask.dims) if made else mask


def _reads_truth_values(w: Writer, tensor: str) -> bool:
    """Whether a tensor is, or depends on, one of truth values that comes from outside."""
    node = w.nodes.get(tensor)
    if node is None:
        return w.types[tensor].dtype is DType.BOOL
    return any(_reads_truth_values(w, name) for name in node.tensors)


def _for_groups(w: Writer, x: Value, group: int) -> Value:
    """Keys of [batch, heads, ...] as those of `group` query heads each."""
    batch, heads, *rest = x.shape
    apart = w.view(x, (batch, heads, 1, *rest))
    return w.view(w.expand(apart, (batch, heads, group, *rest)), (batch, heads * group, *rest))


def _no_dropout(dropout: float) -> None:
    if dropout:
        raise Untaken("attention with dropout")


@entry(*found(aten, "_scaled_dot_product_flash_attention"))
def _flash(
    w: Writer, q: Value, k: Value, v: Value, dropout: float = 0.0, causal: bool = False,
    _mask: bool = False, *, scale: float | None = None,
) -> tuple[Value]:  # fmt: skip
    _no_dropout(dropout)
    return (attention(w, q, k, v, None, causal, scale),)


@entry(*found(aten, "_scaled_dot_product_flash_attention_for_cpu"))
def _flash_for_cpu(
    w: Writer, q: Value, k: Value, v: Value, dropout: float = 0.0, causal: bool = False,
    *, attn_mask: Value | None = None, scale: float | None = None,
) -> tuple[Value]:  # fmt: skip
    _no_dropout(dropout)
    return (attention(w, q, k, v, attn_mask, causal, scale),)


@entry(
    *found(aten, "_scaled_dot_product_efficient_attention"),
    *found(aten, "_scaled_dot_product_cudnn_attention"),
)
def _with_bias(
    w: Writer, q: Value, k: Value, v: Value, bias: Value | None, _sums: bool, dropout: float = 0.0,
    causal: bool = False, _mask: bool = False, *, scale: float | None = None,
) -> tuple[Value]:  # fmt: skip
    _no_dropout(dropout)
    return (attention(w, q, k, v, bias, causal, scale),)


@entry(*found(aten, "_scaled_dot_product_fused_attention_overrideable"))
def _overrideable(
    w: Writer, q: Value, k: Value, v: Value, bias: Value | None = None, dropout: float = 0.0,
    causal: bool = False, _mask: bool = False, *, scale: float | None = None,
) -> tuple[Value]:  # fmt: skip
    _no_dropout(dropout)
    return (attention(w, q, k, v, bias, causal, scale),)
