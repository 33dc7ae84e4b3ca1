"""Partial sums that atomics add up in one place: what orders them, what they leave, and how bits may differ."""

from __future__ import annotations

import interpret_kernels as kernels
import numpy as np
import pytest

from wsopt.interpret import InterpreterError, RaceError, execute
from wsopt.interpret.faults import KernelFault
from wsopt.interpret.run import rounded_alike

STORE = "gl.store(workspace_ptr + place(work, index), sums)"
ADD = 'gl.atomic_add(workspace_ptr + place(tile, index), sums, sem="relaxed", scope="gpu")'
READ_ALL = """            total = gl.load(workspace_ptr + place(tile * SPLITS, index))
            for other in range(1, SPLITS):
                total += gl.load(workspace_ptr + place(tile * SPLITS + other, index))
"""
READ = "            total = gl.load(workspace_ptr + place(tile, index))\n"
MEET = "            thread_barrier()\n"
CLEAR = "            gl.store(workspace_ptr + place(tile, index), gl.zeros_like(total))\n"
PLAIN = "gl.store(workspace_ptr + place(tile, index), gl.load(workspace_ptr + place(tile, index)) + sums)"


def added(*changes: tuple[str, str]) -> kernels.Case:
    """The kernel of split sums with atomics in place of its stores, and these changes of its text."""
    case = kernels.split_sums()
    text = case.source
    atomics = ((STORE, ADD), (READ_ALL, READ + MEET + CLEAR), ("torch.empty(work", "torch.zeros(work"))
    for before, after in (*atomics, *changes):
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    return kernels.Case(text, case.inputs, case.expected, case.settings)


def bits(case: kernels.Case) -> set[bytes]:
    """What launches leave under several interleavings, in which different blocks come last."""
    return {
        execute(case.source, case.inputs, seed=seed, processors=processors).outputs["y"].tobytes()
        for processors in (3, 5)
        for seed in range(3)
    }


def test_parts_are_added_up_whoever_comes_last() -> None:
    """The sums are right in all launches of all interleavings."""
    case = added()
    wanted = np.asarray(case.expected["y"], np.float64)
    for one in bits(case):
        y = np.frombuffer(one, execute(case.source, case.inputs, seed=0).outputs["y"].dtype)
        error = np.abs(y.reshape(wanted.shape).astype(np.float64) - wanted).max()
        assert error <= 2**-8 * np.abs(wanted).max()


@pytest.mark.parametrize(
    ("change", "fault", "message"),
    [
        (
            ("        thread_barrier()\n        arrived", "        arrived"),
            RaceError,
            "between the atomic by consumer",
        ),
        (('"acq_rel"', '"relaxed"'), RaceError, "between the atomic by consumer"),
        (
            ('sem="relaxed", scope="gpu"', 'sem="relaxed", scope="cta"'),
            RaceError,
            "atomic within a block only",
        ),
        ((ADD, PLAIN), RaceError, "no thread_barrier between the load by consumer"),
        ((MEET + CLEAR, CLEAR), RaceError, "no thread_barrier between the load by consumer"),
        ((MEET + CLEAR, ""), InterpreterError, r"workspace_ptr\[\d+\] is .* at the end of the launch"),
        (("place(tile, index), sums,", "place(0, index), sums,"), KernelFault, "workspace_ptr|output y"),
        (("place(tile, index), sums,", "place(tile, index) * 0, sums,"), RaceError, "added to twice"),
        (('sums, sem="relaxed"', 'sums, sem="acq_rel"'), InterpreterError, "semantics 'acq_rel'"),
        (("torch.zeros(work", "torch.empty(work"), KernelFault, "before anything was written"),
    ],
)
def test_faults_of_atomics_are_found(change: tuple[str, str], fault: type[KernelFault], message: str) -> None:
    case = added(change)
    with pytest.raises(fault, match=message):
        bits(case)


def test_only_rounding_is_a_matter_of_the_order_of_sums() -> None:
    before = np.asarray([1.0, -2.0, np.inf, 0.01], np.float32)
    assert rounded_alike(before, before + np.float32(2**-9))
    assert not rounded_alike(before, before + np.float32(2**-5))
    assert not rounded_alike(before, np.asarray([1.0, -2.0, np.nan, 0.01], np.float32))
