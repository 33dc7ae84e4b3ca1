"""The backend is right whatever a model does: writes, aliases, strides, offsets, changing sizes, casts, training."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch import Tensor, nn  # noqa: E402
from torch._dynamo.exc import BackendCompilerFailed  # noqa: E402
from torch_pieces import OPTIONS, copied_inputs, fresh, with_pieces  # noqa: E402

from wsopt.errors import InputError, RequirementError  # noqa: E402
from wsopt.graph import Graph, TensorType  # noqa: E402
from wsopt.runtime.torch_reference import relative_error  # noqa: E402
from wsopt.torch import backend, compiler, explain  # noqa: E402
from wsopt.torch.compiler import watching  # noqa: E402
from wsopt.torch.report import report_of  # noqa: E402
from wsopt.torch.rounds import Settled  # noqa: E402
from wsopt.torch.splice import call_names  # noqa: E402

B = torch.bfloat16


_fresh = pytest.fixture(autouse=True)(fresh)


def compiled(model: Callable[..., Any], **how: Any) -> Any:
    return torch.compile(model, backend=backend, options=OPTIONS, **how)


def pieces(seen: list[Settled]) -> list[str]:
    """The operations of each piece that was taken, but for casts and views."""
    quiet = ("cast", "reshape", "transpose")
    return [
        " ".join(node.op for node in piece.graph.nodes if node.op not in quiet)
        for one in seen
        for piece in one.taken
    ]


def check(model: Callable[..., Any], *inputs: Any, expected: list[str], **how: Any) -> Any:
    """Call a model with and without pieces; both give the same, in the same layout."""
    with torch.no_grad():
        plain = model(*inputs)
        with watching() as seen:
            found = compiled(model, **how)(*inputs)
    assert pieces(seen) == expected
    same(found, plain)
    return found


def same(found: Any, plain: Any) -> None:
    if isinstance(plain, tuple):
        assert len(found) == len(plain)
        for one, other in zip(found, plain, strict=True):
            same(one, other)
        return
    assert (found.shape, found.dtype, found.stride()) == (plain.shape, plain.dtype, plain.stride())
    assert torch.allclose(found.float(), plain.float(), rtol=2e-2, atol=2e-2)


W = (torch.randn(64, 128) / 8).to(B)


def product(x: Tensor) -> Tensor:
    return torch.relu(x @ W.T)


def test_a_product_and_what_follows_it_is_a_piece() -> None:
    check(product, torch.randn(32, 128, dtype=B), expected=["matmul relu"])


def test_a_number_that_the_graph_holds_as_a_tensor_is_a_number() -> None:
    check(
        lambda x: product(x) * torch.tensor(2.0), torch.randn(32, 128, dtype=B), expected=["matmul relu mul"]
    )


def test_batches_of_rows_need_no_view() -> None:
    def model(x: Tensor) -> Tensor:
        return nn.functional.linear(x, W) + x[..., :64]

    with watching() as seen, torch.no_grad():
        compiled(model)(torch.randn(2, 32, 128, dtype=B))
    (piece,) = seen[0].taken
    assert not any(node.op == "reshape" for node in piece.graph.nodes)
    assert [str(one.type) for one in piece.graph.inputs][1] == "bf16[2, 32, 128]"


def test_a_piece_reads_no_more_tensors_than_an_operator_has_arguments() -> None:
    """So it is with the gradient of weights that a loop in Python has used for many steps."""

    def model(xs: list[Tensor], ws: list[Tensor]) -> Tensor:
        return sum((x @ w for x, w in zip(xs[1:], ws[1:], strict=True)), xs[0] @ ws[0])

    xs, ws = ([torch.randn(shape, dtype=B) / 8 for _ in range(36)] for shape in ((16, 32), (32, 24)))
    with watching() as seen, torch.no_grad():
        same(compiled(model)(xs, ws), model(xs, ws))
    assert sorted(len(piece.inputs) for one in seen for piece in one.taken) == [9, 64]


# --- writes and aliases ---------------------------------------------------------------------------------


def test_an_input_that_is_written_holds_what_it_should() -> None:
    def model(x: Tensor, y: Tensor) -> Tensor:
        found = x @ W.T
        x.add_(1)
        y.copy_(found)
        return found + (x @ W.T)

    x, y = torch.randn(32, 128, dtype=B), torch.zeros(32, 64, dtype=B)
    a, b = x.clone(), y.clone()
    with torch.no_grad(), watching() as seen:
        found = compiled(model)(x, y)
        plain = model(a, b)
    assert pieces(seen) == ["matmul matmul add"]
    same((found, x, y), (plain, a, b))


def test_a_row_of_a_result_is_written_and_read_again() -> None:
    """The rows are joined of what was there and the new one, which is read of them at once."""

    def model(x: Tensor) -> tuple[Tensor, Tensor]:
        found = x @ W.T
        found[3] += 1
        found.relu_()
        return found.softmax(-1), found

    check(model, torch.randn(32, 128, dtype=B), expected=["matmul", "reduce_max sub exp reduce_sum div"])


def test_a_buffer_that_is_written_is_not_constant() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.randn(64, 128).to(B))
            self.weight = nn.Parameter(torch.randn(64, 128).to(B))

        def forward(self, x: Tensor) -> Tensor:
            x = torch.cumprod(x, 0)
            found = x @ self.seen.T + x @ self.weight.T
            self.seen.add_(1)
            return found

    model, x = Model(), torch.randn(32, 128, dtype=B)
    with torch.no_grad(), watching() as seen:
        fast = compiled(model)
        before = model.seen.clone()
        summed = torch.cumprod(x, 0)
        same(fast(x), summed @ before.T + summed @ model.weight.T)
        same(model.seen, before + 1)
        same(fast(x), summed @ (before + 1).T + summed @ model.weight.T)
    flags = sorted(
        one.constant for piece in seen[0].taken for one in piece.graph.inputs if one.type.shape == (64, 128)
    )
    assert flags == [False, True]


@pytest.mark.parametrize(("first", "constant"), [(torch.sort, True), (torch.transpose, False), (None, False)])
def test_weights_are_constant_behind_a_kernel_of_the_graph_alone(first: Any, constant: bool) -> None:
    """What runs before the graph may write to them, as an optimizer does."""
    model = nn.Linear(64, 64, dtype=B)

    def run(x: Tensor) -> Tensor:
        x = torch.sort(x)[0] if first is torch.sort else x.T if first is torch.transpose else x
        return torch.relu(model(x))

    with torch.no_grad(), watching() as seen:
        x = torch.randn(64, 64, dtype=B)
        same(compiled(run)(x), run(x))
    (piece,) = seen[0].taken
    assert {one.constant for one in piece.graph.inputs if one.type.shape == (64,)} == {constant}


def test_outputs_that_alias_stay_aliases() -> None:
    def model(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        found = torch.relu(x @ W.T)
        return found, found.view(-1), x.T

    x = torch.randn(32, 128, dtype=B)
    first, second, third = check(model, x, expected=["matmul relu"])
    assert first.data_ptr() == second.data_ptr()
    assert third.data_ptr() == x.data_ptr()


def test_a_weight_that_is_changed_in_place_is_noticed() -> None:
    model = nn.Linear(128, 64, dtype=B)
    x = torch.randn(32, 128, dtype=B)
    with torch.no_grad():
        fast = compiled(model)
        fast(x)
        model.weight.mul_(3)
        same(fast(x), model(x))


# --- layouts --------------------------------------------------------------------------------------------


def test_outputs_have_the_strides_that_they_would_have() -> None:
    def model(x: Tensor) -> tuple[Tensor, Tensor]:
        found = torch.relu(x @ W.T)
        return found.permute(0, 2, 1), torch.nn.functional.softmax(x.transpose(1, 2), -1)

    check(
        model, torch.randn(2, 32, 128, dtype=B), expected=["matmul relu", "reduce_max sub exp reduce_sum div"]
    )


@pytest.mark.parametrize("offset", [1, 3, 8])
def test_storage_offsets_are_looked_at(offset: int) -> None:
    store = torch.randn(32 * 128 + 8, dtype=B)
    check(product, store[offset:][: 32 * 128].view(32, 128), expected=["matmul relu"])


def test_an_input_may_lie_in_any_way() -> None:
    check(product, torch.randn(128, 32, dtype=B).T, expected=["matmul relu"])
    check(product, torch.randn(32, 256, dtype=B)[:, ::2], expected=["matmul relu"])
    check(product, torch.randn(1, 128, dtype=B).expand(32, 128), expected=["matmul relu"])


def test_an_operator_gets_inputs_as_they_are_declared() -> None:
    from wsopt.graph.types import Input
    from wsopt.torch.laying import laid

    item = Input("x", TensorType((4, 8), _bf16()), False, (16, 1))
    store = torch.randn(128, dtype=B)
    lies = store[:64].view(4, 16)[:, :8]
    shifted = store[1:65].view(4, 16)[:, :8]
    assert laid(lies, item) is lies
    for other in (shifted, lies.contiguous(), torch.randn(8, 4, dtype=B).T):
        found = laid(other, item)
        assert found.stride() == (16, 1)
        assert found.data_ptr() % 16 == 0
        assert torch.equal(found, other)


def test_an_operator_tells_tensors_apart_that_begin_at_one_address() -> None:
    from wsopt.graph import GraphBuilder
    from wsopt.torch.operators import operator

    g = GraphBuilder("piece")
    g.output(g.neg(g.input("i0", (8, 8), "f32"), name="n0"))
    seen: list[tuple[int, ...]] = []

    def launch(x: Tensor, found: Tensor) -> None:
        seen.append(x.stride())
        found.copy_(-x)

    call, x = operator("at_one_address", g.build(), launch), torch.randn(8, 8)
    assert torch.equal(call(x), -x)
    assert torch.equal(call(x.T), -x.T)
    assert seen == [(8, 1), (8, 1)]


def _bf16() -> Any:
    from wsopt.graph import DType

    return DType.BF16


# --- sizes, types, gradients ----------------------------------------------------------------------------


def test_weights_that_change_in_size_go_the_usual_way() -> None:
    """With `dynamic=True` torch takes every extent of a tensor that is no parameter for one that changes."""
    with torch.no_grad(), watching() as seen:
        fast = compiled(product, dynamic=True)
        for rows in (32, 48):
            x = torch.randn(rows, 128, dtype=B)
            same(fast(x), product(x))
    assert any("with l = 2, m = 2, n = 2: " in why for why in seen[0].cut.reasons.values())
    report = report_of(seen)  # which hides no product because its extents change
    assert (report.taken, report.flops, report.share) == ((), 2 * 32 * 128 * 64, 0)
    assert report.bytes


def test_autocast_gives_what_it_gives() -> None:
    model, x = nn.Sequential(nn.Linear(128, 64), nn.ReLU()), torch.randn(32, 128)
    with torch.no_grad(), torch.autocast("cpu", dtype=B), watching() as seen:
        found, plain = compiled(model)(x), model(x)
    assert found.dtype is B
    assert pieces(seen) == ["matmul add relu"]
    same(found, plain)


def test_products_of_f32_are_left_alone() -> None:
    model = nn.Linear(128, 64)
    with torch.no_grad(), watching() as seen:
        x = torch.randn(32, 128)
        assert torch.equal(compiled(model)(x), model(x))
    assert pieces(seen) == []
    assert any("f32" in why for why in seen[0].lowered.refused.values())


def gradients(call: Any, model: nn.Module, x: Tensor) -> list[Tensor]:
    """Of the sum of what a model makes: by its input and its parameters."""
    x = x.detach().requires_grad_()
    model.zero_grad()
    call(x).sum().backward()
    return [one.grad for one in (x, *model.parameters()) if one.grad is not None]


def test_forward_and_backward_graphs_of_training_have_pieces() -> None:
    model = nn.Sequential(nn.Linear(128, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 16)).to(B)
    x = torch.randn(32, 128, dtype=B)
    plain = gradients(model, model, x)
    with watching() as seen:
        found = gradients(compiled(model), model, x)
    exact_model = copy.deepcopy(model).double()
    exact = gradients(exact_model, exact_model, x.double())
    for one, other, want in zip(found, plain, exact, strict=True):
        assert (one.shape, one.dtype, one.stride()) == (other.shape, other.dtype, other.stride())
        assert relative_error(one, want) <= 1.25 * relative_error(other, want)
    forward, backward = seen
    first, second = pieces([forward])
    assert first.startswith("matmul add mul mul erf add mul reduce_mean")  # and what the backward graph needs
    assert len(forward.taken[0].outputs) > 1
    assert second == "matmul add"
    assert sum(one.count("matmul") for one in pieces([backward])) == 4
    assert not any(one.constant for piece in backward.taken for one in piece.graph.inputs)
    assert [round(report_of([one]).share, 3) for one in seen] == [1.0, 1.0]


def test_weights_that_the_backward_graph_reads_turned_are_not_copied() -> None:
    """The forward graph hands on a view of each weight, with its dimensions in another order than in memory."""
    model = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 16)).to(B)
    x = torch.randn(32, 128, dtype=B)
    plain = gradients(model, model, x)
    with watching() as seen:
        same(tuple(gradients(compiled(model), model, x)), tuple(plain))
    forward, _backward = seen
    assert pieces([forward]) == ["matmul add relu", "matmul add"]
    assert any(
        node.name.startswith("permute")
        for node in forward.lowered.graph.find_nodes(op="output")[0].all_input_nodes
    )
    assert not any("aten.clone.default" in call_names(one.lowered.graph) for one in seen)


def test_what_lies_turned_in_rows_that_no_kernel_copies_is_copied_before() -> None:
    """Rows of 49 elements begin at no multiple of 16 bytes."""
    y, x = torch.randn(2, 7, 7, 64, dtype=B), torch.randn(2, 128, 7, 7, dtype=B).permute(0, 2, 3, 1) / 8
    check(lambda y, x: y.flatten(0, 2).T @ x.flatten(0, 2), y, x, expected=["matmul"])


@pytest.mark.parametrize("norm", [nn.LayerNorm(64), nn.RMSNorm(64)])
def test_a_norm_s_gradient_is_one_kernel(norm: nn.Module) -> None:
    """No kernel hands another one a value of every element: what sums of a row go into is computed beside them."""
    norm = norm.to(B)
    x = torch.randn(32, 64, dtype=B, requires_grad=True)
    with watching() as seen:
        compiled(norm)(x).sum().backward()
    _forward, backward = seen
    (piece,) = backward.taken
    assert [str(piece.graph.type_of(name)) for name in piece.graph.outputs] == ["bf16[32, 64]"]


def test_no_kernel_hands_on_what_only_values_a_row_are_made_of() -> None:
    """Inductor, which makes those, reads the rows itself and needs nothing of their size."""
    check(lambda x: torch.logsumexp(x, -1), torch.randn(32, 128, dtype=B), expected=[])
    check(lambda x: (x.softmax(-1) * x).sum(-1), torch.randn(32, 128, dtype=B), expected=[])


def test_no_kernel_copies_alone() -> None:
    """What it joins has a step that no kernel reads, and is computed elsewhere; there it is joined as well."""
    check(
        lambda x: torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2),
        torch.randn(32, 128, dtype=B),
        expected=[],
    )


@pytest.mark.slow
def test_inductor_compiles_both_graphs_of_training() -> None:
    weight = W.clone().requires_grad_()

    def model(x: Tensor) -> Tensor:
        return torch.relu(x @ weight.T)

    x = torch.randn(32, 128, dtype=B)
    model(x).sum().backward()
    wanted, weight.grad = weight.grad, None
    with watching() as seen:
        fast = with_pieces(model, rest="inductor")
        fast(x).sum().backward()
    assert [pieces([one]) for one in seen] == [["matmul relu less_equal"], ["matmul"]]
    assert [node.meta["val"].dtype for node in seen[0].taken[0].outputs].count(torch.bool) == 1
    same(weight.grad, wanted)


def test_other_dtypes_and_unknown_operations_stay_beside_pieces() -> None:
    def model(x: Tensor) -> Tensor:
        order = torch.argsort(x[:, 0].double())
        return torch.cumprod(torch.relu(x @ W.T), -1)[order]

    check(model, torch.randn(32, 128, dtype=B), expected=["matmul relu"])


# --- attention ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_a_piece(causal: bool) -> None:
    def model(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    q, k, v = (torch.randn(2, 4, 64, 32, dtype=B) for _ in range(3))
    mask = "less_equal where " if causal else ""
    with torch.no_grad(), watching() as seen:
        found = compiled(model)(q, k, v)
    (told,) = pieces(seen)
    assert told.replace("iota ", "") == f"matmul mul {mask}softmax matmul"
    with torch.no_grad():
        assert torch.allclose(found.float(), model(q, k, v).float(), atol=2e-2)


def test_keys_that_groups_share_are_read_once() -> None:
    def model(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(
            q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), is_causal=True
        )

    q = torch.randn(2, 4, 64, 32, dtype=B)
    k, v = (torch.randn(2, 2, 64, 32, dtype=B) for _ in range(2))
    with torch.no_grad(), watching() as seen:
        found = compiled(model)(q, k, v)
        assert torch.allclose(found.float(), model(q, k, v).float(), atol=2e-2)
    (piece,) = seen[0].taken
    assert sorted(one.type.size for one in piece.graph.inputs)[:2] == [k.numel(), v.numel()]


# --- options and the report -----------------------------------------------------------------------------


def test_wrong_options_are_told() -> None:
    with pytest.raises(BackendCompilerFailed, match="unknown option") as error, torch.no_grad():
        torch.compile(product, backend=backend, options={"exec": 1})(torch.randn(32, 128, dtype=B))
    assert isinstance(error.value.inner_exception, InputError)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_kernels_are_refused() -> None:
    with pytest.raises(BackendCompilerFailed, match="sees no GPU") as error, torch.no_grad():
        torch.compile(product, backend=backend)(torch.randn(32, 128, dtype=B))
    assert isinstance(error.value.inner_exception, RequirementError)


def test_the_report_tells_what_was_taken_and_what_not() -> None:
    def model(x: Tensor, y: Tensor) -> Tensor:
        return torch.cumprod(torch.relu(x @ W.T), -1).float() @ y

    report = explain(model, torch.randn(32, 128, dtype=B), torch.randn(64, 8), options=OPTIONS)
    text = str(report)
    assert "1 x matmul relu -> bf16[32, 64]" in text
    assert "no entry for aten.cumprod.default" in text
    assert "a product of f32, which torch does not multiply in tf32" in text
    first, second = 2 * 32 * 64 * 128, 2 * 32 * 8 * 64
    assert (report.flops_taken, report.flops) == (first, first + second)
    assert f"{first / (first + second):.1%}" in text


def test_the_log_tells_the_stages_of_a_first_call(caplog: pytest.LogCaptureFixture) -> None:
    torch._dynamo.reset()
    w = torch.randn(64, 128, dtype=B)
    with torch.no_grad(), caplog.at_level("INFO", logger="wsopt.torch"):
        with_pieces(lambda x: torch.relu(x @ w.T))(torch.randn(32, 128, dtype=B))
    told = [record.getMessage() for record in caplog.records if record.name == "wsopt.torch"]
    assert [one.rpartition(": ")[0] for one in told] == [
        "cut 1",
        "1 pieces, 1 new ones judged without a build",
    ]


def test_pieces_that_are_alike_are_one_operator() -> None:
    layers = nn.Sequential(
        *(nn.Sequential(nn.Linear(128, 128), nn.GELU(), nn.LayerNorm(128)) for _ in range(3))
    ).to(B)
    with torch.no_grad(), watching() as seen:
        compiled(lambda x: layers(torch.cumprod(x, 0)))(torch.randn(32, 128, dtype=B))
    # A piece reads what another one computes, not what that took the place of.
    left = {node.name for node in seen[0].lowered.graph.nodes}
    assert not any(piece.covered & left for piece in seen[0].taken)
    graphs = {piece.key: piece.graph for piece in seen[0].taken}
    assert len(seen[0].taken) == 3
    assert [type(graph) for graph in graphs.values()] == [Graph]


def test_explaining_leaves_what_is_compiled_alone() -> None:
    calls: list[int] = []

    def counting(module: Any, _inputs: Any) -> Any:
        calls.append(1)
        return module.forward

    x = torch.randn(32, 128, dtype=B)
    fast = torch.compile(product, backend=counting)
    with torch.no_grad():
        fast(x)
        reports = [explain(product, x, options=OPTIONS) for _ in range(10)]
        fast(x)
    assert len(calls) == 1
    assert {len(report.taken) for report in reports} == {1}


@pytest.mark.slow
def test_inductor_gets_its_settings() -> None:
    from torch._inductor import config

    seen = []

    def model(x: Tensor) -> Tensor:
        return torch.cumprod(torch.relu(x @ W.T), -1)

    def watched(module: Any, inputs: Any) -> Any:
        options = {**OPTIONS, "rest": "inductor", "inductor": {"max_autotune": True}}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compiler, "take", lambda *_given, **_how: seen.append(config.max_autotune))
            return backend(module, inputs, options=options)

    before = config.max_autotune
    with torch.no_grad():
        x = torch.randn(32, 128, dtype=B)
        same(torch.compile(model, backend=watched)(x), model(x))
    assert (before, seen) == (False, [True])


@pytest.mark.slow
def test_inductor_compiles_what_is_around_pieces() -> None:
    """It calls pieces of one result and of several by name, past the dispatcher, also where it finds its own code."""
    from torch._inductor.utils import run_and_get_code

    def model(x: Tensor) -> tuple[Tensor, Tensor]:
        summed = x + torch.cumprod(x, -1) @ (W.T @ W)
        return torch.cumprod(nn.functional.rms_norm(summed, (128,)), -1), summed

    x = torch.randn(32, 128, dtype=B)
    for _ in range(2):  # the second time from Inductor's cache
        torch._dynamo.reset()
        with torch.no_grad(), watching() as seen:
            fast = with_pieces(model, rest="inductor")
            found, (code,) = run_and_get_code(fast, x)
        assert [len(piece.outputs) for one in seen for piece in one.taken] == [1, 2]
        assert code.count("extern_kernels.wsopt_reference_") == 2
        assert "= torch.ops.wsopt" not in code
        same(found, model(x))


def test_a_piece_reads_once_what_fx_repeats() -> None:
    def model(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        seen = torch.exp(y[:, None].expand(2, 32, 64))
        return torch.relu(x @ W.T) * seen, torch.sort(seen)[0]

    x, y = torch.randn(2, 32, 128, dtype=B), torch.randn(2, 64, dtype=B)
    with torch.no_grad(), watching() as seen:
        same(compiled(model)(x, y), model(x, y))
    (piece,) = seen[0].taken
    assert pieces(seen) == ["matmul relu mul"]
    assert sorted(one.type.size for one in piece.graph.inputs) == [y.numel(), x.numel(), W.numel()]


@pytest.mark.slow
def test_inductor_lays_out_what_a_piece_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Inductor computes for a piece lies as its kernel reads it: nothing is copied in front of the operator."""
    copied = copied_inputs(monkeypatch)

    def model(x: Tensor) -> Tensor:
        q = torch.sin(
            x.view(2, 64, 4, 64).transpose(1, 2)
        )  # FX has it in the order of x, Inductor may choose
        return nn.functional.scaled_dot_product_attention(q, q + 1, q)

    x = torch.randn(2, 64, 256, dtype=B)
    options = {**OPTIONS, "rest": "inductor"}
    with torch.no_grad(), watching() as seen, torch._inductor.config.patch(force_disable_caches=True):
        found = torch.compile(model, backend=backend, options=options)(x)
    assert len(seen[0].taken) == 1
    assert any(one.strides for one in seen[0].taken[0].graph.inputs)
    assert copied == []
    assert torch.allclose(found.float(), model(x).float(), atol=2e-2)


def test_a_norm_that_is_no_kernel_has_the_reason_of_the_norm() -> None:
    def norm(x: Tensor) -> Tensor:
        variance, mean = torch.var_mean(x, (1, 3), keepdim=True)
        return (x - mean) * torch.rsqrt(variance + 1e-5)

    report = explain(norm, torch.randn(4, 16, 8, 8, dtype=B), options=OPTIONS)
    (count,) = [count for why, count in report.left if "reduce different axes" in why]
    assert count == 1
    assert all("reduce different axes" in why or "elements alone" in why for why, _ in report.left)


def test_a_sum_of_batched_products_is_one_product_where_batches_lie_together() -> None:
    def model(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        return torch.addbmm(x, y.view(128, 4, 64).transpose(0, 1), w)

    given = [torch.randn(*shape, dtype=B) / 16 for shape in ((128, 32), (128, 256), (4, 64, 32))]
    check(model, *given, expected=["matmul add"])


def test_a_norm_is_one_piece_and_no_statistic_alone() -> None:
    """A kernel may store a value a row, but a mean that somebody else multiplies by has read the row for that."""

    def norm(x: Tensor) -> Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(B)

    check(norm, torch.randn(32, 128, dtype=B), expected=["mul reduce_mean add rsqrt mul"])
    check(lambda x: x.float().mean(-1), torch.randn(32, 128, dtype=B), expected=[])


def rotated(x: Tensor) -> Tensor:
    return torch.cat((-x[..., 32:], x[..., :32]), -1)


def test_a_rotary_embedding_is_one_piece_and_is_stored_as_it_lies() -> None:
    def model(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q = (torch.sort(x, 1)[0] / 4).view(2, 48, 4, 64).transpose(1, 2)
        return q * cos + rotated(q) * sin

    given = torch.randn(2, 48, 256, dtype=B), *(torch.randn(48, 64, dtype=B) for _ in range(2))
    with torch.no_grad(), watching() as seen:
        same(compiled(model)(*given), model(*given))
    assert pieces(seen) == ["mul slice neg slice concat mul add"]
    (piece,) = seen[0].taken
    assert piece.orders == ((0, 2, 1, 3),)
    assert str(piece.graph.type_of(piece.graph.outputs[0])) == "bf16[2, 48, 4, 64]"
    assert "aten.clone.default" not in call_names(seen[0].lowered.graph)


def test_parts_of_one_product_are_read_where_they_lie() -> None:
    def model(x: Tensor, w: Tensor) -> Tensor:
        q, k, v = (one.view(2, 32, 4, 32).transpose(1, 2) for one in (x @ w).split(128, -1))
        return nn.functional.scaled_dot_product_attention(q, k, v)

    given = torch.randn(2, 32, 128, dtype=B), torch.randn(128, 384, dtype=B) / 12
    with torch.no_grad(), watching() as seen:
        found = compiled(model)(*given)
        assert torch.allclose(found.float(), model(*given).float(), atol=2e-2)
    assert pieces(seen) == ["matmul", "slice slice slice matmul mul softmax matmul"]
    (packed,) = seen[0].taken[1].graph.inputs
    assert packed.type.shape == (2, 32, 384)


def test_a_gate_with_packed_weights_is_one_piece() -> None:
    def model(x: Tensor, w: Tensor) -> Tensor:
        gate, up = (x @ w).chunk(2, dim=-1)
        return nn.functional.silu(gate) * up

    given = torch.randn(2, 32, 128, dtype=B), torch.randn(128, 512, dtype=B) / 12
    with torch.no_grad(), watching() as seen:
        found = compiled(model)(*given)
        assert torch.allclose(found.float(), model(*given).float(), atol=2e-2, rtol=2e-2)
    (piece,) = pieces(seen)
    assert piece.startswith("matmul slice slice")


def test_of_a_tensor_of_which_parts_are_read_no_more_counts() -> None:
    def model(cache: Tensor, q: Tensor) -> Tensor:
        k, v = cache[0, :, :, :48], cache[1, :, :, :48]
        return nn.functional.scaled_dot_product_attention(q, k, v)

    given = torch.randn(2, 1, 4, 512, 64, dtype=B), torch.randn(1, 4, 32, 64, dtype=B)
    with torch.no_grad(), watching() as seen:
        found = compiled(model)(*given)
        assert torch.allclose(found.float(), model(*given).float(), atol=2e-2)
    (piece,) = seen[0].taken
    assert piece.bytes_moved == 2 * 64 * 4 * (2 * 48 + 2 * 32)


def test_the_report_tells_the_share_of_bytes() -> None:
    def model(x: Tensor) -> Tensor:
        return torch.cumprod(torch.relu(x @ W.T), -1)

    report = explain(model, torch.randn(32, 128, dtype=B), options=OPTIONS)
    product = 2 * (32 * 128 + 64 * 128 + 32 * 64)
    pointwise = 2 * 2 * 32 * 64
    assert (report.bytes_taken, report.bytes) == (product + pointwise, product + 2 * pointwise)
    assert "of the bytes that operations would move one by one" in str(report)


# --- groups of rows -------------------------------------------------------------------------------------


def test_products_of_groups_are_pieces_with_their_gate() -> None:
    """Two products of one cut with the gate between them, and the one that reads it."""
    gate, up = ((torch.randn(4, 64, 32) / 6).to(B) for _ in range(2))
    down = (torch.randn(4, 32, 64) / 8).to(B)
    ends = torch.tensor([10, 10, 30, 48], dtype=torch.int32)

    def experts(x: Tensor, offsets: Tensor) -> Tensor:
        opened = nn.functional.silu(torch._grouped_mm(x, gate.mT, offs=offsets))
        return torch._grouped_mm(opened * torch._grouped_mm(x, up.mT, offs=offsets), down.mT, offs=offsets)

    x = torch.randn(48, 32, dtype=B)
    with torch.no_grad(), watching() as seen:
        found = compiled(experts)(x, ends)
        same(found, experts(x, ends))
    assert sum(one.count("grouped_matmul") for one in pieces(seen)) == 3
    assert report_of(seen).share == 1


def windows(x: Tensor) -> Tensor:
    """The windows of 4 x 4 places of an image [batch, height, width, channels], as rows."""
    batch, height, width, channels = x.shape
    cut = x.view(batch, height // 4, 4, width // 4, 4, channels)
    return cut.permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, channels)


def test_rows_of_vectors_alone_are_a_piece_where_they_are_reduced() -> None:
    a, b, w = torch.randn(64), torch.randn(96), torch.randn(96, 32, dtype=B)
    check(
        lambda a, b: torch.softmax(a[:, None] - b, -1), a, b,
        expected=["sub reduce_max sub exp reduce_sum div"],
    )  # fmt: skip
    check(lambda a, b: (a[:, None] * b).exp(), a, b, expected=[])  # elements alone are Inductor's
    check(lambda a, b, w: (a[:, None] * b).to(B) @ w, a, b, w, expected=["matmul"])


def test_a_product_of_windows_reads_the_copy_that_there_is_of_them() -> None:
    """No kernel reads rows of windows where they lie; what FX copies for its own product is dense."""
    norm, wide = nn.LayerNorm(64, dtype=B), nn.Linear(64, 192, dtype=B)

    def model(x: Tensor) -> Tensor:
        return torch.relu(wide(windows(norm(x))))

    expected = ["matmul add relu", "reduce_mean sub mul reduce_mean add rsqrt sub mul mul add"]
    with watching() as seen:
        check(model, torch.randn(2, 8, 8, 64, dtype=B), expected=expected)
    assert [one.strides for one in seen[0].taken[0].graph.inputs] == [None] * 3


def test_windows_of_an_input_are_copied_where_the_product_had_a_copy() -> None:
    model = nn.Linear(64, 64, dtype=B)
    check(lambda x: model(windows(x)), torch.randn(2, 8, 8, 64, dtype=B), expected=["matmul add"])


def test_heads_that_a_kernel_reads_where_they_lie_are_not_copied() -> None:
    """FX copies queries whose heads it has transposed; attention reads them in place all the same."""

    def model(x: Tensor) -> Tensor:
        heads = x.view(2, 32, 2, 64).transpose(1, 2).contiguous()
        found = nn.functional.scaled_dot_product_attention(heads, heads, heads)
        return found.transpose(1, 2).flatten(2)

    with watching() as seen:
        check(model, torch.randn(2, 32, 128, dtype=B), expected=["matmul mul softmax matmul"])
    assert "aten.clone.default" not in call_names(seen[0].lowered.graph)


@pytest.mark.parametrize("safe", [False, True])
def test_attention_with_a_sink_as_a_column_is_one_piece(safe: bool) -> None:
    sinks = torch.randn(4, dtype=B)

    def model(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = torch.where(torch.arange(16)[:, None] < torch.arange(16), -torch.inf, q @ k.mT)
        joined = torch.cat([scores, sinks.reshape(1, 4, 1, 1).expand(2, -1, 16, -1)], -1)
        joined = joined - joined.max(-1, keepdim=True).values if safe else joined
        return joined.softmax(-1, dtype=B)[..., :-1] @ v

    with torch.no_grad(), watching() as seen:
        found = compiled(model)(*(heads := [torch.randn(2, 4, 16, 32, dtype=B) for _ in "qkv"]))
    same(found, model(*heads))
    assert [ops.count("matmul") for ops in pieces(seen)] == [2]


def test_constants_alone_may_be_joined() -> None:
    def model(x: Tensor) -> Tensor:
        return product(x) + torch.cat([torch.zeros(32, 32, dtype=B), torch.ones(32, 32, dtype=B)], 1)

    with torch.no_grad():
        x = torch.randn(32, 128, dtype=B)
        same(compiled(model)(x), model(x))


def test_attention_behind_a_projection_of_few_rows_stays_whole() -> None:
    """A kernel that projects queries and scores them would leave the softmax and what follows to others."""
    project = (torch.randn(128, 128) / 11).to(B)

    def model(x: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        queries = (x @ project).view(2, 64, 4, 32).transpose(1, 2)
        scores = torch.einsum("bhid,bjd->bhij", queries, keys) * 32**-0.5
        return torch.einsum("bhij,bjd->bhid", scores.softmax(-1), values)

    attention = "matmul mul reduce_max sub exp reduce_sum div matmul"
    inputs = (torch.randn(2, 64, n, dtype=B) for n in (128, 32, 32))
    check(model, *inputs, expected=["matmul", attention], dynamic=False)


@pytest.mark.parametrize("lies", [torch.contiguous_format, torch.channels_last])
def test_what_follows_a_convolution_of_one_element_is_in_its_kernel(lies: torch.memory_format) -> None:
    """The image's two dimensions are one axis of the product, and of all that is done to its result."""
    layers = nn.Sequential(nn.Conv2d(32, 64, 1), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 32, 1))
    layers = layers.eval().to(B).to(memory_format=lies)
    x = torch.randn(2, 32, 4, 8, dtype=B).to(memory_format=lies)
    expected = ["matmul add sub mul mul add relu", "matmul add add"]
    with watching() as seen:
        check(lambda x: layers(x) + x, x, expected=expected, dynamic=False)
    assert [piece.turned_bytes for piece in seen[0].taken] == [0, 0]  # stored as it lies, in either order


POOLING = """
import torch
from wsopt.torch import backend
options = {"execute": "reference", "rest": "eager", "take": "all"}
pool = torch.compile(torch.nn.MaxPool2d(2), backend=backend, options=options)
x = torch.randn(1, 2, 4, 4)
assert torch.equal(pool(x), torch.nn.functional.max_pool2d(x, 2))
"""


def test_the_first_graph_of_a_process_may_pool() -> None:
    """Inductor's decomposition of pooling takes a module for loaded that nothing but Inductor itself loads."""
    run = subprocess.run([sys.executable, "-c", POOLING], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
