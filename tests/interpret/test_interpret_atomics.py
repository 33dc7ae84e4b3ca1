"""Partial sums that atomics add up in one place: what orders them, what they leave, and how bits may differ."""

from __future__ import annotations

import itertools

import interpret_kernels as kernels
import numpy as np
import pytest

from wsopt.interpret import InterpreterError, RaceError, execute
from wsopt.interpret.added import Added
from wsopt.interpret.faults import KernelFault

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


def test_the_order_of_blocks_is_no_matter_of_the_bits() -> None:
    assert len(bits(added())) == 1


def test_a_small_difference_of_two_launches_is_no_rounding() -> None:
    """Whichever part comes last adds to the sum a little of its own, less than bf16 rounds."""
    case = added((READ, READ.rstrip() + " * (1 + work % SPLITS / 1024)\n"))
    with pytest.raises(InterpreterError, match="output y: launch 2 gives other bits than the one before"):
        bits(case)


def test_terms_are_added_in_the_order_of_their_values_and_begin_anew_when_stored() -> None:
    terms = [np.float32(2**24), np.float32(1.0), np.float32(-(2**24))]
    for order in itertools.permutations(terms):
        flat = np.zeros(3, np.float32)
        added_up = Added(flat)
        for term in order:
            added_up.add(np.asarray([1]), np.asarray([term]))
        assert flat.tolist() == [0.0, float(np.float32(-(2**24)) + np.float32(1) + np.float32(2**24)), 0.0]
        added_up.forget(np.asarray([1]))
        flat[1] = 5.0
        added_up.add(np.asarray([0, 1]), np.asarray([2.0, 2.0], np.float32))
        assert flat.tolist() == [2.0, 7.0, 0.0]
