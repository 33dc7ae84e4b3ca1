"""What tests of mutants share: whether a kernel passes, and which of its mutants do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container

from emit_builds import SEEDS, Case

from wsopt.interpret import Mutant, mutants

SEEDS_OF_EQUIVALENTS = 1
"""Interleavings of a mutant that means the same: one that does not is found at the first, of one case or another. One
that is found later, at a place where others mean the same, would be counted with them, which is one too many there.
"""
SEEDS_UNCOUNTED = 3
"""The same where those at a place are not counted, so that one too many would not be seen."""

Place = tuple[str, str]
"""The kind of a mutant, and what its line is known by."""


def survives(cases: list[Case], source: str, seeds: int) -> bool:
    """Whether a kernel passes all cases under so many interleavings. The case that it fails comes first from then on:
    it is the likeliest to find the next mistake.
    """
    for seed in range(seeds):
        for place, one in enumerate(cases):
            if one.check(source, seed) is not None:
                cases.insert(0, cases.pop(place))
                return False
    return True


def survivors(
    cases: list[Case],
    source: str,
    place_of: Callable[[str, Mutant], Place],
    equivalent: Container[Place],
    chosen: Callable[[Mutant], bool] = lambda _: True,
    seeds: int = SEEDS_OF_EQUIVALENTS,
) -> Counter[Place]:
    """The mutants of a kernel that pass, by place: of all or of those `chosen`. Those known to mean the same are
    tried fewer times: `seeds`.
    """
    found: Counter[Place] = Counter()
    cases = list(cases)
    for mutant in filter(chosen, mutants(source)):
        place = place_of(source, mutant)
        if survives(cases, mutant.source, seeds if place in equivalent else SEEDS):
            found[place] += 1
    return found
