"""Numbers that atomics of several blocks add up at one place, whatever order the blocks come in.

A sum's last bits depend on that order, and the hardware promises none. Here it is always the same one, that of the
terms by their value: the hardware may take it, and two launches that are right give the same bits then. So bits that
differ are a fault, and none has to be excused as rounding.
"""

from __future__ import annotations

import numpy as np

from wsopt.interpret.dtypes import Array


class Added:
    """What one launch has added to the elements of a tensor since they were last stored, term by term."""

    def __init__(self, flat: Array) -> None:
        self._flat = flat
        self._counts = np.zeros(flat.size, np.int32)
        self._terms = np.zeros((0, flat.size), flat.dtype)

    def add(self, elements: Array, values: Array) -> None:
        """Add a value to each of these elements, no two of which are one."""
        begun = elements[self._counts[elements] == 0]
        self._note(begun, self._flat[begun])  # what was there is a term as well
        self._note(elements, values)
        terms = np.sort(self._terms[: self._counts[elements].max(initial=0), elements], axis=0)
        total = np.zeros(elements.size, self._flat.dtype)
        for term in terms:  # one rounding after the other, as L2 does it
            total += term
        self._flat[elements] = total

    def forget(self, elements: Array) -> None:
        """The elements are stored anew."""
        self._counts[elements] = 0
        self._terms[:, elements] = 0

    def _note(self, elements: Array, values: Array) -> None:
        rows = self._counts[elements]
        missing = rows.max(initial=-1) + 1 - len(self._terms)
        if missing > 0:
            more = np.zeros((missing, self._flat.size), self._flat.dtype)
            self._terms = np.concatenate((self._terms, more))
        self._terms[rows, elements] = values
        self._counts[elements] = rows + 1
