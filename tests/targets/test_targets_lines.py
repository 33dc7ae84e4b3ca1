"""Lines of a kernel whose sums are in tensor memory: each operation has its own, and pages link the two."""

from __future__ import annotations

import pytest
import targets_kernels as kernels

from wsopt.pages.source import EPILOGUE, links
from wsopt.program.ids import OpKind

TEXT = {OpKind.TMA_LOAD: "tma_load(", OpKind.MMA: "tcgen05_mma(", OpKind.RELEASE: "tcgen05_commit(ring_empty"}


@pytest.mark.parametrize("name", ["pair", "residual"])
def test_products_commits_and_copies_have_their_lines(name: str) -> None:
    made = kernels.small(name)
    linked, lines = links(made.verified, made.source), dict(enumerate(made.source.splitlines(), 1))
    assert not linked.why
    assert "stamp(" not in made.source
    products = dict[str, set[int]]()
    for op in made.verified.program.loop:
        own = {number for number in linked.lines[str(op.id)] if TEXT[op.kind] in lines[number]}
        assert own, str(op.id)
        if op.kind is OpKind.MMA:
            assert not any(own & other for other in products.values()), "each consumer's product is a line"
            products[str(op.id)] = own
    ends = [lines[number] for number in linked.lines[EPILOGUE]]
    assert any("_sums.index(" in line and ".load(SUBTILE_LAYOUT)" in line for line in ends)
    assert any("tma_store(" in line for line in ends)
