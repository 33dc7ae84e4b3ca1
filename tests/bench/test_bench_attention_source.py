"""What libraries are called with for an attention, as text: no torch is needed to write it."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from emit_builds import graph_of
from gpu_attention import GRAPHS, a, recorded
from paged_graphs import Paged

from wsopt.bench.attention_source import attention_call, flash_attn_4_source, flex_source, sdpa_source
from wsopt.bench.eager_source import Inapplicable
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.parse import load_graph, parse_graph
from wsopt.graph.serialize import graph_to_json
from wsopt.graph.types import Graph

PROBLEMS = Path(__file__).parents[2] / "problems"


def source(graph: Graph, library: str) -> str:
    call = recorded(graph).call
    if library == "flex":
        return flex_source(call)
    return flash_attn_4_source(call) if library == "flash_attn_4" else sdpa_source(call, library)


def problem(name: str) -> Graph:
    return load_graph(PROBLEMS / f"{name}.json")


def test_sdpa_as_a_person_would_call_it() -> None:
    assert source(problem("attention_gqa_causal"), "sdpa_cudnn") == (
        "def sdpa_cudnn(q, k, v):\n"
        "    query_, key_, value_ = q, k, v\n"
        "\n"
        "    def launch():\n"
        "        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):\n"
        "            o = F.scaled_dot_product_attention(query_, key_, value_, is_causal=True, "
        "scale=0.088388347648318, enable_gqa=True)\n"
        "        return o,\n"
        "\n"
        "    return launch\n"
    )
    assert "SDPBackend.FLASH_ATTENTION" in source(problem("attention"), "sdpa_flash")
    assert "sdpa_kernel" not in source(problem("attention"), "sdpa")


def packed(g: GraphBuilder, *, zeros: bool = False) -> Symbol:
    """Two heads whose queries, keys and values a token has side by side; or with zeros behind each."""
    x = g.input("x", (2, 256, 6, 56 if zeros else 64), "bf16")
    x = g.pad(x, low=(0, 0, 0, 0), high=(0, 0, 0, 8)) if zeros else x
    q, k, v = (
        g.transpose(g.slice(x, axis=2, start=place, stop=place + 2), perm=(0, 2, 1, 3)) for place in (0, 2, 4)
    )
    weights = g.cast(g.softmax(g.mul(g.matmul(q, k, transpose_b=True), 0.125)), "bf16")
    return g.cast(g.matmul(weights, v), "bf16", name="y")


def test_parts_of_a_tensor_begin_where_they_do() -> None:
    text = source(graph_of(packed), "sdpa_cudnn")
    strides = "(98304, 64, 384, 1)"
    assert f"x.as_strided((2, 2, 256, 64), {strides}), x.as_strided((2, 2, 256, 64), {strides}, 128)" in text
    assert f"x.as_strided((2, 2, 256, 64), {strides}, 256)" in text


def test_zeros_around_a_tensor_are_no_librarys() -> None:
    with pytest.raises(Inapplicable, match="x has zeros around it"):
        source(graph_of(lambda g: packed(g, zeros=True)), "sdpa")


def test_flex_from_the_graphs_own_values() -> None:
    text = source(problem("attention_alibi_causal"), "flex")
    assert "    slopes_0 = slopes.as_strided((16,), (1,))\n" in text
    assert "        return score + (kv_idx * slopes_0[h])\n" in text
    assert "        return (kv_idx <= q_idx)\n" in text
    assert "create_block_mask(mask_mod, None, None, 4096, 4096, device=query_.device)" in text
    assert "block_mask=block_mask, scale=0.0883883476483" in text
    window = source(problem("attention_window"), "flex")
    assert "return (kv_idx <= q_idx) & (q_idx - kv_idx < 1024)" in window
    assert "score_mod" not in window
    assert "return 30.0 * torch.tanh(score)\n" in source(problem("attention_softcap"), "flex")
    assert "return_aux=AuxRequest(lse=True))\n        return o, aux.lse.reshape((4, 16, 4096)),\n" in source(
        problem("attention_lse"), "flex"
    )
    assert "create_block_mask(mask_mod, 2, None, 72, 72," in source(GRAPHS["segments"], "flex")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("full", "softmax_scale=0.25)"),
        ("causal", "softmax_scale=0.25, causal=True)"),
        ("causal, fewer queries", "softmax_scale=0.25, causal=True)"),
        ("window", "softmax_scale=0.25, window_size=(20, 0))"),
        ("window, fewer queries", "softmax_scale=0.25, window_size=(52, -32))"),
        ("around", "softmax_scale=0.25, window_size=(19, 19))"),
        ("soft cap", "softmax_scale=0.25, softcap=30.0)"),
    ],
)
def test_flash_attn_4(name: str, arguments: str) -> None:
    assert f"flash_attn_func(*turned, {arguments}\n" in source(GRAPHS[name], "flash_attn_4")


def test_masks_that_sdpa_has() -> None:
    assert "key_, value_ = key_[:, :, :37], value_[:, :, :37]\n" in source(GRAPHS["limit"], "sdpa")
    lower = source(GRAPHS["causal, fewer queries"], "sdpa_flash")
    assert "mask_ = causal_lower_right(40, 72)\n" in lower
    assert "attn_mask=mask_, scale=0.25)" in lower
    assert "attn_mask=bias_" in source(GRAPHS["bias"], "sdpa_cudnn")


@pytest.mark.parametrize(
    ("name", "library", "reason"),
    [
        (
            "window",
            "sdpa_cudnn",
            "SDPA has a mask of kv_idx <= q_idx and q_idx - kv_idx <= 20 only as a tensor",
        ),
        (
            "soft cap",
            "sdpa_flash",
            r"SDPA has no scores of 30.0 \* torch.tanh\(0.0083333333333333 \* score\)",
        ),
        ("alibi", "sdpa_cudnn", r"SDPA has no scores of 0.25 \* score \+ \(kv_idx \* slopes\)"),
        ("alibi", "flash_attn_4", "flash_attn_func has no scores of"),
        ("even", "sdpa", "SDPA has no mask of 2 * kv_idx - q_idx >= 0".replace("*", r"\*")),
        ("rows", "flash_attn_4", "flash_attn_func has no mask of q_idx < 20 and kv_idx <= q_idx"),
        ("segments", "sdpa", "SDPA has no mask of kv_idx <= q_idx and a < b"),
        ("bias", "sdpa_flash", "FlashAttention takes no tensor that is added"),
        ("bias a key", "sdpa_cudnn", r"SDPA has no scores of 0.25 \* score \+ bias"),
        ("causal, fewer queries", "sdpa_cudnn", "causal masks from the first key only"),
        ("lse", "sdpa_cudnn", "SDPA does not give output lse"),
        ("lse", "flash_attn_4", "flash_attn_func does not give output lse"),
        ("two values", "flex", "its loop has 3 products"),
        ("no softmax", "flex", "pv takes no exponentials of scores: there is no softmax"),
        ("a mean beside", "flex", "output o is made of reduce_mean"),
    ],
)
def test_what_a_library_cannot_say(name: str, library: str, reason: str) -> None:
    with pytest.raises(Inapplicable, match=reason):
        source(GRAPHS[name], library)


def test_libraries_take_no_pages() -> None:
    for library in ("sdpa", "flex", "flash_attn_4"):
        with pytest.raises(Inapplicable, match="its keys and values lie in pages, which a table chooses"):
            source(graph_of(Paged()), library)


def test_products_are_no_attention() -> None:
    with pytest.raises(Inapplicable, match="its loop computes nothing but products"):
        source(problem("gemm_2048"), "sdpa")
    with pytest.raises(Inapplicable, match="does not say what its loop computes; compile it again"):
        attention_call(recorded(GRAPHS["full"]).graph, None, {})


def test_no_name_is_looked_at() -> None:
    """A softmax in single steps is the same attention, and so is one whose every name is another."""
    assert source(a.written_out(a.causal), "sdpa") == source(GRAPHS["causal"], "sdpa")
    data = json.dumps(graph_to_json(GRAPHS["causal"]))
    names = [item.name for item in (*GRAPHS["causal"].inputs, *GRAPHS["causal"].nodes)]
    new = {name: f"n{number}" for number, name in enumerate(names)}
    for name in names:
        data = data.replace(f'"{name}"', f'"{new[name]}"')
    renamed = source(parse_graph(json.loads(data), "renamed"), "sdpa")
    back = renamed
    for name in "qkv":
        back = back.replace(new[name], name)
    assert back == source(GRAPHS["causal"], "sdpa")


def test_weights_that_are_masked_after_the_softmax_are_none() -> None:
    g = a.GraphBuilder("after")
    p = a.parts(g, a.Sizes())
    weights = g.where(p.columns <= p.rows, g.softmax(a.scores(p)), 0.0)
    g.output(g.cast(g.matmul(g.cast(weights, dtype="bf16"), p.v), dtype="bf16", name="o"))
    with pytest.raises(Inapplicable, match="weights are masked after the softmax"):
        source(g.build(), "flex")
    g = a.GraphBuilder("scaled")
    p = a.parts(g, a.Sizes())
    o = g.matmul(g.cast(g.softmax(a.scores(p)), dtype="bf16"), p.v)
    g.output(g.cast(o * 2.0, dtype="bf16", name="o"))
    with pytest.raises(Inapplicable, match="output o is more than the quotient of the sums"):
        source(g.build(), "sdpa")


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("library", ["sdpa", "sdpa_cudnn", "sdpa_flash", "flex", "flash_attn_4"])
def test_every_text_is_python(name: str, library: str) -> None:
    try:
        text = source(GRAPHS[name], library)
    except Inapplicable:
        return
    assert [node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)] == [library]
    assert max(map(len, text.splitlines())) < 400


def test_a_build_folder_is_enough(tmp_path: Path) -> None:
    """Written where there is neither solver nor compiler, nor what they are made of."""
    found = recorded(GRAPHS["grouped, causal"])
    shapes = {name: list(shape) for name, shape in found.shapes.items()}
    (tmp_path / "graph.json").write_text(json.dumps(graph_to_json(GRAPHS["grouped, causal"])))
    (tmp_path / "data.json").write_text(json.dumps({"region": found.schedule["region"], "shapes": shapes}))
    blocked = {"ortools", "pydantic", "typer", "diskcache", "networkx", "rich", "jinja2", "numpy", "torch"}
    code = f"""
import json, sys
sys.modules.update(dict.fromkeys({blocked}))
from pathlib import Path
from wsopt.bench.attention_source import attention_call, flex_source
from wsopt.runtime.raw_graph import load_raw_graph
from wsopt.bench.raw_region import raw_region
data = json.loads(Path("data.json").read_text())
shapes = {{name: tuple(shape) for name, shape in data["shapes"].items()}}
print(flex_source(attention_call(load_raw_graph(Path("graph.json")), raw_region(data["region"]), shapes)), end="")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == source(GRAPHS["grouped, causal"], "flex")
