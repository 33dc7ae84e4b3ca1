"""Layers that torch runs as one operation where nothing asks for gradients, written out as what they compute.

`nn.TransformerEncoderLayer` calls such an operation, which no compiler sees into: all of the layer's products
would go the usual way.
"""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import fx
from torch.nn.functional import gelu, layer_norm, linear, relu

from wsopt.torch.whole_attention import OPERATOR

_DIMENSIONS = 3
Given: TypeAlias = torch.Tensor | None


def write_out(module: fx.GraphModule) -> None:
    """Have a graph from Dynamo, which asks for no gradients, call `encoder_layer` for torch's operation."""
    one = torch._transformer_encoder_layer_fwd
    for node in module.graph.find_nodes(op="call_function", target=one):
        source = node.args[0].meta.get("example_value") if node.args else None
        if isinstance(source, torch.Tensor) and not source.is_nested and source.dim() == _DIMENSIONS:
            node.target = encoder_layer
    module.recompile()


def encoder_layer(
    source: torch.Tensor, width: int, heads: int, weight: torch.Tensor, bias: Given, out_weight: torch.Tensor,
    out_bias: Given, use_gelu: bool, norm_first: bool, eps: float, norm_weight_1: Given, norm_bias_1: Given,
    norm_weight_2: Given, norm_bias_2: Given, ffn_weight_1: torch.Tensor, ffn_bias_1: Given,
    ffn_weight_2: torch.Tensor, ffn_bias_2: Given, mask: Given = None, mask_type: int | None = None,
) -> torch.Tensor:  # fmt: skip
    """What `torch._transformer_encoder_layer_fwd` computes; its norms stand before or behind both parts."""

    def first_norm(x: torch.Tensor) -> torch.Tensor:
        return layer_norm(x, (width,), norm_weight_1, norm_bias_1, eps)

    def second_norm(x: torch.Tensor) -> torch.Tensor:
        return layer_norm(x, (width,), norm_weight_2, norm_bias_2, eps)

    x = first_norm(source) if norm_first else source
    x = source + linear(_attention(x, heads, weight, bias, mask, mask_type), out_weight, out_bias)
    x = x if norm_first else first_norm(x)
    inside = linear(second_norm(x) if norm_first else x, ffn_weight_1, ffn_bias_1)
    inside = gelu(inside) if use_gelu else relu(inside)
    x = x + linear(inside, ffn_weight_2, ffn_bias_2)
    return x if norm_first else second_norm(x)


def _attention(
    x: torch.Tensor, heads: int, weight: torch.Tensor, bias: Given, mask: Given, mask_type: int | None,
) -> torch.Tensor:  # fmt: skip
    """Attention of rows to each other, all heads beside each other."""
    batch, rows, width = x.shape
    q, k, v = (
        one.view(batch, rows, heads, width // heads).transpose(1, 2)
        for one in linear(x, weight, bias).chunk(3, dim=-1)
    )
    seen = None if mask is None else ~_for_heads(mask.to(torch.bool), mask_type)
    found: torch.Tensor = OPERATOR(q, k, v, seen, False, None, False)
    return found.transpose(1, 2).reshape(batch, rows, width)


def _for_heads(left_out: torch.Tensor, mask_type: int | None) -> torch.Tensor:
    """A mask of rows and columns, of columns of each batch (1), or of all four dimensions as one of four."""
    if mask_type == 1:
        return left_out[:, None, None, :]
    return left_out
