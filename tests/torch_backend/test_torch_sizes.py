"""Extents that change: what can be calculated with them is exact at every call, and what cannot is Untaken."""

from __future__ import annotations

import itertools
import math
import operator
import pickle
from collections.abc import Callable

import pytest

from wsopt.graph.extents import value_at
from wsopt.torch.sizes import Size, changes, divided, shared
from wsopt.torch.untaken import Untaken
from wsopt.torch.values import Atom, Value, regrouped, view_strides

N = Size(((("n",), 1),), {"n": 16})
M = Size(((("m",), 1),), {"m": 5})
EXTENTS = [1, 4, 6, 16, N, M, 4 * N, 6 * N, N * M, 4 * N * M, N + M, 6 * (N + M), N * N, N * (N + 1), N + 16]
CALLS = [{"n": 16, "m": 5}, {"n": 7, "m": 3}, {"n": 1, "m": 1}, {"n": 12, "m": 9}]


@pytest.mark.parametrize("of", [operator.add, operator.mul, operator.sub])
def test_arithmetic_is_that_of_numbers_at_every_call(of: Callable[[int, int], int]) -> None:
    said = 0
    for a, b in itertools.product(EXTENTS, repeat=2):
        try:
            found = of(a, b)
        except Untaken:
            assert of is operator.sub
            continue
        said += 1
        assert all(value_at(found, c) == of(value_at(a, c), value_at(b, c)) for c in CALLS)
    assert said > len(EXTENTS)


def test_a_quotient_is_exact_at_every_call() -> None:
    said = 0
    for a, b in itertools.product(EXTENTS, repeat=2):
        found = divided(a, b)
        if not changes(a, b):
            assert (found is not None) == (a % b == 0)
        if found is None:
            if changes(a, b):
                assert a % b
                with pytest.raises(Untaken, match="no extent at every call"):
                    a // b
            continue
        said += 1
        assert (a // b, a % b) == (found, 0)
        assert all(value_at(found, c) * value_at(b, c) == value_at(a, c) for c in CALLS)
    assert divided(N * N + N, N) == N + 1
    assert said > len(EXTENTS)


def test_a_shared_factor_divides_both() -> None:
    for a, b in itertools.product(EXTENTS, repeat=2):
        found = shared(a, b)
        assert divided(a, found) is not None
        assert divided(b, found) is not None
        assert found == shared(b, a)
    assert shared(12 * N, 8 * N * M) == 4 * N
    assert shared(4 * (N + M), 6 * N + 6 * M) == 2 * (M + N)
    assert shared(N + 16, 16) == 1


def test_equal_is_what_is_equal_at_every_call() -> None:
    assert N != 16
    assert 16 != N  # noqa: SIM300
    assert N + M == M + N
    assert (N + M) * 2 - M == M + 2 * N
    assert len({N, 16, N + 0, 1 * N}) == 2
    assert N > 1
    assert math.prod([4, N, M]) == 4 * M * N
    assert pickle.loads(pickle.dumps(4 * N + M)) == M + 4 * N


@pytest.mark.parametrize(
    "leak",
    [lambda: N - 1, lambda: 5 - N, lambda: 1 / N, lambda: N / 2, lambda: math.sqrt(N), lambda: float(N), lambda: N**2,
     lambda: N * 0.5, lambda: -N, lambda: N // 3, lambda: 16 // N],
)  # fmt: skip
def test_no_number_comes_of_what_changes(leak: Callable[[], object]) -> None:
    with pytest.raises(Untaken):
        leak()


def test_views_are_told_in_what_changes() -> None:
    value = Value("x", ((Atom(2),), (Atom(N),), (Atom(128),)))
    apart = regrouped(value, (2, N, 4, 32), (2, N, 128))
    assert apart.shape == (2, N, 4, 32)
    joined = regrouped(value, (2 * N, 128), (2, N, 128))
    assert joined.shape == (2 * N, 128)
    assert regrouped(joined, (2, N, 128), (2, N, 128)).shape == value.shape
    with pytest.raises(Untaken):
        regrouped(value, (N, 2, 128), (2, N, 128))
    assert view_strides((N, 4, 32), (128, 32, 1), (N, 128)) == (128, 1)
    assert view_strides((4, N, 32), (32, 128, 1), (4 * N, 32)) is None
    assert view_strides((2 * N, 32), (32, 1), (2, N, 32)) == (32 * N, 32, 1)
