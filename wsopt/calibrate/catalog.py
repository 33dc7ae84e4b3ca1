"""Every probe of a calibration. Names are `family.what.variant`; `--only` takes their beginnings."""

from __future__ import annotations

from collections.abc import Iterable

from wsopt.calibrate.program import Mode, Place, Probe, Program
from wsopt.errors import InputError, Problem

_INTO = ".reg .b32 a, b, c, d; mov.b32 a, $1; mov.b32 b, $2; mov.b32 d, $3;"

SCALAR_ASM: dict[str, str] = {
    "add": "add.rn.f32 $0, $1, $2;",
    "mul": "mul.rn.f32 $0, $1, $2;",
    "fma": "fma.rn.f32 $0, $1, $3, $2;",
    "max": "max.f32 $0, $1, $2;",
    "iadd": f"{{ {_INTO} add.s32 c, a, b; mov.b32 $0, c; }}",
    "imul": f"{{ {_INTO} mad.lo.s32 c, a, b, a; mov.b32 $0, c; }}",
    "select": "{ .reg .pred p; setp.lt.f32 p, $1, $2; selp.f32 $0, $2, $3, p; }",
    "logic": f"{{ {_INTO} lop3.b32 c, a, b, d, 0xE8; mov.b32 $0, c; }}",
    "exp2": "ex2.approx.ftz.f32 $0, $1;",
    "log2": "lg2.approx.ftz.f32 $0, $1;",
    "rcp": "rcp.approx.ftz.f32 $0, $1;",
    "rsqrt": "rsqrt.approx.ftz.f32 $0, $1;",
    "sqrt": "sqrt.approx.ftz.f32 $0, $1;",
    "sin": "sin.approx.ftz.f32 $0, $1;",
    "cos": "cos.approx.ftz.f32 $0, $1;",
    "tanh": "tanh.approx.f32 $0, $1;",
    "convert": "{ .reg .b32 c; cvt.rn.bf16x2.f32 c, $1, $2; mov.b32 $0, c; }",
    "convert_f16": "{ .reg .b32 c; cvt.rn.f16x2.f32 c, $1, $2; mov.b32 $0, c; }",
    "convert_f8": (
        "{ .reg .b16 h, l; .reg .b32 c; cvt.rn.satfinite.e4m3x2.f32 l, $1, $2; "
        "cvt.rn.satfinite.e4m3x2.f32 h, $2, $1; mov.b32 c, {l, h}; mov.b32 $0, c; }"
    ),
    "convert_to_int": "{ .reg .b32 c; cvt.rni.s32.f32 c, $1; mov.b32 $0, c; }",
    "convert_from_int": "{ .reg .b32 c; mov.b32 c, $1; cvt.rn.f32.s32 $0, c; }",
    "shuffle": "shfl.sync.bfly.b32 $0, $1, 1, 0x1f, 0xffffffff;",
}
"""PTX of one step by probe: $0 from $1 and $2 (two chains) and $3 (a constant of the loop), all f32 registers.

`select` is a comparison and a selection, `convert_f8` two conversions of a pair each and the move that joins them.
"""

REGISTERS = 32
"""Values in each of a thread's two chains."""

PAIRS = {"rcp": 1}
"""Steps of both chains in one iteration, 2 where not given: ptxas knows what a reciprocal of one is, and with
more than 128 instructions an iteration, three warpgroups wait for instructions, not for pipes."""

CHAIN_ASM: dict[str, str] = {
    "arithmetic": "{ .reg .f32 f, g; mov.b32 f, $1; mov.b32 g, $2; fma.rn.f32 f, f, g, g; mov.b32 $0, f; }",
    "special": "{ .reg .f32 f; mov.b32 f, $1; ex2.approx.ftz.f32 f, f; mov.b32 $0, f; }",
    "shuffle": "shfl.sync.bfly.b32 $0, $1, 1, 0x1f, 0xffffffff;",
    "load": "ld.volatile.shared.b32 $0, [$1];",
    "store_load": "st.volatile.shared.b32 [$1], $1; ld.volatile.shared.b32 $0, [$1];",
}
"""PTX of one dependent step by latency: $0 from $1, an address of shared memory that holds itself."""

COLUMNS = (32, 64, 128)
MMA_COLUMNS = (8, 16, 32, 64, 128, 256)
K_BLOCKS = (1, 4)
MMA_PER_K_BLOCK = 4
BOXES = ((8, 64), (64, 64), (128, 64), (256, 64), (128, 32), (128, 16))
DEPTHS = (1, 2, 4, 6)


def _roles(name: str, program: Program, groups: Iterable[int] = (1, 2, 3), per: float = 1.0) -> list[Probe]:
    return [Probe(f"{name}.{count}", Mode.ROLES, program, per, groups=count) for count in groups]


def _arithmetic() -> list[Probe]:
    found = []
    for kind, asm in SCALAR_ASM.items():
        pairs = PAIRS.get(kind, 2)
        program = Program("arithmetic", "kernel", (("ASM", asm), ("REGISTERS", REGISTERS), ("PAIRS", pairs)))
        found += _roles(f"scalar.{kind}", program, per=2 * REGISTERS * pairs)
    return found


def _tiles() -> list[Probe]:
    found = []
    for columns in COLUMNS:
        wide = ("COLUMNS", columns)
        for op in ("none", "max", "sum"):
            found += _roles(f"reduce.{op}.{columns}", Program("tiles", "reduce_kernel", (("OP", op), wide)))
        for bits in (16, 8):
            for op in ("none", "operand"):
                program = Program("tiles", "convert_kernel", (("OP", op), ("BITS", bits), wide))
                found += _roles(f"cast.{op}_{bits}.{columns}", program)
        found += _roles(f"softmax.step.{columns}", Program("tiles", "softmax_kernel", (wide,)))
        if columns > 32:
            for op, bits in (("store", 8), ("store", 16), ("store", 32), ("load", 16), ("load", 32)):
                swizzle = min(128, columns * bits // 8)
                found += _roles(f"shared.{op}_{bits}.{columns}", _shared(op, bits, columns, swizzle))
    for name, op, swizzle, turned in (
        ("swizzle_64", "store", 64, False),
        ("swizzle_32", "store", 32, False),
        ("transposed", "store", 128, True),
        ("operand", "operand", 128, False),
    ):
        found += _roles(f"shared.{name}.128", _shared(op, 16, 128, swizzle, turned))
    return found


def _shared(op: str, bits: int, columns: int, swizzle: int, turned: bool = False) -> Program:
    constants = (
        ("OP", op),
        ("BITS", bits),
        ("COLUMNS", columns),
        ("SWIZZLE", swizzle),
        ("TRANSPOSED", turned),
    )
    return Program("tiles", "shared_kernel", constants)


def mma_program(
    dtype: str, columns: int, k_blocks: int, registers: bool = False, timed: str = "loop"
) -> Program:
    """Tensor instructions on `columns` columns, `k_blocks` K-blocks of four an iteration, left operand by choice."""
    constants = (
        *(("DTYPE", dtype), ("COLUMNS", columns), ("ISSUES", k_blocks)),
        *(("REGISTERS", registers), ("TIMED", timed)),
    )
    return Program("tensor", "kernel", constants, registers=168)


def _tensor() -> list[Probe]:
    found = []
    for dtype in ("bf16", "f16", "f8e4m3"):
        for columns in MMA_COLUMNS:
            for place in ("shared", "registers"):
                kept = place == "registers"
                # 128 sums, the operand and the rest of a thread do not fit 168 registers.
                if (kept and columns == 256) or (dtype == "f16" and (kept or columns < 64)):
                    continue
                for k_blocks in K_BLOCKS:
                    name = f"mma.{dtype}.{place}.{columns}.{k_blocks}"
                    groups = (1, 2, 3) if k_blocks > 1 else (1,)
                    found += _roles(name, mma_program(dtype, columns, k_blocks, kept), groups)
    for columns in (64, 128, 256):
        for k_blocks in (1, 2, 4):
            program = mma_program("bf16", columns, k_blocks, timed="issue")
            found += _roles(f"mma_issue.bf16.{columns}.{k_blocks}", program, (1,))
    return found


def _sync() -> list[Probe]:
    found = []
    for op in ("wait", "arrive", "barrier", "fence"):
        for warps in (1, 4):
            program = Program("sync", "kernel", (("OP", op),), warps=warps)
            found.append(Probe(f"sync.{op}.{warps}", Mode.ALONE, program, per=8))
    for warps in (1, 4):
        program = Program("sync", "ping_kernel", (("WARPS", warps),))
        found.append(Probe(f"sync.hop.{warps}", Mode.ALONE, program, per=2))
    for kind, asm in CHAIN_ASM.items():
        program = Program("sync", "chain_kernel", (("ASM", asm),))
        found.append(Probe(f"latency.{kind}", Mode.ALONE, program, per=64, options=("third",)))
    return found


def _copies() -> list[Probe]:
    found = []
    for box in BOXES:
        nbytes = box[0] * box[1] * 2
        program = Program("copies", "load_kernel", (("SLOTS", 6),), warps=1, registers=None, box=box)
        where = f"{box[0]}x{box[1]}"
        for place in Place:
            for depth in DEPTHS:
                for blocks, scope in ((16, "few"), (0, "all")):
                    name = f"load.{place}.{where}.{depth}.{scope}"
                    found.append(
                        Probe(name, Mode.LOAD, program, nbytes, depth=depth, place=place, blocks=blocks)
                    )
    for box in ((64, 64), (128, 64)):
        for pending in (0, 2):
            constants = (("PENDING", pending),)
            program = Program("copies", "store_kernel", constants, warps=4, registers=None, box=box)
            for blocks, scope in ((16, "few"), (0, "all")):
                name = f"store.{box[0]}x{box[1]}.{pending}.{scope}"
                found.append(Probe(name, Mode.STORE, program, box[0] * box[1] * 2, blocks=blocks))
    return found


def _whole() -> list[Probe]:
    found = []
    for store in (False, True):
        constants = (("SLOTS", 12), ("STORE", store))
        program = Program("blocks", "kernel", constants, warps=4, box=(128, 64))
        found.append(Probe(f"block.{'store' if store else 'load'}", Mode.BLOCK, program))
    empty = Program("blocks", "empty_kernel", registers=None)
    found.append(Probe("launch.empty", Mode.LAUNCH, empty))
    heavy = mma_program("bf16", 256, 4)
    found.append(Probe("power.tensor", Mode.SUSTAINED, heavy, groups=2))
    found.append(Probe("power.library", Mode.LIBRARY))
    found.append(Probe("memory.copy", Mode.COPY))
    found.append(Probe("memory.read", Mode.READ))
    return found


def all_probes() -> tuple[Probe, ...]:
    """Every probe, in the order in which they run: those that heat the card last."""
    return (*_arithmetic(), *_tiles(), *_tensor(), *_sync(), *_copies(), *_whole())


def chosen_probes(only: Iterable[str]) -> tuple[Probe, ...]:
    """The probes whose names begin with one of `only`, all for none; InputError for a word that fits none."""
    words = [word for word in only if word]
    probes = all_probes()
    for word in words:
        if not any(probe.name.startswith(word) for probe in probes):
            families = ", ".join(sorted({probe.name.partition(".")[0] for probe in probes}))
            told = f"no measurement's name begins with {word!r}; families are {families}"
            raise InputError("calibrate", [Problem("--only", told)])
    return tuple(p for p in probes if not words or any(p.name.startswith(word) for word in words))
