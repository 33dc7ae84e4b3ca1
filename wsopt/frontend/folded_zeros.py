"""Zero points of 4-bit weights in groups, folded into the constant that is subtracted when the bits are read.

Numbers of four bits become numbers of their product's type as the fraction of one whose value is subtracted again
(`emit/quantized.py`). Where a zero of their group is subtracted from them next, it is raised by that value instead,
once a group, and one subtraction an element does for both.
"""

from __future__ import annotations

from dataclasses import replace

from wsopt.frontend.types import Region
from wsopt.graph.types import DType
from wsopt.tensors.statements import Statement
from wsopt.tensors.views import WITHOUT_FRACTION, Packing, Source


def fold_zeros(region: Region) -> Region:
    """The region with numbers of four bits, and zeros that are subtracted from them alone, both raised by what the
    bits stand behind: both are less the same negative `zero`.
    """
    raised = dict[str, Source]()
    for item in (item for item in region.body if isinstance(item, Statement)):
        pair = [_read_once(region, name) for name in item.reads] if item.primitive == "sub" else []
        match pair:
            case [Source() as numbers, Source() as zeros] if _is_pair(numbers, zeros, item.dtype):
                zero = -WITHOUT_FRACTION[item.dtype]
                for source in (numbers, zeros):
                    raised[source.name] = replace(source, view=replace(source.view, zero=zero))
    if not raised:
        return region
    return replace(region, sources=tuple(raised.get(source.name, source) for source in region.sources))


def _read_once(region: Region, name: str) -> Source | None:
    """A source that one item of the loop reads, by name."""
    readers = sum(name in item.reads for item in region.body)
    return next((source for source in region.sources if source.name == name and readers == 1), None)


def _is_pair(numbers: Source, zeros: Source, dtype: DType) -> bool:
    """Whether packed numbers of four bits, without a sign, are less whole zeros of their groups in a narrow type."""
    packed = numbers.view.packing is Packing.FRAGMENTS and numbers.view.dtype is DType.I4
    return packed and numbers.view.zero == 0 and zeros.view.dtype is DType.I8 and dtype in WITHOUT_FRACTION
