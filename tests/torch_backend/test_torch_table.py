"""Every entry of the table against the operation that it says, on the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch import Tensor, fx  # noqa: E402

from wsopt.graph.serialize import graph_to_json  # noqa: E402
from wsopt.graph.types import Graph, Input  # noqa: E402
from wsopt.runtime.raw_graph import raw_graph  # noqa: E402
from wsopt.runtime.torch_reference import evaluate, relative_error  # noqa: E402
from wsopt.torch.lower import Lowered, lower  # noqa: E402
from wsopt.torch.operations import TABLE  # noqa: E402
from wsopt.torch.table import found  # noqa: E402
from wsopt.torch.values import Value  # noqa: E402
from wsopt.torch.whole_attention import OPERATOR  # noqa: E402

aten, prims = torch.ops.aten, torch.ops.prims


def normal(*shape: int, dtype: Any = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(dtype)


def positive(*shape: int) -> Tensor:
    return normal(*shape).abs() + 0.5


def coins(*shape: int, seed: int = 0) -> Tensor:
    return normal(*shape, seed=seed) > 0


X, Y, P = normal(4, 6), normal(4, 6, seed=1), positive(4, 6)
NEARER = torch.tensor([-0.5, -0.13, -1e-2, -1e-6, -1e-9, 0, 1e-8, 1e-4, 0.12, 0.126])
ODD = torch.tensor([-2.0, -0.0, 0.0, 3.0, math.nan, math.inf, -math.inf])
ROW = normal(6, seed=2)
LABELS = torch.tensor([[5], [0], [2], [2]])
INFINITE = X.where(X < 0.5, math.inf).where(X > -0.5, -math.inf)
LEFT, RIGHT = normal(4, 6, dtype=torch.bfloat16), normal(6, 8, dtype=torch.bfloat16)
THREE, FOUR = normal(2, 4, 6, dtype=torch.bfloat16), normal(2, 6, 8, dtype=torch.bfloat16)
GROUPED = normal(16, 32, dtype=torch.bfloat16), normal(3, 32, 64, dtype=torch.bfloat16)
ENDS = torch.tensor([5, 5, 16], dtype=torch.int32)
COINS, OTHERS = coins(4, 6), coins(4, 6, seed=1)
INT = {"dtype": torch.int64, "layout": torch.strided, "device": torch.device("cpu")}

EIGHTH, OTHER = (normal(rows, 64).to(torch.float8_e4m3fn) for rows in (16, 32))
IMAGE = normal(2, 16, 4, 4, dtype=torch.bfloat16), normal(8, 16, 1, 1, dtype=torch.bfloat16)
GRADIENT = normal(2, 8, 4, 4, seed=1, dtype=torch.bfloat16)
PLAIN = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
"""The arguments of a convolution that has no stride, padding, dilation and groups."""

CASES: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    *((getattr(aten, name).default, (X,), {}) for name in ("exp", "exp2", "tanh", "sigmoid", "erf", "sin")),
    *((getattr(aten, name).default, (X,), {}) for name in ("cos", "neg", "abs", "relu", "silu")),
    *((getattr(aten, name).default, (P,), {}) for name in ("log", "log2", "sqrt", "rsqrt", "reciprocal")),
    *((getattr(aten, name).default, (X, Y), {}) for name in ("maximum", "minimum")),
    *((getattr(aten, name).Tensor, (X, ROW), {}) for name in ("mul", "div", "add", "sub", "rsub")),
    *((getattr(aten, name).Scalar, (X, 3), {}) for name in ("mul", "div", "add", "sub", "rsub")),
    *((getattr(aten, name).Tensor, (X, Y), {"alpha": 2}) for name in ("add", "sub")),
    *((getattr(aten, name).Tensor, (X, X), {}) for name in ("eq", "ne", "le", "ge")),
    *((getattr(aten, name).Tensor, (X, Y), {}) for name in ("lt", "gt")),
    *((getattr(aten, name).Scalar, (X, 0.25), {}) for name in ("eq", "ne", "lt", "le", "gt", "ge")),
    *((aten.pow.Tensor_Scalar, (P, power), {}) for power in (2, 3, 0.5, -0.5, 1.5)),
    (aten.pow.Tensor_Tensor, (P, Y), {}),
    *((aten.pow.Scalar, (base, X), {}) for base in (2.0, 0.3)),
    (aten.pow.Scalar, (2.0, torch.arange(-3, 4, dtype=torch.int32)), {}),
    (aten.mul.Tensor, (COINS, X), {}),
    *((getattr(aten, name).default, (x,), {}) for name in ("expm1", "log1p") for x in (NEARER, P)),
    *((getattr(aten, name).default, (ODD,), {}) for name in ("sign", "isnan", "isinf")),
    *((fma, (X, Y, P), {}) for fma in found(prims, "fma")),
    *((fma, operands, {}) for fma in found(prims, "fma") for operands in ((0.01, X, P), (X, 2.0, P))),
    *(
        (op, (X, Y, P), how)
        for op in (aten.addcmul.default, aten.addcdiv.default)
        for how in ({}, {"value": -0.5})
    ),
    (aten.repeat.default, (X, [1, 1]), {}),
    (aten.glu.default, (X, 0), {}),
    (aten.glu.default, (normal(2, 4, 6, dtype=torch.bfloat16), -2), {}),
    (aten.gelu.default, (X,), {}),
    (aten.gelu.default, (X,), {"approximate": "tanh"}),
    (aten.clamp.default, (X, -0.5, 0.5), {}),
    (aten.clamp.default, (X, None, 0.5), {}),
    (aten.clamp.Tensor, (X, Y), {}),
    (aten.clamp_min.default, (X, 0.1), {}),
    (aten.clamp_max.default, (X, 0.1), {}),
    *((getattr(aten, name).Tensor, (X, y), {}) for name in ("clamp_min", "clamp_max") for y in (Y, ROW)),
    (aten.where.self, (COINS, X, Y), {}),
    (aten.where.self, (COINS, X, ROW), {}),
    *((getattr(aten, name).default, (COINS, OTHERS), {}) for name in ("logical_and", "logical_or")),
    *((getattr(aten, name).Tensor, (COINS, OTHERS), {}) for name in ("bitwise_and", "bitwise_or")),
    *((getattr(aten, name).default, (COINS,), {}) for name in ("logical_not", "bitwise_not")),
    (prims.convert_element_type.default, (X, torch.bfloat16), {}),
    (prims.convert_element_type.default, (LEFT, torch.float32), {}),
    (prims.convert_element_type.default, (X, torch.float8_e4m3fn), {}),
    *((prims.convert_element_type.default, (x, torch.bool), {}) for x in (ODD, COINS)),
    (aten._to_copy.default, (X,), {"dtype": torch.float8_e5m2}),
    (aten._to_copy.default, (X,), {"dtype": torch.float16}),
    (aten.clone.default, (X,), {"memory_format": torch.contiguous_format}),
    (aten.clone.default, (X[:, :1].expand(4, 6),), {}),
    *((aten.copy.default, (x, y), {}) for x, y in ((X, Y), (LEFT, Y), (X, LEFT), (X, ROW), (COINS, OTHERS))),
    (aten.copy.default, (normal(3, 4, 6), normal(4, 1)), {}),
    *((getattr(aten, name).default, (X,), {}) for name in ("alias", "detach", "lift_fresh_copy")),
    *((getattr(aten, name).default, (X, [2, 2, 6]), {}) for name in ("view", "reshape", "_unsafe_view")),
    (aten.squeeze.dim, (normal(4, 1, 6), 1), {}),
    (aten.squeeze.dims, (normal(4, 1, 1, 6), [1, 2]), {}),
    (aten.squeeze.default, (normal(4, 1, 6),), {}),
    (aten.unsqueeze.default, (X, 1), {}),
    (aten.expand.default, (normal(4, 1, 6), [3, 4, 5, -1]), {}),
    (aten.permute.default, (normal(2, 3, 4, 5), [0, 2, -1, 1]), {}),
    (aten.permute.default, (normal(2, 1, 4), [1, 2, 0]), {}),
    (aten.transpose.int, (normal(2, 3, 4), -1, 0), {}),
    (aten.t.default, (X,), {}),
    (aten.t.default, (ROW,), {}),
    (aten.full.default, ([2, 3], 1.5), {"device": torch.device("cpu")}),
    (aten.scalar_tensor.default, (2.5,), {}),
    (aten.full_like.default, (X, 1.5), {}),
    (
        prims.iota.default,
        (5,),
        {"start": 2, "step": 3, "dtype": torch.int64, "device": "cpu", "requires_grad": False},
    ),
    (aten.arange.default, (5,), INT),
    (aten.arange.start, (2, 7), INT),
    (aten.arange.start_step, (2, 9, 3), INT),
    (aten.sum.dim_IntList, (normal(2, 3, 4), [0, 2]), {}),
    (aten.sum.dim_IntList, (normal(2, 3, 4), [-1], True), {}),
    (aten.sum.dim_IntList, (LEFT, [1]), {"dtype": torch.float32}),
    (aten.sum.default, (normal(2, 3, 4),), {}),
    (aten.mean.default, (normal(2, 3, 4),), {}),
    (aten.mean.dim, (normal(2, 3, 4), [-1], True), {}),
    (aten.mean.dim, (normal(2, 3, 4), [1]), {}),
    (aten.amax.default, (normal(2, 3, 4), [2]), {}),
    (aten.amin.default, (normal(2, 3, 4), [0], True), {}),
    (aten.max.dim, (normal(2, 3, 4), 1), {}),
    (aten.min.dim, (normal(2, 3, 4), -1, True), {}),
    (aten.var_mean.correction, (X, [1]), {"correction": 0, "keepdim": True}),
    (aten.var_mean.correction, (X, [1]), {}),
    (aten.var.correction, (X, [0, 1]), {"correction": 1}),
    (aten._softmax.default, (X, -1, False), {}),
    (aten._softmax.default, (normal(2, 3, 4), 1, False), {}),
    (aten.native_layer_norm.default, (X, [6], ROW, normal(6, seed=3), 1e-5), {}),
    (aten.native_layer_norm.default, (X, [6], None, None, 1e-5), {}),
    (aten._log_softmax.default, (X, -1, False), {}),
    (aten.logsumexp.default, (normal(2, 3, 4), [1]), {}),
    (aten.logsumexp.default, (normal(2, 3, 4), [-1], True), {}),
    (aten.slice.Tensor, (normal(4, 6, 8), 1, 2, 5), {}),
    (aten.slice.Tensor, (normal(4, 6, 8), -1, 1, 9223372036854775807, 3), {}),
    (aten.slice.Tensor, (normal(4, 6), 0, -2), {}),
    (aten.slice.Tensor, (normal(5, 9), 1, 1, 8, 3), {}),
    (aten.select.int, (normal(4, 6, 8), 1, -2), {}),
    (aten.select.int, (normal(4, 6), 0, 3), {}),
    (aten.unbind.int, (normal(4, 3, 8), 1), {}),
    (aten.constant_pad_nd.default, (normal(4, 6, 8), [1, 2, 0, 3]), {}),
    (aten.constant_pad_nd.default, (normal(4, 6), [0, 2], 0.0), {}),
    (aten.embedding.default, (normal(9, 8), torch.tensor([[3, 8, 0], [1, 1, 7]])), {}),
    (aten.embedding.default, (normal(9, 8), torch.tensor([2, 4], dtype=torch.int32), 0), {}),
    *((aten.cumsum.default, (x, dim), {}) for x in (X, X.t(), ODD) for dim in (0, -1)),
    (aten.cumsum.default, (normal(2, 3, 5), -2), {}),
    (aten.cumsum.default, (normal(4, 1, 6).expand(4, 5, 6), 2), {}),
    (aten.cumsum.default, (LEFT, 1), {"dtype": torch.float32}),
    (aten.cumsum.default, (X, 1), {"dtype": torch.bfloat16}),
    (aten.cumsum.default, (COINS, 1), {"dtype": torch.float32}),
    (aten.cumsum.default, (torch.tensor(2.5), 0), {}),
    *((aten.gather.default, (x, 1, LABELS), {}) for x in (X, LEFT, normal(6, 4).t(), INFINITE)),
    (aten.gather.default, (X, -2, torch.tensor([[3, 0, 1, 1, 2, 0]])), {}),
    (aten.gather.default, (X, 1, LABELS[:3].int()), {}),
    (aten.gather.default, (normal(2, 5, 3, 4), 1, torch.tensor([[[[1, 2], [4, 0], [3, 3]]]] * 2)), {}),
    *((aten.scatter.value, (x, 1, LABELS, -1.0), {}) for x in (X, LEFT, normal(6, 4).t(), INFINITE)),
    (aten.scatter.value, (normal(2, 5, 3), -2, torch.tensor([[[1, 4, 0]], [[2, 2, 3]]]), math.nan), {}),
    (aten.scatter.src, (X, 1, LABELS, Y), {}),
    (aten.scatter.src, (X, 0, torch.tensor([[3, 0, 1, 1, 2, 0]]), Y[:2]), {}),
    *((aten.slice_scatter.default, (X, normal(2, 6), 0, *part), {}) for part in ((1, 3), (-2,), (None, 2))),
    (aten.slice_scatter.default, (X, Y, -1), {}),
    (aten.slice_scatter.default, (X, Y, 1, -9, 99), {}),
    (aten.slice_scatter.default, (X.t(), normal(6, 1), -1, 2, 3), {}),
    (aten.slice_scatter.default, (X, normal(4, 1), 1, 4, 6, 2), {}),
    *((aten.slice_scatter.default, (X, Y[:, ::3], 1, at, 6, 3), {}) for at in range(3)),
    (aten.slice_scatter.default, (LEFT, X[:, 1:3], 1, 2, 4), {}),
    (aten.slice_scatter.default, (normal(3, 1, 5).expand(3, 4, 5), normal(3, 2, 5), 1, 1, 3), {}),
    *((aten.select_scatter.default, (X, ROW, 0, at), {}) for at in (0, 2, -1)),
    (aten.select_scatter.default, (normal(5, 3).t(), normal(3), -1, -2), {}),
    (aten.select_scatter.default, (normal(3, 1), normal(3), 1, 0), {}),
    (aten.split_with_sizes.default, (normal(4, 6), [1, 2, 3], 1), {}),
    (aten.split.Tensor, (normal(4, 6), 4, 1), {}),
    (aten.cat.default, ([normal(2, 4, 6), normal(2, 3, 6)], 1), {}),
    (aten.cat.default, ([normal(1, 4, 6), normal(1, 4, 6, seed=1), normal(1, 4, 2)], -1), {}),
    (aten.cat.default, ([normal(2, 4, 6), normal(4, 1).expand(2, 4, 1)], -1), {}),
    (aten.convolution.default, (*IMAGE, normal(8, dtype=torch.bfloat16), *PLAIN), {}),
    (aten.convolution.default, (*IMAGE, None, *PLAIN), {}),
    *(
        (aten.convolution.default, (IMAGE[0], weight, bias, *PLAIN[:3], turned, PLAIN[4], groups), {})
        for turned, groups, weight in (
            (False, 4, normal(8, 4, 1, 1, dtype=torch.bfloat16)),
            (True, 1, normal(16, 8, 1, 1, dtype=torch.bfloat16)),
            (True, 4, normal(16, 2, 1, 1, dtype=torch.bfloat16)),
        )
        for bias in (None, normal(8, dtype=torch.bfloat16))
    ),
    *(
        (
            aten.convolution_backward.default,
            (GRADIENT, IMAGE[0], weight, [8], *PLAIN[:3], turned, [0, 0], groups, wanted),
            {},
        )
        for turned, groups, weight in (
            (False, 1, IMAGE[1]),
            (False, 4, normal(8, 4, 1, 1, dtype=torch.bfloat16)),
            (True, 4, normal(16, 2, 1, 1, dtype=torch.bfloat16)),
        )
        for wanted in ([True, False, False], [False, True, False], [False, False, True])
    ),
    *(
        (aten._scaled_mm.default, (EIGHTH, OTHER.t(), *scales), {"out_dtype": torch.bfloat16, **how})
        for scales in ((positive(1), positive(1)), (positive(16, 1), positive(1, 32)))
        for how in ({}, {"bias": normal(32, dtype=torch.bfloat16)}, {"use_fast_accum": True})
    ),
    (aten._grouped_mm.default, (*GROUPED, ENDS), {}),
    (aten.mm.default, (LEFT, RIGHT), {}),
    (aten.bmm.default, (THREE, FOUR), {}),
    (aten.addmm.default, (normal(8, dtype=torch.bfloat16), LEFT, RIGHT), {}),
    (aten.addmm.default, (normal(4, 8, dtype=torch.bfloat16), LEFT, RIGHT), {"beta": 2, "alpha": 0.5}),
    (aten.addmm.default, (normal(8, dtype=torch.bfloat16), LEFT, RIGHT), {"beta": 0}),
    (aten.baddbmm.default, (normal(2, 4, 8, dtype=torch.bfloat16), THREE, FOUR), {}),
    (aten.addbmm.default, (normal(4, 8, dtype=torch.bfloat16), THREE, FOUR), {}),
    (aten.addbmm.default, (normal(8, dtype=torch.bfloat16), THREE, FOUR), {"beta": 0.5, "alpha": 2}),
]
"""An operation, its arguments, and its arguments by name."""


def said(
    target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> tuple[Lowered, fx.Node, dict[str, Tensor]]:
    """What the table says of one call."""
    graph, given = fx.Graph(), dict[str, Tensor]()

    def place(tensor: Tensor) -> fx.Node:
        node = graph.placeholder(f"x{len(given)}")
        node.meta["val"] = given[node.name] = tensor
        return node

    placed = torch.utils._pytree.tree_map_only(Tensor, place, list(args))
    named = torch.utils._pytree.tree_map_only(Tensor, place, kwargs)
    call = graph.call_function(target, tuple(placed), named)
    call.meta["val"] = result
    graph.output(call)
    return lower(fx.GraphModule(torch.nn.Module(), graph)), call, given


def computed(lowered: Lowered, value: Value, given: dict[str, Tensor], dtype: Any) -> Tensor:
    """A value, by the reference of the nodes that were written."""
    if not isinstance(value.tensor, str):
        return torch.full(value.shape, value.tensor, dtype=dtype)
    writer = lowered.writer
    if value.tensor in given:
        tensor = given[value.tensor]
    else:
        inputs = tuple(Input(name, writer.types[name]) for name in given if name in writer.types)
        graph = Graph("said", "", inputs, tuple(writer.nodes.values()), (value.tensor,))
        raw = raw_graph(graph_to_json(graph))
        tensor = evaluate(raw, {item.name: given[item.name].contiguous() for item in raw.inputs})[
            value.tensor
        ]
    atoms = [atom.extent for dim in value.dims for atom in dim]
    return tensor.reshape(value.held).expand(atoms).reshape(value.shape)


def check(lowered: Lowered, call: fx.Node, given: dict[str, Tensor], results: Any) -> None:
    assert lowered.refused == {}
    found = lowered.values[call.name]
    values = found if isinstance(found, tuple) else (found,)
    expected = tuple(results) if isinstance(results, tuple | list) else (results,)
    for value, want in zip(values, expected, strict=False):
        if want is None:
            assert value is None
            continue
        assert isinstance(value, Value)
        got = computed(lowered, value, given, want.dtype)
        assert got.shape == want.shape
        if not isinstance(found, tuple):
            assert got.dtype == (torch.int32 if want.dtype is torch.int64 else want.dtype)
        if want.dtype.is_floating_point:
            limit = {torch.float32: 1e-6, torch.float16: 1e-3}.get(want.dtype, 5e-3)
            assert relative_error(got, want) < limit
        else:
            assert torch.equal(got.to(want.dtype), want)


@pytest.mark.parametrize(
    ("target", "args", "kwargs"), CASES, ids=[f"{number}-{case[0]}" for number, case in enumerate(CASES)]
)
def test_an_entry_means_what_torch_computes(
    target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    result = target(*args, **kwargs)
    if (
        target is aten.convolution_backward.default
    ):  # torch may give weights' gradient where a bias's alone is wanted
        result = tuple(one if wanted else None for one, wanted in zip(result, args[-1], strict=True))
    check(*said(target, args, kwargs, result), result)


@pytest.mark.parametrize("target", [aten.expm1.default, aten.log1p.default])
def test_what_is_small_near_zero_keeps_its_digits(target: Any) -> None:
    want = target(NEARER.double())
    lowered, call, given = said(target, (NEARER,), {}, want.float())
    value = lowered.values[call.name]
    assert isinstance(value, Value)
    got = computed(lowered, value, given, torch.float32).double()
    assert torch.allclose(got, want, rtol=2e-6, atol=0)


# --- attention ------------------------------------------------------------------------------------------

Q = normal(2, 4, 8, 16, dtype=torch.bfloat16)
K, V = (normal(2, 4, 12, 16, dtype=torch.bfloat16, seed=seed) for seed in (1, 2))
FEW, SHARED = (normal(2, 2, 12, 16, dtype=torch.bfloat16, seed=seed) for seed in (3, 4))
MASK = normal(2, 1, 8, 12, dtype=torch.bfloat16)
SEEN = coins(2, 1, 8, 12, seed=5) | (torch.arange(12) == 0)

ATTENTIONS: list[tuple[Any, Callable[..., tuple[tuple[Any, ...], dict[str, Any]]], bool]] = [
    (
        "_scaled_dot_product_flash_attention",
        lambda mask, causal, scale: ((0.0, causal), {"scale": scale}),
        False,
    ),
    (
        "_scaled_dot_product_flash_attention_for_cpu",
        lambda mask, causal, scale: ((0.0, causal), {"attn_mask": mask, "scale": scale}),
        True,
    ),
    (
        "_scaled_dot_product_efficient_attention",
        lambda mask, causal, scale: ((mask, False, 0.0, causal), {"scale": scale}),
        True,
    ),
    (
        "_scaled_dot_product_cudnn_attention",
        lambda mask, causal, scale: ((mask, False, 0.0, causal, False), {"scale": scale}),
        True,
    ),
    (
        "_scaled_dot_product_fused_attention_overrideable",
        lambda mask, causal, scale: ((mask, 0.0, causal), {"scale": scale}),
        True,
    ),
]
"""The operations that attention becomes on some device, how each takes its arguments, and whether it has a mask."""


@pytest.mark.parametrize(("name", "arguments", "masks"), ATTENTIONS, ids=[name for name, _, _ in ATTENTIONS])
@pytest.mark.parametrize(
    ("mask", "causal", "scale", "grouped"),
    [
        (None, False, None, False),
        (None, True, 0.5, False),
        (MASK, False, None, False),
        (SEEN, False, None, False),
        (None, True, None, True),
        (MASK, False, None, True),
    ],
)
def test_every_form_of_attention_is_said(
    name: str, arguments: Any, masks: bool, mask: Any, causal: bool, scale: float | None, grouped: bool
) -> None:
    if mask is not None and not masks:
        pytest.skip("it has no mask")
    k, v = (FEW, SHARED) if grouped else (K, V)
    want = torch.nn.functional.scaled_dot_product_attention(
        Q.float(), k.float(), v.float(), mask if mask is None or mask.dtype is torch.bool else mask.float(),
        is_causal=causal, scale=scale, enable_gqa=grouped,
    ).bfloat16()  # fmt: skip
    rest, named = arguments(mask, causal, scale)
    lowered, call, given = said(getattr(aten, name).default, (Q, k, v, *rest), named, (want,))
    check(lowered, call, given, (want,))


def test_rows_that_see_nothing_give_zeros() -> None:
    mask = torch.full((2, 1, 8, 12), -math.inf, dtype=torch.bfloat16)
    target = aten._scaled_dot_product_flash_attention_for_cpu.default
    lowered, call, given = said(target, (Q, K, V), {"attn_mask": mask}, (torch.zeros_like(Q),))
    found = lowered.values[call.name]
    assert isinstance(found, tuple)
    assert not computed(lowered, found[0], given, torch.bfloat16).any()


def test_every_entry_has_a_case() -> None:
    tested = {target for target, _, _ in CASES} | {getattr(aten, name).default for name, _, _ in ATTENTIONS}
    # test_torch_whole_attention.py, test_torch_flex.py and test_torch_masks.py have these.
    tested |= {OPERATOR, torch.ops.higher_order.flex_attention, aten.index.Tensor}
    assert set(TABLE) == tested


# --- what is not said -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "args", "kwargs", "reason"),
    [
        (aten.copy.default, (X.int(), X), {}, "a result of i32 from f32"),
        (aten.cumprod.default, (X, 1), {}, "no entry for aten.cumprod"),
        (aten.cumsum.default, (X.int(), 1), {"dtype": torch.int32}, "cumsum in torch.int32"),
        (aten.cumsum.default, (X.int(), 1), {}, "cumsum of i32"),
        (aten.gather.default, (X, 1, LABELS.expand(4, 2)), {}, "name several places of a row"),
        (aten.gather.default, (X.int(), 1, LABELS), {}, "gather of i32"),
        (aten.scatter.value, (X, 1, LABELS[:3], 1.0), {}, "a part of the rows"),
        (aten.slice_scatter.default, (X, Y[:, :2], 1, 1, 5, 2), {}, "every 2-th element of a part"),
        (aten.slice_scatter.default, (X.int(), Y[:, :2], 1, 1, 3), {}, "a tensor with another part of i32"),
        (aten.slice.Tensor, (normal(4, 1).expand(4, 6).exp(), 1, 0, 3), {}, ""),
        (aten.cat.default, ([X] * 9, 0), {}, "9 tensors one behind the other"),
        (aten.constant_pad_nd.default, (X, [1, 1], 2.0), {}, "something else than zeros"),
        (aten.constant_pad_nd.default, (X, [-1, 1]), {}, "cuts off"),
        (
            aten.convolution.default,
            (IMAGE[0], normal(8, 16, 2, 2, dtype=torch.bfloat16), None, *PLAIN),
            {},
            "with a window",
        ),
        (aten.convolution.default, (*IMAGE, None, [2, 2], *PLAIN[1:]), {}, "a convolution with strides"),
        (aten.convolution.default, (*IMAGE, None, PLAIN[0], [1, 1], *PLAIN[2:]), {}, "zeros around it"),
        (
            aten.convolution_backward.default,
            (GRADIENT, *IMAGE, None, *PLAIN, [True, True, False]),
            {},
            "several gradients of a convolution at once",
        ),
        (aten.exp.default, (X.double(),), {}, "float64"),
        (aten.mul.Tensor, (X.long(), X.long()), {}, "int64"),
        (aten.exp.default, (torch.arange(4, dtype=torch.int32),), {}, "exp of integers"),
        (prims.convert_element_type.default, (X, torch.int32), {}, "cuts off"),
        (aten.sum.default, (COINS,), {}, "reduce_sum of bool"),
        (aten.exp.default, (normal(0, 4),), {}, "no elements"),
        (aten._to_copy.default, (X,), {"dtype": torch.bfloat16, "device": torch.device("cpu")}, "device"),
        (aten.sum.dim_IntList, (X[:, :1].expand(4, 6), [1]), {}, ""),
    ],
)
def test_what_is_not_said_has_its_reason(
    target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], reason: str
) -> None:
    result = target(*args, **kwargs)
    lowered, call, given = said(target, args, kwargs, result)
    if not reason:
        check(lowered, call, given, result)
        return
    assert reason in lowered.refused[call.name]
    assert not lowered.writer.nodes
