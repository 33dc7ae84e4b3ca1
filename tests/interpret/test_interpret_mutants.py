"""Every single mistake in a good kernel is found, but for the few that change nothing, with the reason."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from fnmatch import fnmatch

import interpret_kernels as kernels
import pytest

from wsopt.interpret import Mutant, mutants

SEEDS = 20
SEEDS_OF_EQUIVALENTS = 1
"""Interleavings of a mutant that means the same: one that does not is found at the first, of one case or another."""

TWICE = "a wait that has passed passes again"
MIRROR = "the two consumers' own buffers are interchangeable"
FIRST = "waits for all but one wgmma where only one has been issued"
ZERO = "the accumulator it starts from is zero"

# Mutants that mean the same as the kernel: a pattern of names, and why.
EQUIVALENT = {
    "gemm_residual": {
        "double-wait@*": TWICE,
        "drop-mma-wait@110": FIRST,
        "weaken-mma-wait@110": FIRST,
        "swap-argument@152": MIRROR,
        "swap-argument@152#*": MIRROR,
    },
    "scale": {"double-wait@*": TWICE},
    "attention": {
        "double-wait@*": TWICE,
        "late-wait@34": "a turn orders the issue of wgmma only; it guards no memory",
        "early-arrive@37": "a turn orders the issue of wgmma only; it releases no memory",
        "shift-slot-arrive@87": "the other consumer has the first turn, and the ping-pong goes on from there",
        "swap-argument@90": "the consumers exchange their index, with all that belongs to it",
        "keep-accumulator@36": ZERO,
    },
    "handoff": {
        "double-wait@*": TWICE,
        "swap-roles@55": "both partitions have four warps, and either may be the default one",
        "keep-accumulator@38": ZERO,
    },
    "tensor_memory": {
        "double-wait@*": TWICE,
        "swap-roles@106": "the warp that copies and the one that issues products are interchangeable",
    },
    "split_sums": {
        "double-wait@*": TWICE,
        "drop-gdc_wait@66": "operands come first, and are asked for after the loader has waited",
        "swap-argument@122": MIRROR,
        "swap-argument@122#2": MIRROR,
        "swap-argument@122#3": "the consumers exchange their index, with all that belongs to it",
    },
}
# A second shape where the first one's extents make a mistake harmless by chance.
CASES: dict[str, tuple[Callable[[], kernels.Case], ...]] = {
    "gemm_residual": (kernels.gemm_residual, lambda: kernels.gemm_residual(K=264, M=128)),
    "scale": (kernels.scale, lambda: kernels.scale(64)),
    "attention": (kernels.attention,),
    "handoff": (kernels.handoff,),
    "tensor_memory": (kernels.tensor_memory, lambda: kernels.tensor_memory(64, 64, 128)),
    "split_sums": (kernels.split_sums, lambda: kernels.split_sums(processors=1)),
}
ALL = [(name, mutant) for name in CASES for mutant in mutants(kernels.source_of(name))]


@functools.cache
def cases(name: str) -> list[kernels.Case]:
    return [case() for case in CASES[name]]


def equivalent(name: str, mutant: Mutant) -> bool:
    return any(fnmatch(mutant.name, pattern.replace("[", "[[]")) for pattern in EQUIVALENT[name])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mutant"), ALL, ids=[f"{name}-{mutant.name}" for name, mutant in ALL])
def test_mutant(name: str, mutant: Mutant) -> None:
    same = equivalent(name, mutant)
    seeds = SEEDS_OF_EQUIVALENTS if same else SEEDS
    survives = all(case.failure(mutant.source, seed) is None for seed in range(seeds) for case in cases(name))
    assert survives == same, mutant.description


@pytest.mark.parametrize("name", CASES)
def test_names_are_unique_and_sources_parse(name: str) -> None:
    found = [mutant for kernel, mutant in ALL if kernel == name]
    source = kernels.source_of(name)
    assert len({mutant.name for mutant in found}) == len(found)
    for mutant in found:
        ast.parse(mutant.source)
        assert mutant.source != source
        assert len(mutant.source.splitlines()) == len(source.splitlines())


@pytest.mark.parametrize("name", CASES)
def test_every_equivalent_exists(name: str) -> None:
    names = [mutant.name for kernel, mutant in ALL if kernel == name]
    assert all(any(fnmatch(found, pattern) for found in names) for pattern in EQUIVALENT[name])


def test_every_kind_is_made() -> None:
    kinds = {mutant.name.partition("@")[0] for _, mutant in ALL}
    assert kinds >= {
        "drop-wait", "drop-arrive", "drop-expect", "drop-fence", "drop-store_wait", "drop-load", "drop-store",
        "drop-mma-wait", "drop-mma", "drop-commit", "double-commit", "shift-slot-commit", "lose-accumulator",
        "double-wait", "double-arrive", "double-expect", "flip-phase", "count+1", "count-1",
        "bytes+16", "bytes-16", "arrivals+1", "arrivals-1", "depth+1", "depth-1", "shrink-allocation",
        "weaken-mma-wait", "early-arrive", "late-wait", "early-release",
        "shift-slot-wait", "shift-slot-load", "shift-slot-mma",
        "swap-roles", "same-argument", "swap-argument", "keep-accumulator",
        "drop-thread_barrier", "late-barrier", "relaxed-atomic", "release-atomic", "acquire-atomic", "cta-atomic",
        "plain-counter", "arrival+1", "last-arrival+1", "last-arrival-1", "drop-row-store", "reset+1", "first-part",
        "last-part", "part+1", "part-1", "other-part", "other-tile",
    }  # fmt: skip
