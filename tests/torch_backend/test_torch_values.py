"""Dimensions made of atoms: views, broadcasts and strides, against NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from wsopt.torch.values import (
    Atom,
    Untaken,
    Value,
    common_atoms,
    plain_dims,
    regrouped,
    repeated_dims,
    split_as,
    view_strides,
)

R = True


def dims(*told: list[tuple[int, bool] | int]) -> tuple[tuple[Atom, ...], ...]:
    return tuple(tuple(Atom(x) if isinstance(x, int) else Atom(*x) for x in dim) for dim in told)


@pytest.mark.parametrize(
    ("own", "shape", "expected"),
    [
        ((2, 16, 8), (32, 8), [[2, 16], [8]]),
        ((32, 8), (2, 16, 8), [[2], [16], [8]]),
        ((6, 4), (4, 6), None),
        ((2, 1, 8), (2, 8), [[2], [8]]),
        ((2, 8), (2, 1, 8, 1), [[2], [1], [8], [1]]),
        ((2, 3, 4), (24,), [[2, 3, 4]]),
    ],
)
def test_a_view_keeps_the_axes_of_the_tensor(
    own: tuple[int, ...], shape: tuple[int, ...], expected: list[list[int]] | None
) -> None:
    value = Value("x", plain_dims(own))
    if expected is None:
        with pytest.raises(Untaken):
            regrouped(value, shape, own)
        return
    found = regrouped(value, shape, own)
    assert [[atom.extent for atom in dim] for dim in found.dims] == expected
    assert found.shape == shape


def test_a_view_and_back_is_what_it_was() -> None:
    value = Value("x", plain_dims((2, 16, 64)))
    there = regrouped(value, (2, 16, 4, 16), (2, 16, 64))
    assert regrouped(there, (2, 16, 64), (2, 16, 64)) == value


def test_repeated_elements_are_seen_through_views() -> None:
    value = Value("k", dims([2], [2], [(3, R)], [8]))
    assert (value.shape, value.held, value.whole) == ((2, 2, 3, 8), (2, 2, 1, 8), False)
    merged = regrouped(value, (2, 6, 8), (2, 2, 8))
    assert merged.dims == dims([2], [2, (3, R)], [8])


def test_a_view_does_not_cut_across_repeated_elements() -> None:
    with pytest.raises(Untaken, match="cuts across"):
        regrouped(Value("k", dims([2], [(3, R)])), (3, 2), (2,))


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ([[32], [2, 16]], (32,)),
        ([[2, 16], [2, 16]], (2, 16)),
        ([[2, (2, R)], [4]], (2, 2)),
        ([[(4, R)], [4]], (4,)),
        ([[4, 6], [6, 4]], (24,)),
        ([[2, (6, R)], [3, (4, R)]], (2, 6)),
    ],
)
def test_common_atoms_are_as_few_as_can_be(
    told: list[list[tuple[int, bool] | int]], expected: tuple[int, ...]
) -> None:
    found = [dims(one)[0] for one in told]
    if told[0] == [2, (6, R)]:
        with pytest.raises(Untaken, match="split in different ways"):
            common_atoms(found)
        return
    atoms = common_atoms(found)
    assert atoms == expected
    for dim in found:
        split = split_as(dim, atoms)
        assert tuple(atom.extent for atom in split) == expected
        assert math.prod(atom.held for atom in split) == math.prod(atom.held for atom in dim)


def test_a_number_is_repeated_everywhere() -> None:
    assert Value(2.0, repeated_dims((4, 1))).held == (1, 1)


@pytest.mark.parametrize(
    ("shape", "perm", "wanted"),
    [
        ((2, 3, 4, 8), (0, 2, 1, 3), (2, 4, 24)),
        ((2, 3, 4, 8), (0, 2, 1, 3), (2, 4, 3, 2, 4)),
        ((2, 3, 4), (0, 1, 2), (6, 4)),
        ((2, 3, 4), (1, 0, 2), (6, 4)),
        ((4, 8), (1, 0), (8, 1, 4)),
        ((2, 12), (1, 0), (3, 4, 2)),
        ((2, 3, 4), (2, 0, 1), (4, 6)),
    ],
)
def test_strides_of_a_view_are_those_of_numpy(
    shape: tuple[int, ...], perm: tuple[int, ...], wanted: tuple[int, ...]
) -> None:
    array = np.zeros(shape, np.int8).transpose(perm)
    found = view_strides(array.shape, array.strides, wanted)
    try:
        view = np.reshape(array, wanted, copy=False)
    except ValueError:
        assert found is None
        return
    assert found is not None
    for extent, ours, theirs in zip(wanted, found, view.strides, strict=True):
        assert extent == 1 or ours == theirs
