"""One broken rule of the tensor core, of global memory or of Triton at a time, and the fault that follows."""

from __future__ import annotations

from interpret_breaks import Break

from wsopt.interpret import InterpreterError, RaceError

RETIRE = "        acc = warpgroup_mma_wait(0, deps=(token,))\n"
RELEASE = "        mbarrier.arrive(empty.index(slot), count=1)\n"

OPERATIONS = (
    # wgmma.
    Break(
        "token used",
        "handoff",
        "acc = warpgroup_mma_wait(0, deps=(low,))",
        "acc = low",
        RaceError,
        "used before warpgroup_mma_wait gave it back",
    ),
    Break(
        "waited for another",
        "handoff",
        "acc = warpgroup_mma_wait(0, deps=(low,))",
        "_ = warpgroup_mma_wait(0, deps=(acc,)); acc = low",
        RaceError,
        "gave it back",
    ),
    Break(
        "still running",
        "handoff",
        "warpgroup_mma_wait(0, deps",
        "warpgroup_mma_wait(1, deps",
        RaceError,
        "gave it back",
    ),
    Break(
        "never waited for",
        "handoff",
        "acc = warpgroup_mma_wait(0, deps=(low,))",
        "pass",
        RaceError,
        r"the wgmma at line \d+ is not waited for at the end",
    ),
    Break(
        "released before it was waited for",
        "attention",
        RETIRE + RELEASE,
        RELEASE + RETIRE,
        RaceError,
        r"(outstanding|no barrier that orders it after).* by a wgmma of consumer",
    ),
    Break(
        "8-bit operand across K",
        "handoff",
        "w_buffer.permute((1, 0))",
        "w_buffer",
        InterpreterError,
        "must lie along K",
    ),
    Break(
        "operand shapes",
        "attention",
        "k_ring.index(slot).permute((1, 0))",
        "k_ring.slice(0, 1)",
        InterpreterError,
        "wgmma of",
    ),
    Break(
        "operand layout",
        "attention",
        "p = gl.convert_layout(p.to(gl.bfloat16), P_LAYOUT)",
        "p = p.to(gl.bfloat16)",
        InterpreterError,
        "DotOperandLayout",
    ),
    # Global memory.
    Break(
        "written twice",
        "scale",
        "tma_store(y_desc, [tile * 64, 0]",
        "tma_store(y_desc, [0, 0]",
        RaceError,
        "y is written twice by the same kernel",
    ),
    Break(
        "not written",
        "scale",
        "y_desc, [tile * 64, 0]",
        "y_desc, [tile * 64 + 64, 0]",
        InterpreterError,
        r"output y\[300, 64\]: 4096 elements are never written, the first at \(0, 0\)",
    ),
    Break(
        "read past the end",
        "handoff",
        "mask=mask, other=0.0",
        "other=0.0",
        InterpreterError,
        "x: element 2400 of 2400 is accessed",
    ),
    Break(
        "stored twice",
        "handoff",
        "row[:, None] * N + column[None, :], y,",
        "row[:, None] * 0 + column[None, :], y,",
        RaceError,
        "y is written twice by one store",
    ),
    # What Triton would refuse.
    Break(
        "layouts differ",
        "scale",
        "* 2.0",
        "* gl.full([64, 64], 2.0, gl.float32, gl.BlockedLayout([8, 1], [4, 8], [1, 4], [0, 1]))",
        InterpreterError,
        "different layouts",
    ),
    Break(
        "layout of other warps",
        "scale",
        "[4, 8], [4, 1]",
        "[4, 8], [8, 1]",
        InterpreterError,
        "made for 8 warps is used in a partition of 4",
    ),
    Break(
        "wrong slice",
        "handoff",
        "(row < rows)[:, None]",
        "(row < rows)[None, :]",
        InterpreterError,
        r"expand_dims\(0\) needs a SliceLayout of dimension 0",
    ),
    Break(
        "store of another type",
        "scale",
        ".to(gl.bfloat16)",
        "",
        InterpreterError,
        r"staging of bfloat16\[64, 64\] cannot take a tensor of float32",
    ),
    Break(
        "box and view differ",
        "scale",
        "list(x.stride()), [64, 64]",
        "list(x.stride()), [32, 64]",
        InterpreterError,
        r"moves bfloat16\[32, 64\], but ring\[0\]",
    ),
    Break(
        "box of 48 rows",
        "scale",
        "list(x.stride()), [64, 64]",
        "list(x.stride()), [48, 64]",
        InterpreterError,
        "powers of two",
    ),
    Break(
        "stride not 16 bytes",
        "scale",
        "list(x.stride()), [64",
        "[65, 1], [64",
        InterpreterError,
        "strides must be multiples of 16 bytes",
    ),
    Break(
        "unknown function",
        "attention",
        "gl.exp2(s",
        "gl.exp3(s",
        InterpreterError,
        r"kernel.py:\d+: consumer \d.*language has no 'exp3'",
    ),
    Break(
        "unknown instruction",
        "handoff",
        "tanh.approx.f32 $0",
        "prmt.b32 $0",
        InterpreterError,
        "is not one known float32 instruction",
    ),
    Break(
        "unknown import",
        "scale",
        "import torch\n",
        "import torch\nimport numpy\n",
        InterpreterError,
        "import of numpy",
    ),
    Break(
        "static_assert",
        "scale",
        "    staging = gl",
        "    gl.static_assert(DEPTH == 3, 'three')\n    staging = gl",
        InterpreterError,
        "static_assert failed: three",
    ),
    Break(
        "no launcher", "scale", "def prepare(", "def ready(", InterpreterError, "defines no function prepare"
    ),
    Break("syntax", "scale", "def prepare(", "def prepare((", InterpreterError, r"kernel.py:\d+"),
    Break(
        "host check",
        "handoff",
        "!= torch.float8_e4m3fn",
        "== torch.float8_e4m3fn",
        InterpreterError,
        r"host: ValueError: x is torch.float8_e4m3fn",
    ),
)
