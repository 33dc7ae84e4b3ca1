"""The targets that there are, and which one a machine's kernels are written for."""

from __future__ import annotations

from wsopt.machine.load import require_target
from wsopt.machine.types import Machine
from wsopt.targets.target import LoopKind, Sums, Target

HOPPER = Target(
    architecture="sm_90",
    title="Hopper",
    sums=Sums.REGISTERS,
    consumer_rows=(64, 128),
    consumers=(1, 2, 3),
    warpgroups=(1, 2),
    sum_sets=(1,),
    swaps=True,
    single=True,
    ping_pong=True,
    tails=True,
    promotes=True,
    reduces=True,
    exp2_eighths=(0,),
    loops=frozenset(LoopKind),
    module="hopper",
    names=("fence_async_shared", "mbarrier", "tma"),
    product_names=("warpgroup_mma", "warpgroup_mma_wait"),
    validated=True,
)

BLACKWELL = Target(
    architecture="sm_100",
    title="Blackwell",
    sums=Sums.TENSOR_MEMORY,
    consumer_rows=(128,),
    consumers=(1, 2),
    warpgroups=(1,),
    sum_sets=(1, 2),
    swaps=False,
    single=False,
    ping_pong=False,
    tails=False,
    promotes=False,
    reduces=False,
    exp2_eighths=(0,),
    loops=frozenset({LoopKind.PRODUCTS}),
    module="blackwell",
    names=("fence_async_shared", "mbarrier", "tma"),
    product_names=("TensorMemoryLayout", "allocate_tensor_memory", "tcgen05_commit", "tcgen05_mma"),
    validated=False,
)
"""A thin one: its roles are fixed, and its loops have products alone."""

TARGETS = {target.architecture: target for target in (HOPPER, BLACKWELL)}


def target_of(machine: Machine) -> Target:
    """The record of what kernels for this card are written for; LoweringError, with the reason, if there is none."""
    return TARGETS[require_target(machine)]
