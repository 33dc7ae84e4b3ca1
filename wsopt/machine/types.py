"""The record of one card: every figure that a schedule or a prediction may depend on, with its unit.

Ranges stand at the fields; what has to hold between fields is in `check.py`. Values come from `data/`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, PlainSerializer, StrictStr, StringConstraints
from pydantic.dataclasses import dataclass

from wsopt.errors import LoweringError
from wsopt.machine.frozen import FrozenMap

OPERAND_DTYPES = ("bf16", "f16", "f8e4m3", "f8e5m2", "i8", "tf32")


def tensor_form(dtype: str) -> str:
    """The form in which tensor cores multiply operands of an element type: they cut f32 to tf32."""
    return "tf32" if dtype == "f32" else dtype


"""Operand types a card may state a tensor rate for; accumulation is in f32 (i32 for `i8`)."""

INSTRUCTION_KINDS = (
    *("add", "mul", "fma", "max", "iadd", "imul", "compare", "select", "logic"),
    *("exp2", "log2", "rcp", "rsqrt", "sqrt", "sin", "cos", "tanh"),
    *("convert", "convert_f8", "convert_int", "shuffle", "ldst"),
)
"""Scalar instruction kinds every card gives a rate for; all on 32-bit registers of one thread.

`max` is min too; `convert` packs two f32 into bf16 or f16 in one instruction, `convert_f8` into f8;
`convert_int` goes between f32 and i32; `ldst` moves one 32-bit word to or from shared memory.
"""

TILE_ROWS = 64
"""Rows of the tile that the costs of tile operations are stated for."""

TILE_KINDS = (
    *("row_max", "row_sum", "dot_operand_16", "dot_operand_8"),
    *("shared_store_8", "shared_store_16", "shared_store_32", "shared_load_16", "shared_load_32"),
)
"""Operations on a tile of `TILE_ROWS` rows that a warpgroup holds as an accumulator of f32.

`row_max` and `row_sum` leave a value a row; `dot_operand_N` brings values of N bits, already cast, where a left
operand in registers has them; `shared_store_N` writes values of N bits to shared memory, with the barrier
before and the fence behind, `shared_load_N` reads them into the layout of an accumulator.
"""


TMA_PROBE_BYTES = 128 * 64 * 2
"""Bytes of the box whose copy is timed for `Latency.tma_load_l2` and `tma_load_dram`, one at a time."""


class Unit(StrEnum):
    """Units that the warps of an SM share: issue slots, and the pipes of the instructions."""

    ISSUE = "issue"
    FMA = "fma"
    ALU = "alu"
    MUFU = "mufu"
    LSU = "lsu"


class Origin(StrEnum):
    """Where a figure comes from: the word that its source text starts with.

    The first two are the vendor's; `reported` is what users of the card publish, `measured` our own with its
    date, `derived` follows from other figures, `scaled` is another card's brought to this one.
    """

    DATASHEET = "datasheet"
    DOCUMENTATION = "documentation"
    REPORTED = "reported"
    MEASURED = "measured"
    DERIVED = "derived"
    SCALED = "scaled"
    ESTIMATE = "estimate"


def _whole(low: int, high: int, text: str) -> Any:
    return Field(strict=True, ge=low, le=high, description=text)


def _real(low: float, high: float, text: str) -> Any:
    return Field(strict=True, ge=low, le=high, allow_inf_nan=False, description=text)


_PLAIN = PlainSerializer(dict, return_type=dict)

Rate = Annotated[float, _real(0.01, 1e6, "per SM and cycle")]
Tflops = Annotated[float, _real(0.1, 1e6, "dense TFLOP/s")]
Cycles = Annotated[float, _real(0, 1e5, "cycles")]
Slug = Annotated[StrictStr, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
Rates = Annotated[Mapping[str, Rate], AfterValidator(FrozenMap), _PLAIN]
Costs = Annotated[Mapping[str, Cycles], AfterValidator(FrozenMap), _PLAIN]
Text = Annotated[StrictStr, StringConstraints(min_length=1)]

_CONFIG = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
class Latency:
    """Latencies in cycles of the SM clock, each from issue to the moment a dependent one may start.

    `tma_load_l2` and `tma_load_dram` are of one box of `TMA_PROBE_BYTES`, its bytes included.
    `mbarrier_wake` is from the arrival that completes a phase to the wake-up of a sleeping waiter,
    `mbarrier_wait` a wait that succeeds at once; `mma_issue` is what one tensor instruction holds its
    warpgroup for, `mma_latency` what a result takes beyond the time in the tensor core; `barrier` is a
    named barrier, `fence` the fence between ordinary and asynchronous accesses to shared memory, and
    `fence_behind_stores` one that a tile's stores are still on their way before.
    `mbarrier_arrive` is what an arrival holds its partition for, the barrier of its warps included;
    `mma_latency_registers` is `mma_latency` with the left operand in registers; `special` is a dependent
    instruction of the MUFU pipe, exp2 for instance. `other_block` is by how much an arrival comes later at a barrier
    of another block of the cluster.
    """

    tma_load_l2: Cycles
    tma_load_dram: Cycles
    tma_store: Cycles
    mbarrier_wake: Cycles
    mbarrier_wait: Cycles
    mbarrier_arrive: Cycles
    mma_issue: Cycles
    mma_latency: Cycles
    mma_latency_registers: Cycles
    smem_load: Cycles
    smem_store: Cycles
    shuffle: Cycles
    arithmetic: Cycles
    special: Cycles
    barrier: Cycles
    fence: Cycles
    fence_behind_stores: Cycles
    other_block: Cycles


@dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
class Machine:
    """One card. Bandwidths are in bytes a second, rates per SM and cycle, clocks in MHz.

    `clock_mhz` is the boost clock, `rated_clock_mhz` the one behind the vendor's dense TFLOP/s, and
    `sustained_clock_mhz` the one that kernels hold which the power limit leaves alone. `tensor` gives
    multiply-adds by operand dtype, `scalar` instructions by kind, `scalar_unit` the pipe of each kind, and
    `scalar_alone` those instructions where one warpgroup has the SM to itself. A tile operation takes one
    warpgroup alone `tile_start` cycles and `tile_alone` for each column; where all warpgroups keep at theirs,
    the SM takes `tile_crowded` for each column of one tile. A tensor instruction of few columns takes
    `mma_least_cycles` and `mma_least_cycles_per_column` for each of them, `mma_least_cycles_registers` with its
    left operand in registers. `power_tensor` is the energy of a cycle of the tensor core by operand dtype, in
    those of bf16; a dtype that it does not name takes as much as that.
    `dataclasses.replace` checks ranges again, but not what `check.py` asks of the figures together.
    """

    name: Slug
    title: Text
    architecture: Annotated[StrictStr, StringConstraints(pattern=r"^sm_\d+$")]
    emit_target: Annotated[StrictStr, StringConstraints(pattern=r"^sm_\d+$")] | None = None
    refusal: Text | None = None

    sm_count: Annotated[int, _whole(1, 1024, "streaming multiprocessors")]
    clock_mhz: Annotated[float, _real(100, 10_000, "boost clock, MHz")]
    rated_clock_mhz: Annotated[float, _real(100, 10_000, "clock of the dense TFLOP/s, MHz")]
    sustained_clock_mhz: Annotated[float, _real(100, 10_000, "clock that the power limit leaves alone, MHz")]

    threads_per_warp: Annotated[int, _whole(1, 128, "threads a warp")]
    warps_per_warpgroup: Annotated[int, _whole(1, 32, "warps a warpgroup")]
    schedulers_per_sm: Annotated[int, _whole(1, 16, "warp schedulers an SM")]
    max_warps_per_block: Annotated[int, _whole(1, 128, "warps a block")]
    max_warps_per_sm: Annotated[int, _whole(1, 128, "warps an SM")]
    max_blocks_per_sm: Annotated[int, _whole(1, 128, "blocks an SM")]

    registers_per_sm: Annotated[int, _whole(1024, 2**24, "32-bit registers an SM")]
    register_granularity: Annotated[int, _whole(1, 64, "registers a thread are a multiple of this")]
    setmaxnreg_min_registers: Annotated[int, _whole(1, 1024, "fewest registers a role may ask for")]
    setmaxnreg_max_registers: Annotated[int, _whole(1, 1024, "most registers a role may ask for")]
    max_registers_per_thread: Annotated[int, _whole(1, 1024, "registers a thread can address")]

    shared_memory_per_block_bytes: Annotated[int, _whole(1024, 2**24, "shared memory a block, bytes")]
    shared_memory_per_sm_bytes: Annotated[int, _whole(1024, 2**24, "shared memory an SM, bytes")]
    shared_memory_reserved_bytes: Annotated[int, _whole(0, 2**16, "kept by the system a block, bytes")]
    shared_memory_bytes_per_cycle: Annotated[int, _whole(1, 4096, "shared memory, bytes a cycle")]

    l2_bytes: Annotated[int, _whole(2**16, 2**32, "L2 cache, bytes")]
    l2_bandwidth: Annotated[float, _real(1e10, 1e15, "L2 to SMs, bytes a second")]
    l2_distinct_bandwidth: Annotated[
        float, _real(1e10, 1e15, "L2 to SMs where no two read the same lines, bytes a second")
    ]
    dram_bytes: Annotated[int, _whole(2**28, 2**44, "device memory, bytes")]
    dram_bandwidth: Annotated[float, _real(1e10, 1e15, "device memory by datasheet, bytes a second")]
    dram_sustained_bandwidth: Annotated[
        float, _real(1e10, 1e15, "device memory as copies reach it, bytes a second")
    ]
    dram_read_bandwidth: Annotated[
        float, _real(1e10, 1e15, "device memory as reads alone reach it, bytes a second")
    ]

    mma_rows: Annotated[int, _whole(1, 1024, "rows of one tensor instruction")]
    mma_columns_step: Annotated[
        int, _whole(1, 1024, "columns of a tensor instruction are a multiple of this")
    ]
    mma_columns_max: Annotated[int, _whole(1, 1024, "most columns of a tensor instruction")]
    mma_k_bytes: Annotated[int, _whole(1, 1024, "depth of one tensor instruction, bytes of an operand row")]
    mma_least_cycles: Annotated[float, _real(0, 1e4, "cycles of one tensor instruction before its columns")]
    mma_least_cycles_per_column: Annotated[float, _real(0, 16, "cycles for each of its few columns")]
    mma_least_cycles_registers: Annotated[
        float, _real(0, 1e4, "least cycles of one tensor instruction, left operand in registers")
    ]
    mma_queue: Annotated[
        float, _real(0, 1e3, "tensor instructions a warpgroup has under way before issuing one waits")
    ]
    tensor_memory_columns: Annotated[int, _whole(0, 4096, "columns of tensor memory a block; 0 for none")]
    tensor_memory_bytes_per_cycle: Annotated[float, _real(0, 1e4, "loads from tensor memory, bytes a cycle")]
    tma_box_cycles: Annotated[float, _real(0, 1e4, "a loader's cycles for one box: wait, expect, copy")]
    tma_bytes_per_cycle: Annotated[float, _real(1, 1e4, "L2 to one SM while few copy, bytes a cycle")]
    tma_store_box_cycles: Annotated[
        float, _real(0, 1e4, "a store's cycles until its buffer is free, less its bytes")
    ]
    tma_store_bytes_per_cycle: Annotated[float, _real(1, 1e4, "what an SM's stores read, bytes a cycle")]
    tma_box_extent_max: Annotated[int, _whole(1, 65536, "most elements along one extent of a TMA box")]
    tma_alignment_bytes: Annotated[int, _whole(1, 1024, "alignment of TMA addresses and strides, bytes")]

    sms_per_gpc: Annotated[int, _whole(1, 1024, "SMs that share a path to L2")]
    power_clock_mhz: Annotated[
        float, _real(1, 10_000, "clock of one tensor cycle's energy a cycle under the power limit, MHz")
    ]
    power_idle: Annotated[
        float, _real(0, 10, "energy of a cycle of the SM by itself, in cycles of the tensor core")
    ]
    joint_warpgroups_loss: Annotated[
        float, _real(0, 1, "share of the tensor rate lost where one partition has two warpgroups")
    ]
    paired_blocks_loss: Annotated[
        float, _real(0, 1, "share of the tensor rate lost where two blocks share their products")
    ]
    l2_line_bytes: Annotated[int, _whole(16, 1024, "bytes of an L2 line; a copy asks for whole ones")]
    l2_sector_bytes: Annotated[int, _whole(8, 1024, "bytes of a sector of an L2 line")]
    sector_split_factor: Annotated[
        float, _real(1, 10, "how much more a line costs whose part begins in the middle of a sector")
    ]
    power_cycles_per_alu_cycle: Annotated[
        float, _real(0, 10, "the same of a cycle of a pipe of the arithmetic units")
    ]
    power_cycles_per_shared_byte: Annotated[
        float, _real(0, 1, "energy of an operand byte out of shared memory, in cycles of the tensor core")
    ]
    power_cycles_per_l2_byte: Annotated[
        float, _real(0, 1, "energy of a byte from L2 to an SM, in cycles of the tensor core")
    ]
    power_cycles_per_gpc_byte: Annotated[
        float, _real(0, 1, "energy of a byte, counted once for all SMs of a GPC that read it")
    ]
    power_cycles_per_dram_byte: Annotated[
        float, _real(0, 1, "energy of a byte of device memory, in cycles of the tensor core")
    ]
    copy_queue: Annotated[
        float, _real(0, 100, "how much longer a copy takes on a path that is always busy, in times")
    ]
    copy_knee: Annotated[
        float, _real(1, 100, "exponent of the norm in which path, tensor core and ring bound a loop")
    ]
    consumer_knee: Annotated[
        float,
        _real(1, 100, "exponent of the norm in which units and threads bound a loop that computes values"),
    ]
    tma_outside_cycles: Annotated[
        float, _real(0, 100, "cycles of a copy for 128 bytes of a row beyond the tensor's end")
    ]
    code_cycles: Annotated[
        float, _real(0, 100, "cycles that an instruction takes to come to an SM, before a role first runs it")
    ]
    copy_knee_alone: Annotated[
        float, _real(1, 100, "the same where one consumer at a time has products under way")
    ]
    stream_knee: Annotated[
        float, _real(1, 100, "exponent of the norm in which device memory and ring bound rows that stream")
    ]
    stream_bytes_few: Annotated[
        float, _real(1, 1e6, "bytes on the way to each SM up to which device memory is not slowed")
    ]
    stream_bytes_many: Annotated[
        float, _real(1, 1e6, "bytes on the way to each SM from which it is slowed no further")
    ]
    stream_loss: Annotated[
        float, _real(0, 10, "how much longer a byte takes there, in times, where rows are read and written")
    ]
    dynamic_stream_knee: Annotated[
        float, _real(1, 100, "the exponent of that norm where blocks take their tiles at run time")
    ]
    dynamic_stream_loss: Annotated[
        float, _real(0, 10, "how much longer a byte takes from so many bytes on, in times, where they do")
    ]
    next_tile_cycles: Annotated[
        float,
        _real(0, 1e6, "from asking a counter in device memory for a tile's number to having it, cycles"),
    ]

    kernel_launch_us: Annotated[float, _real(0, 1000, "one launch, microseconds")]
    block_start_cycles: Annotated[float, _real(0, 1e6, "from block start to first load, cycles")]
    block_turnover_cycles: Annotated[
        float, _real(0, 1e6, "from the end of a block to the first instruction of the next on its SM, cycles")
    ]

    tensor: Rates
    power_tensor: Rates
    dense_tflops: Annotated[Mapping[str, Tflops], AfterValidator(FrozenMap), _PLAIN]
    scalar: Rates
    scalar_alone: Rates
    tile_start: Costs
    tile_alone: Costs
    tile_crowded: Costs
    scalar_unit: Annotated[Mapping[str, Unit], AfterValidator(FrozenMap), _PLAIN]
    latency: Latency
    sources: Annotated[Mapping[str, StrictStr], AfterValidator(FrozenMap), _PLAIN]

    def __hash__(self) -> int:
        """A hash of what cards differ in; it is asked for whenever a price is looked up."""
        return hash((self.name, self.sm_count, self.clock_mhz))

    def tflops(self, dtype: str) -> float:
        """Dense TFLOP/s of the datasheet for operands of `dtype`; LoweringError if the card has none."""
        dtype = tensor_form(dtype)
        if dtype not in self.dense_tflops:
            known = ", ".join(self.dense_tflops)
            raise LoweringError(
                f"{self.title} ({self.architecture}) has no tensor rate for {dtype}; it has {known}"
            )
        return self.dense_tflops[dtype]

    def sustained_tflops(self, dtype: str) -> float:
        """TFLOP/s at the sustained clock: what a product that never waits reaches under the power limit."""
        return self.tflops(dtype) * self.power_clock(1.0, self.tensor_energy(dtype)) / self.rated_clock_mhz

    def tensor_energy(self, dtype: str) -> float:
        """Energy of a cycle of the tensor core with operands of `dtype`, in cycles of it with bf16."""
        return self.power_tensor.get(tensor_form(dtype), 1.0)

    def tensor_rate(self, dtype: str) -> float:
        """Multiply-adds a cycle and SM with operands of `dtype`."""
        return self.tensor[tensor_form(dtype)]

    def ridge(self, dtype: str) -> float:
        """FLOP a byte at which tensor cores and device memory take equally long, both by the datasheet."""
        return self.tflops(dtype) * 1e12 / self.dram_bandwidth

    def mma_depth(self, bits: int) -> int:
        """Elements of so many bits that one tensor instruction contracts."""
        return self.mma_k_bytes * 8 // bits

    def first_bytes(self, latency: float) -> float:
        """Cycles from a copy's issue to its first bytes: a measured latency less the transfer of the timed box."""
        return max(0.0, latency - TMA_PROBE_BYTES / self.tma_bytes_per_cycle)

    def power_clock(self, cycles: float, energy: float) -> float:
        """The clock, in MHz, at which the power limit holds work that takes `cycles` and `energy`.

        Energy is in cycles of the tensor core. A cycle's energy goes with the clock f, for the voltage does
        with its root: energy * f^2 / cycles is the power, which has a limit, up to the sustained clock.
        """
        per_cycle = energy / cycles + self.power_idle
        if not per_cycle:
            return self.sustained_clock_mhz
        return min(self.sustained_clock_mhz, self.power_clock_mhz / math.sqrt(per_cycle))

    def seconds(self, cycles: float) -> float:
        """Time that `cycles` of an SM take at the sustained clock; what the power limit adds are cycles too."""
        return cycles / (self.sustained_clock_mhz * 1e6)

    def memory_seconds(self, read: float, written: float) -> float:
        """Time of so many bytes from and to device memory. A copy reads as many as it writes, and reads alone are
        faster: what is left of a copy's time is that of its writes.
        """
        write = 2 / self.dram_sustained_bandwidth - 1 / self.dram_read_bandwidth
        return read / self.dram_read_bandwidth + written * write

    def source(self, figure: str) -> str:
        """Where a figure comes from, by field name or `table.key` ("tensor.bf16"); KeyError if unknown."""
        return self.sources[figure]

    def origin(self, figure: str) -> Origin:
        """The kind of source of a figure; KeyError if unknown."""
        return Origin(self.sources[figure].partition(":")[0])

    def assumed(self) -> tuple[str, ...]:
        """Figures scaled from another card or estimated: those a measurement of this card would replace."""
        return tuple(name for name in self.sources if self.origin(name) in (Origin.SCALED, Origin.ESTIMATE))
