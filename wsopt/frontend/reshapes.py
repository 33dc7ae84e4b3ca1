"""Which dimensions become which in a reshape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def reshaped_factor(old: Sequence[int], own: Sequence[int], new: Sequence[int]) -> tuple[int, ...] | None:
    """The shape of a factor of shape `own` of elements of shape `old`, behind a reshape of these to `new`; None where
    it varies along some of the axes that become others together, and not along all.
    """
    shape = list[int]()
    for before, after in reshaped_groups(old, new):
        extents = [own[dim] for dim in before]
        whole = [old[dim] for dim in before]
        if all(extent == 1 for extent in extents):
            shape += [1] * len(after)
        elif extents == whole:
            shape += [new[dim] for dim in after]
        else:
            return None
    return tuple(shape)


def reshaped_groups(old: Sequence[int], new: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """The dimensions of two shapes of one size that become each other: as few at a time as can be."""
    before, after = list[int](), list[int]()
    left, right = 1, 1
    ahead, behind = list(range(len(old))), list(range(len(new)))
    while ahead or behind:
        if ahead and (left <= right and (left < right or not before or not behind or old[ahead[0]] == 1)):
            before.append(ahead.pop(0))
            left *= old[before[-1]]
        else:
            after.append(behind.pop(0))
            right *= new[after[-1]]
        if before and after and left == right:
            yield before, after
            before, after, left, right = [], [], 1, 1
    if before or after:
        yield before, after
