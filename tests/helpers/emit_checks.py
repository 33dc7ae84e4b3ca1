"""What the compiler makes of emitted kernels, and what their text has to have, as many emit tests ask for it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from emit_builds import Emitted
from other_compiler import compiled_by

from wsopt.codegen import CompiledKernel, Expectation, compile_kernel, verdict
from wsopt.emit.source import expected_instructions


def check_products(made: Emitted, found: CompiledKernel | None = None) -> None:
    """The machine code of a kernel has its products, keeps all in registers, and ptxas warns of nothing."""
    found = compile_kernel(made.source) if found is None else found
    assert found.tensor_instructions == expected_instructions(made.verified)
    assert (found.stack_bytes, found.spill_loads) == (0, 0)
    assert (found.overwritten_operands, found.early_arrivals, found.warnings) == (0, 0, ())


def check_products_elsewhere(other_triton: str, kernels: Sequence[Emitted]) -> None:
    """So it is with the release of Triton that another Python has."""
    others = compiled_by(other_triton, [made.source for made in kernels])
    for made, other in zip(kernels, others, strict=True):
        s = made.verified.program.structure
        assert (other["stack_bytes"], other["spill_loads"]) == (0, 0), s
        assert other["tensor_instructions"] == expected_instructions(made.verified), s


def check_calls_every_function(made: Emitted) -> None:
    """No function of the kernel's is written that none of its lines names."""
    names = re.findall(r"^def (\w+)\(", made.source.split("\nOPTIONS = ")[0], re.MULTILINE)
    assert [one for one in names if len(re.findall(rf"\b{one}\b", made.source)) == 1] == []


def check_machine_code(made: Emitted) -> None:
    """The machine code of a kernel has all that `wsopt compile` demands of it."""
    asked = Expectation(expected_instructions(made.verified), made.verified.schedule.shared_memory_bytes)
    assert verdict(compile_kernel(made.source), asked) == ()
