"""Calls of `scaled_dot_product_attention` kept whole where nothing asks for gradients.

While torch traces, it decomposes such a call into what would compute it on the device. With tensors that only have
shapes it does not always find the kernel that it takes without a compiler: torch 2.11 then writes out products and a
softmax in f32, several times as slow, where it launches cuDNN's attention otherwise. As one operator a call is one
node for pieces to begin with, the same on every device; and where no piece has it, torch's own call computes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch._higher_order_ops.flex_attention import flex_attention
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.flop_counter import register_flop_formula

from wsopt.torch.nested import graphs_of
from wsopt.torch.operators import LIBRARY
from wsopt.torch.say_attention import attention
from wsopt.torch.table import entry
from wsopt.torch.values import Value
from wsopt.torch.writer import Writer

_DIMENSIONS = 4
_AUTOCAST = torch.amp.autocast_mode._enter_autocast
_PARAMETERS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
"""Those of `scaled_dot_product_attention` that may be given by place, in their order."""
_FIXED = {"dropout_p": 0.0, "is_causal": False, "scale": None, "enable_gqa": False}
"""Those that are no tensors, and what they are if not given."""

LIBRARY.define(
    "attention(Tensor query, Tensor key, Tensor value, Tensor? mask, bool causal, float? scale, bool groups)"
    " -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order),
)


def _computed(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None,
    causal: bool, scale: float | None, groups: bool,
) -> torch.Tensor:  # fmt: skip
    """Torch's own attention, laid out as `_fake` says."""
    if groups and mask is not None:  # of these two together torch makes products and a softmax
        key, value = (one.repeat_interleave(query.shape[1] // one.shape[1], 1) for one in (key, value))
        groups = False
    result = scaled_dot_product_attention(
        query, key, value, _along_keys(mask), 0.0, causal, scale=scale, enable_gqa=groups
    )
    return result.transpose(1, 2).contiguous().transpose(1, 2)


def _along_keys(mask: torch.Tensor | None) -> torch.Tensor | None:
    """A mask whose keys lie side by side, which all of torch's kernels want: for another it writes out products and a
    softmax. A bias by heads, as of relative positions, often lies the other way. What it repeats is repeated still.
    """
    if mask is None or mask.stride(-1) == 1 or mask.shape[-1] == 1:
        return mask
    once = [slice(0, 1) if stride == 0 else slice(None) for stride in mask.stride()]
    return mask[tuple(once)].contiguous().expand(mask.shape)


def _fake(query: torch.Tensor, _key: torch.Tensor, value: torch.Tensor, *_how: object) -> torch.Tensor:
    """[batch, heads, rows, width], in memory [batch, rows, heads, width], as the product that follows wants it."""
    batch, heads, rows, _ = query.shape
    return query.new_empty((batch, rows, heads, value.shape[-1])).transpose(1, 2)


LIBRARY.impl("attention", _computed, "CompositeExplicitAutograd")
torch.library.register_fake("wsopt::attention", _fake, lib=LIBRARY)
OPERATOR = torch.ops.wsopt.attention.default


@register_flop_formula(torch.ops.wsopt.attention)  # type: ignore[untyped-decorator]  # torch says no type for it
def _flops(
    query: Sequence[int], key: Sequence[int], value: Sequence[int], *_how: object, **_more: object
) -> int:
    """Floating-point operations of both products, masked or not, by shapes, as torch counts its own attention."""
    batch, heads, rows, width = query
    return 2 * batch * heads * rows * key[2] * (width + value[3])


@entry(OPERATOR)
def _whole(
    w: Writer, q: Value, k: Value, v: Value, mask: Value | None, causal: bool, scale: float | None, _groups: bool
) -> Value:  # fmt: skip
    return attention(w, q, k, v, mask, causal, scale)


def asks_for_none(module: fx.GraphModule, inputs: Sequence[Any]) -> bool:
    """Whether a graph from Dynamo asks for no gradients, and computes nothing in another type than it has."""
    tensors = [*(x for x in inputs if isinstance(x, torch.Tensor)), *module.parameters(), *module.buffers()]
    trained = torch.is_grad_enabled() and any(one.requires_grad for one in tensors)
    devices = {one.device.type for one in tensors}
    recast = any(torch.is_autocast_enabled(device) for device in devices)
    within = any(node.target is _AUTOCAST for one in graphs_of(module) for node in one.graph.nodes)
    return not (trained or recast or within)


def keep_whole(module: fx.GraphModule) -> None:
    """Put `OPERATOR` in the place of the calls in a graph from Dynamo, which asks for no gradients."""
    for node in _calls(module):
        _keep(node)
    module.recompile()


def note_what_agrees(module: fx.GraphModule) -> None:
    """Have torch note of each call in a graph from Dynamo that it has as many values as keys, and batches alike.

    Of keys and values that a cache holds it has a symbol each, which no operation before the kernel compares, and
    calls in which they differ fail anyway. So no graph is compiled again for what is noted.
    """
    given = [_tensors(node) for node in _calls(module)]
    given += [node.args[:3] for node in module.graph.find_nodes(op="call_function", target=flex_attention)]
    for tensors in given:
        seen = [_seen(one) for one in tensors]
        if any(one is None or one.dim() != _DIMENSIONS for one in seen):
            continue
        query, key, value = seen
        _note(key.shape[-2], value.shape[-2])
        _note(query.shape[0], key.shape[0])
        _note(key.shape[0], value.shape[0])


def _note(one: int | torch.SymInt, other: int | torch.SymInt) -> None:
    """Have torch note that two extents that change are one, if they are equal while it compiles."""
    hints = [x.node.hint for x in (one, other) if isinstance(x, torch.SymInt) and x.node.has_hint()]
    if len(hints) == 2 and hints[0] == hints[1]:
        torch._check(one == other)


def _calls(module: fx.GraphModule) -> list[fx.Node]:
    return [*module.graph.find_nodes(op="call_function", target=scaled_dot_product_attention)]


def _tensors(node: fx.Node) -> list[Any]:
    """The queries, keys and values of a call."""
    given = _given(node)
    return [given[name] for name in _PARAMETERS[:3]]


def _given(node: fx.Node) -> dict[str, Any]:
    """The arguments of a call by name, as far as it has them."""
    return {**dict(zip(_PARAMETERS, node.args, strict=False)), **node.kwargs}


def _keep(node: fx.Node) -> None:
    """Replace one call, if the operator can say it, with its result as it is seen to lie."""
    given = _given(node)
    tensors, mask = _tensors(node), given.get("attn_mask")
    seen, result = [_seen(one) for one in tensors], _seen(node)
    fixed = [given.get(name, default) for name, default in _FIXED.items()]
    dropout, causal, scale, groups = fixed
    if any(one is None for one in (*seen, result)) or dropout or any(isinstance(x, fx.Node) for x in fixed):
        return
    if not _folds(seen, _seen(mask)):
        return
    # Three dimensions are batches of one head: results lie behind each other then, as torch has them.
    place = 1 if result.dim() == _DIMENSIONS - 1 and not groups else 0
    lies = _unfolded(_fake(*(_folded(one, one.dim(), place) for one in seen)), result.shape, place)
    free = lies.shape == result.shape and _lies_unseen(node, lies)
    if lies.shape != result.shape or not (free or result.is_contiguous()):
        return
    group = seen[0].shape[-3] // seen[1].shape[-3] if groups and result.dim() > _DIMENSIONS - 2 else 1
    with node.graph.inserting_before(node):
        if place and _seen(mask) is not None and _seen(mask).dim() == result.dim():
            mask = fx.Proxy(mask).unsqueeze(place).node
        folded = [_folded(fx.Proxy(one), result.dim(), place).node for one in tensors]
        call = node.graph.call_function(OPERATOR, (*folded, mask, causal, scale, group > 1))
        kept = _unfolded(fx.Proxy(call), result.shape, place)
        kept = kept if free else kept.contiguous()
    node.replace_all_uses_with(kept.node)
    node.graph.erase_node(node)


def _folds(tensors: Sequence[torch.Tensor], mask: torch.Tensor | None) -> bool:
    """Whether dimensions before the last three may be one: all tensors have the same, and a mask none."""
    dims = tensors[0].dim()
    if any(one.dim() != dims for one in tensors):
        return False
    alike = all(one.shape[:-3] == tensors[0].shape[:-3] for one in tensors)
    return dims <= _DIMENSIONS or (alike and (mask is None or mask.dim() < _DIMENSIONS))


def _folded(x: Any, dims: int, place: int) -> Any:
    """A tensor of so many dimensions in four: the first are one, or there are more of extent 1 at a place."""
    for _ in range(_DIMENSIONS - dims):
        x = x.unsqueeze(place)
    return x if dims <= _DIMENSIONS else x.flatten(0, dims - _DIMENSIONS)


def _unfolded(x: Any, shape: Sequence[int], place: int) -> Any:
    """A tensor of four dimensions in those of a result."""
    for _ in range(_DIMENSIONS - len(shape)):
        x = x.squeeze(place)
    return x if len(shape) <= _DIMENSIONS else x.unflatten(0, tuple(shape[:-3]))


_VIEWS = ("transpose", "permute", "swapaxes", "contiguous", "reshape", "flatten")
"""Methods that read a tensor however it lies, and of which the last three may copy it."""


def _lies_unseen(node: fx.Node, lies: torch.Tensor) -> bool:
    """Whether nothing in a graph or behind it is otherwise if the result of a node `lies` in another way."""
    if lies.stride() == node.meta["example_value"].stride():
        return True
    for user in node.users:
        given = (*user.args[1:], *user.kwargs.values())
        viewed = user.op == "call_method" and user.target in _VIEWS and user.args[0] is node
        if not viewed or _seen(user) is None or any(isinstance(one, fx.Node) for one in given):
            return False
        if not _lies_unseen(user, getattr(lies, str(user.target))(*user.args[1:], **user.kwargs)):
            return False
    return True


def _seen(node: Any) -> Any:
    """The tensor of shapes alone that a node was traced with, if it is a node and one is known."""
    return node.meta.get("example_value") if isinstance(node, fx.Node) else None
