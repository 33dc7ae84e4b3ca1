"""Compares a compiled kernel's resources with its schedule's demands."""

from __future__ import annotations

from dataclasses import dataclass

from wsopt.codegen.aot import CompiledKernel

_FOR_EACH_SPILL = 100
"""Other instructions, at least, for each spill of code that is run once. Such a kernel, a norm with a scale and a
shift for each image, took 28.5 us with two spills, where the best without them took 33.4
(`docs/calibration/h200_vectors_a_tile.json`).
"""


@dataclass(frozen=True, slots=True)
class Expectation:
    """The schedule's demands: matrix instructions in the machine code, shared memory of a block in bytes, columns of
    tensor memory. `peelable` instructions are of a loop whose first or last pass the compiler may write once more.
    `lone_arrivals` are behind stores to shared memory by a partition of one warp, which has no other to meet. Code
    that is run `once`, from its begin to its end, may have a few spills.
    """

    tensor_instructions: int
    shared_bytes: int
    tensor_columns: int = 0
    peelable: int = 0
    lone_arrivals: int = 0
    once: bool = False

    def spares(self, compiled: CompiledKernel) -> bool:
        """Whether the kernel's spills cost next to nothing: each is run once, as all of the many other instructions
        are.
        """
        spills = compiled.spill_loads + compiled.spill_stores
        return self.once and spills * _FOR_EACH_SPILL <= sum(count for _, count in compiled.sass)

    def allows(self, tensor_instructions: int) -> bool:
        """Whether machine code of so many matrix instructions is what was asked for."""
        return 0 <= tensor_instructions - self.tensor_instructions <= self.peelable


def verdict(compiled: CompiledKernel, expectation: Expectation) -> tuple[str, ...]:
    """Complaints about a compiled kernel, worst first; empty if it is as asked."""
    complaints = []
    if compiled.spills_in_loop:
        complaints.append(f"{compiled.spills_in_loop} spill accesses inside the main loop")
    spared = expectation.spares(compiled)
    if (compiled.spill_loads or compiled.spill_stores) and not spared:
        complaints.append(f"spills: {compiled.spill_loads} loads and {compiled.spill_stores} stores")
    if compiled.overwritten_operands:
        complaints.append(
            f"{compiled.overwritten_operands} writes to registers that a product under way still reads"
        )
    if compiled.early_arrivals > expectation.lone_arrivals:
        early = compiled.early_arrivals - expectation.lone_arrivals
        complaints.append(f"{early} barrier arrivals before all warps of a partition are known to be done")
    if compiled.stack_bytes and not spared:
        complaints.append(f"a stack of {compiled.stack_bytes} bytes a thread, expected none")
    if not expectation.allows(compiled.tensor_instructions):
        complaints.append(
            f"{compiled.tensor_instructions} tensor-core instructions, expected {expectation.tensor_instructions}"
        )
    if compiled.shared_bytes > expectation.shared_bytes:
        complaints.append(
            f"{compiled.shared_bytes} bytes of shared memory, expected at most {expectation.shared_bytes}"
        )
    if compiled.tensor_columns > expectation.tensor_columns:
        complaints.append(
            f"{compiled.tensor_columns} columns of tensor memory, expected at most {expectation.tensor_columns}"
        )
    # ptxas says here when it could not keep wgmma asynchronous, which no count shows.
    complaints.extend(compiled.warnings)
    return tuple(complaints)
