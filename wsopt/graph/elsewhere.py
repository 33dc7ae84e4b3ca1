"""Names of other libraries that the format does not know, and a message for each.

Two kinds: what the format has under another name, and what a composition of its operations says. A near miss among
the format's own names is `faults.nearest`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_NAMES = {
    "matmul": "mm bmm dot gemm linear dense addmm",
    "grouped_matmul": "grouped_mm grouped_gemm group_gemm ragged_dot",
    "reduce_sum": "sum",
    "reduce_mean": "mean",
    "reduce_max": "max amax",
    "reduce_min": "min amin",
    "reduce_argmax": "argmax",
    "scatter_add": "index_add",
    "layer_norm": "layernorm",
    "rms_norm": "rmsnorm",
    "silu": "swish",
    "transpose": "permute swapaxes",
    "reshape": "view squeeze unsqueeze flatten",
    "where": "select masked_fill",
    "cast": "to convert astype",
    "sub": "subtract minus",
    "mul": "multiply times",
    "div": "divide",
    "neg": "negative",
    "pow": "power",
    "iota": "arange",
    "slice": "narrow getitem index split chunk",
    "concat": "cat concatenate hstack",
    "gather": "embedding take index_select",
}
_COMPOSED = {
    "square": "mul of the tensor with itself",
    "clamp": "maximum, then minimum",
    "clip": "maximum, then minimum",
    "relu6": "maximum with 0, then minimum with 6",
    "leaky_relu": "where(x > 0, x, x * slope)",
    "attention": "matmul, mul, softmax, cast, matmul",
    "scaled_dot_product_attention": "matmul, mul, softmax, cast, matmul",
    "gelu_tanh": 'gelu with the attr approximate "tanh"',
    "expand": "nothing: shapes broadcast by themselves",
    "broadcast": "nothing: shapes broadcast by themselves",
}
SAID: Mapping[str, str] = MappingProxyType(
    {other: f'"{name}"' for name, others in _NAMES.items() for other in others.split()} | _COMPOSED
)
"""Operations of other libraries: what says the same here."""

DTYPES: Mapping[str, str] = MappingProxyType(
    {
        other: name
        for name, others in {
            "f32": "float32 float fp32 single f64 float64 fp64 double",
            "f16": "float16 half fp16",
            "bf16": "bfloat16",
            "f8e4m3": "e4m3 float8_e4m3 float8_e4m3fn fp8 f8",
            "f8e5m2": "e5m2 float8_e5m2",
            "i32": "int32 int i64 int64 long",
            "i8": "int8",
            "i4": "int4",
            "bool": "boolean bool_",
        }.items()
        for other in others.split()
    }
)
"""Element types by their names elsewhere; of 64 bits, which no kernel computes in, what is as wide as there is."""
