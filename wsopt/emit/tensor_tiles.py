"""Names of what a loop's values lie in on their way through tensor memory, and of the barriers that tell of them.

Each consumer has one tile of every kind: a product's result, which its commit tells of, and an operand, in columns of
its own or in those of the scores that it was computed from. A product that takes an operand waits at a barrier of its
own, for that and for its sums.
"""

from __future__ import annotations

from collections.abc import Iterator

from wsopt.emit.instructions import Slots, arrive, wait
from wsopt.emit.plan import KernelPlan
from wsopt.emit.tensors import GLUON
from wsopt.program.ids import OpKind, ValueId, ValueKind
from wsopt.program.program import TileOp, Value

STEP, BEFORE = "step & 1", "(step & 1) ^ 1"
"""Phases of a barrier that each K-block completes once: of the present K-block, and of the one before."""


def memory(plan: KernelPlan, value: ValueId) -> str:
    """The buffer in which all consumers' tiles of a value lie."""
    ending = "sums" if value.kind is ValueKind.SUM else "memory"
    return f"{plan.value(value.subject)}_{ending}"


def tile(plan: KernelPlan, value: ValueId, consumer: str) -> str:
    """The expression of a consumer's tile of a value in tensor memory."""
    within = plan.program.value(value).within
    if within is None:
        return f"{memory(plan, value)}.index({consumer})"
    dtype = GLUON[plan.program.value(value).dtype]
    columns = f"{memory(plan, within)}.index({consumer}).slice(0, OPERAND_COLUMNS)"
    return f"reinterpret({columns}, {dtype}, [CONSUMER_ROWS, TILE_DEPTH], OPERAND_LAYOUT)"


def ended(plan: KernelPlan, product: TileOp, consumer: str) -> str:
    """The barrier at which the commit behind a product arrives."""
    return f"{_ended(plan, product)}.index({consumer})"


def ready(plan: KernelPlan, product: TileOp, consumer: str) -> str:
    """The barrier at which a consumer arrives when a product may take its operand and add to its sums."""
    return f"{_ready(plan, product)}.index({consumer})"


def empty(plan: KernelPlan, product: TileOp, consumer: str) -> str:
    """The barrier at which a consumer arrives when it has read a product's result."""
    return f"{_empty(plan, product)}.index({consumer})"


def rescaled(plan: KernelPlan, product: TileOp, consumer: str) -> str:
    """The barrier at which a correction warpgroup arrives when it has rescaled a product's sums."""
    return f"{_rescaled(plan, product)}.index({consumer})"


def handed(plan: KernelPlan, factor: ValueId) -> Slots:
    """The factors of rows on their way to a correction warpgroup, with their barriers."""
    return Slots(f"{plan.value(factor.subject)}_handed", "")


def corrections(plan: KernelPlan) -> tuple[TileOp, ...]:
    """The rescalings of the first consumer's sums that a correction warpgroup does."""
    every = plan.program.of(OpKind.RESCALE)
    return tuple(op for op in every if op.apart and op.id.instance == 0)


def is_corrected(plan: KernelPlan, product: TileOp) -> bool:
    """Whether a correction warpgroup rescales a product's sums."""
    return any(op.id.subject == product.id.subject for op in corrections(plan))


def takes_operand(product: TileOp) -> bool:
    """Whether a product takes a value that a consumer has computed."""
    return any(value.kind is ValueKind.OPERAND for value in product.inputs)


def handed_back(plan: KernelPlan, product: TileOp) -> bool:
    """Whether a consumer tells when it has read a product's result. Not where an operand takes its columns: the
    product of that one comes between.
    """
    scores = product.output is not None and product.output.kind is ValueKind.RESULT
    return scores and all(value.within != product.output for value in plan.program.values)


def barriers(plan: KernelPlan, product: TileOp) -> Iterator[str]:
    """The names of a product's barriers."""
    yield _ended(plan, product)
    if takes_operand(product):
        yield _ready(plan, product)
    if is_corrected(plan, product):
        yield _rescaled(plan, product)
    if handed_back(plan, product):
        yield _empty(plan, product)


def tiles(plan: KernelPlan, product: TileOp) -> Iterator[Value]:
    """A consumer's tiles in tensor memory that have columns of their own, of which a product leaves or takes one."""
    named = {*product.inputs, product.output}
    return (one for one in plan.program.values if one.id in named and one.tensor_columns)


def products(plan: KernelPlan) -> Iterator[TileOp]:
    """The first consumer's products."""
    return (op for op in plan.program.of(OpKind.MMA) if op.consumer == 0)


def wait_ended(plan: KernelPlan, product: TileOp, phase: str) -> str:
    """A consumer's wait for a product's end."""
    return wait(ended(plan, product, "index"), phase)


def tell(barrier: str) -> str:
    """A consumer's arrival."""
    return arrive(barrier)


def _ended(plan: KernelPlan, product: TileOp) -> str:
    return f"{plan.value(product.id.subject)}_full"


def _ready(plan: KernelPlan, product: TileOp) -> str:
    return f"{plan.value(product.id.subject)}_ready"


def _rescaled(plan: KernelPlan, product: TileOp) -> str:
    return f"{plan.value(product.id.subject)}_rescaled"


def _empty(plan: KernelPlan, product: TileOp) -> str:
    return f"{plan.value(product.id.subject)}_empty"
