"""Cuts an FX graph, as far as our graphs say it, into pieces that grow one after the other as far as a kernel goes.

They grow from each product first, then from each reduction, then from each tensor that is joined of several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from wsopt.frontend.kinds import is_matmul, reduces_rows
from wsopt.graph.ops import OPS, CostClass
from wsopt.graph.types import Node
from wsopt.partition.web import bits, members, union
from wsopt.torch.flow import Flow

PATIENCE = 12
"""Groups by which a part that is refused may grow before it is given up."""
FURTHER = 4
"""Steps back that are tried from a part that is refused with one."""
RESTARTS = 4
"""Ways on that are tried from a part that a kernel takes."""


@dataclass(frozen=True)
class Answer:
    """About the kernel of groups: the bytes that it reads, constants left out, and those of each output, by group.

    Why none is made of them is `asked` for when it is wanted: mostly only bytes are, and finding out takes longer.
    That there `is_none` may be known before the reason is. What only hands on values of whole rows `is_statistic`.
    """

    asked: Callable[[], str]
    bytes_in: int = 0
    outputs: tuple[tuple[str, int], ...] = ()
    is_none: bool = False
    is_statistic: bool = False

    @cached_property
    def refusal(self) -> str:
        """Why no kernel is made of the groups; empty if one is."""
        return self.asked()

    @property
    def bytes_out(self) -> int:
        """Bytes that the kernel writes."""
        return sum(nbytes for _, nbytes in self.outputs)


Accept = Callable[[frozenset[str]], Answer]
"""The answer about groups, by name."""


def _joins(node: Node) -> bool:
    """Whether a node puts tensors one behind the other, as rotary embedding does."""
    return node.op == "concat"


@dataclass(slots=True)
class Greedy:
    """A search for pieces. `reasons` says of each seed of which none came why."""

    flow: Flow
    accept: Accept
    nodes: dict[str, list[Node]]
    taken: int = 0
    reasons: dict[str, str] = field(default_factory=dict)
    _known: dict[int, Answer] = field(default_factory=dict)
    _number: dict[str, int] = field(default_factory=dict)
    _work: int = 0
    _products: int = 0

    def __post_init__(self) -> None:
        self._number = {name: number for number, name in enumerate(self.flow.names)}
        for number, name in enumerate(self.flow.names):
            if any(is_matmul(node) or reduces_rows(node) for node in self.nodes.get(name, ())):
                self._work |= 1 << number
            if any(is_matmul(node) for node in self.nodes.get(name, ())):
                self._products |= 1 << number

    def pieces(self) -> Iterator[frozenset[str]]:
        """The groups of each piece."""
        for is_seed in (is_matmul, reduces_rows, _joins):
            for number in members(self.flow.groups & ~self.flow.free):
                name = self.flow.names[number]
                if self.taken >> number & 1 or not any(map(is_seed, self.nodes[name])):
                    continue
                found = self._grown(1 << number)
                reason = self._why_none(1 << number) if found is None else self._in_vain(found)
                if found is None or reason:
                    self.reasons.setdefault(name, reason)
                    continue
                self.taken |= found
                self.flow.fuse(found)
                for member in members(found):
                    self.reasons.pop(self.flow.names[member], None)
                yield self._names(found)

    def _why_none(self, seed: int) -> str:
        """Why no part with the seed is one kernel: of a reduction that alone gives a value a row, why the first that
        hands on more is none, where one was tried.
        """
        alone = self._answer(seed)
        beyond = (one for part, one in self._known.items() if part & seed and not one.is_statistic)
        further = next(beyond, None) if alone.is_statistic else None
        return alone.refusal if further is None else further.refusal or alone.refusal

    def _in_vain(self, part: int) -> str:
        """Why a part without products is better left, though a kernel computes it; empty if it is not."""
        if part & self._products:
            return ""
        if not self._computes(part):
            return "nothing but copies, which Inductor makes where it computes what it copies"
        grown = self.flow.closed(part | bits(self.flow.readers(part)), self.taken)
        statistic = grown is not None and grown != part and self._answer(grown).is_statistic
        return "a value of every element that only values a row are made of" if statistic else ""

    def _names(self, nodes: int) -> frozenset[str]:
        return frozenset(self.flow.names[number] for number in members(nodes))

    def _answer(self, nodes: int) -> Answer:
        if nodes not in self._known:
            self._known[nodes] = self.accept(self._names(nodes))
        return self._known[nodes]

    def _takes(self, nodes: int) -> bool:
        answer = self._answer(nodes)
        return not (answer.is_none or answer.refusal)

    def _grown(self, seed: int) -> int | None:
        """The best part found that holds the seed and is one kernel; None if there is none."""
        found = self._ahead(seed, 0)
        if found is None:
            return None
        kept = self._worth_more_without(seed, found)
        return self._backward((self._ahead(seed, kept) or found) if kept else found)

    def _worth_more_without(self, seed: int, part: int) -> int:
        """A product of a part with which another one, without the part's seed, saves more; 0 if there is none. Such
        are scores of an attention, which a kernel may compute from what a projection reads, but then without what
        follows.
        """
        for number in members(part & ~seed & self._products):
            other = self._ahead(1 << number, self.taken | seed)
            if other is not None and other & ~part & self._work and self._saved(other) > self._saved(part):
                return 1 << number
        return 0

    def _saved(self, nodes: int) -> int:
        """Bytes that the products and reductions of a part would write one by one, beyond those that it writes."""
        apart = sum(self._answer(1 << number).bytes_out for number in members(nodes & self._work))
        return apart - self._answer(nodes).bytes_out

    def _ahead(self, seed: int, shut: int) -> int | None:
        """The best part found of the seed and what comes after it that is one kernel, with none of the nodes that are
        `shut`; None if there is none.
        """
        viewed = self._with_views(seed)
        seed = viewed if self._takes(viewed) or not self._takes(seed) else seed
        best = seed if self._takes(seed) else None
        for _ in range(RESTARTS):
            found, first = self._forward(seed if best is None else best, shut)
            if found is None:
                if not first:
                    break
                shut |= first
            else:
                best = found
        return best

    def _better(self, nodes: int, than: int | None) -> bool:
        """Whether a part that is one kernel is worth more than a smaller one: it does not write more bytes than it
        spares others to read, unless it has one more product or reduction, and then no more than twice as many. A
        cast or a view alone spares nobody anything: whoever reads it makes it as it reads.
        """
        if than is None:
            return True
        new, old = self._answer(nodes).bytes_out, self._answer(than).bytes_out
        if not self._computes(nodes & ~than):
            return new <= old
        works = bool(nodes & ~than & self._work)
        return new <= old + self._spared(nodes, than) or (works and new <= 2 * old)

    def _spared(self, nodes: int, than: int) -> int:
        """Bytes of the outputs of `than` that nobody but the larger part reads. Those are results of the whole graph,
        as what is kept for a backward pass.
        """
        found = 0
        for name, nbytes in self._answer(than).outputs:
            number = self._number.get(name)
            readers = 0 if number is None else bits(self.flow.readers(1 << number)) & ~self.flow.ends
            if readers and not readers & ~nodes:
                found += nbytes
        return found

    def _forward(self, start: int, shut: int) -> tuple[int | None, int]:
        """A part beyond `start` that is one kernel, the best on one way on, and the group that the way began with."""
        current, found, left, first = start, None, PATIENCE, 0
        least = start if self._takes(start) else None
        barred = self.taken | shut
        while left:
            step = self._next(current, barred)
            if step is None:
                break
            grown, reader = step
            first = first or reader
            if grown is None:
                barred |= reader
                continue
            current = self._with_sources(grown, barred)
            left -= 1
            if self._takes(current) and self._better(current, least):
                found = least = current
                left = PATIENCE
        return found, first

    def _next(self, nodes: int, barred: int) -> tuple[int | None, int] | None:
        """The nodes with the first group that reads them and all between; None in its place if those are barred."""
        for number in self.flow.readers(nodes):
            if self.flow.groups >> number & ~(barred >> number) & 1 and not self.flow.free >> number & 1:
                return self.flow.closed(nodes | 1 << number, barred), 1 << number
        return None

    def _with_sources(self, nodes: int, barred: int) -> int:
        """The nodes with groups that feed them alone, as few as it takes to have one more product or reduction in one
        kernel; the nodes themselves where that is not to be had, or not in a few steps: what a long chain computes
        is all fed alone.
        """
        if not self._may_add_work(nodes, barred):
            return nodes
        found = nodes
        for _ in range(PATIENCE):
            grown = self._one_back(found, barred)
            if grown is None:
                break
            found = grown
            if found & ~nodes & self._work and self._takes(found):
                return found
        return nodes

    def _one_back(self, nodes: int, barred: int) -> int | None:
        """The nodes with a group that feeds them alone and all between, and with a product or reduction behind it
        where more bytes are read otherwise; None if there is no such group.
        """
        for number in self.flow.sources(nodes):
            if not self._open(number, barred) or not self._feeds_only(number, nodes):
                continue
            grown = self.flow.closed(nodes | 1 << number, barred)
            if grown is not None and not self._reads_no_more(grown, nodes):
                grown = self._with_work(grown, barred)
            if grown is not None:
                return grown
        return None

    def _with_work(self, nodes: int, barred: int) -> int | None:
        """The nodes with a product or reduction that feeds them alone; None if there is none. One that reads a
        statistic, and the value of which it is one, reads more until the statistic is its own.
        """
        for number in self.flow.sources(nodes):
            if self._work >> number & 1 and self._open(number, barred) and self._feeds_only(number, nodes):
                return self.flow.closed(nodes | 1 << number, barred)
        return None

    def _may_add_work(self, nodes: int, barred: int) -> bool:
        """Whether `_with_sources` could add a product or reduction to nodes if neither bytes nor steps counted, or
        not even then: it finds none where this says so.
        """
        needed = union(self.flow.needs[number] for number in members(nodes))
        if not needed & self._work & ~(barred | nodes):
            return False
        found, before = nodes, 0
        while found != before and not found & ~nodes & self._work:
            before = found
            for number in self.flow.sources(found):
                if self._open(number, barred) and self._feeds_only(number, found):
                    found |= 1 << number
            found |= self.flow.between(found)
        return bool(found & ~nodes & self._work)

    def _with_views(self, nodes: int) -> int:
        """The nodes with the groups that feed them alone and do no arithmetic, but for casts of more bytes."""
        found = nodes
        for number in self.flow.sources(nodes):
            mine = self._open(number, self.taken) and not self._computes(1 << number)
            if mine and self._feeds_only(number, nodes):
                grown = self.flow.closed(found | 1 << number, self.taken) or found
                more = self._answer(grown).bytes_in > self._answer(found).bytes_in
                found = found if more and self._takes(found) else grown
        return found

    def _backward(self, nodes: int) -> int:
        """A part with the groups that feed it alone, as long as it is one kernel."""
        again = True
        while again:
            again = False
            for number in self.flow.sources(nodes):
                if not self._open(number, self.taken) or not self._feeds_only(number, nodes):
                    continue
                grown = self.flow.closed(nodes | 1 << number, self.taken)
                if grown is None:
                    continue
                viewed = self._with_views(grown)
                grown = viewed if self._takes(viewed) else grown
                grown = grown if self._takes(grown) else self._further_back(grown, nodes)
                if self._takes(grown) and self._reads_better(grown, nodes):
                    nodes, again = grown, True
                    break
        return nodes

    def _further_back(self, nodes: int, than: int) -> int:
        """Nodes of which no kernel is made, with more groups that feed them alone until one is that reads less than a
        smaller part; themselves if there is none. A weight may be in a type of 8 bits before several steps.
        """
        found = nodes
        for _ in range(FURTHER):
            fed = (one for one in self.flow.sources(found) if not self._work >> one & 1)
            added = [one for one in fed if self._open(one, self.taken) and self._feeds_only(one, found)]
            grown = self.flow.closed(found | union(1 << one for one in added), self.taken)
            if grown is None or not added:
                break
            found = grown
            if not self._answer(found).is_none and self._reads_less(found, than) and self._takes(found):
                return found
        return nodes

    def _reads_better(self, nodes: int, than: int) -> bool:
        """Whether a part is better with groups that feed it alone. A kernel with products may compute them again for
        each of its tiles, and one of reductions what is the same for many rows; what else feeds reductions it
        computes once, and spares at least that they are written and read.
        """
        fed = nodes & ~than
        if nodes & self._work and not nodes & self._products and self._is_as_large(fed, than):
            more = self._answer(nodes).bytes_in - self._answer(than).bytes_in
            return more <= self._answer(fed).bytes_out
        if not self._reads_no_more(nodes, than):
            return False
        return not self._computes(fed) or self._reads_less(nodes, than)

    def _is_as_large(self, fed: int, reader: int) -> bool:
        """Whether groups compute so many elements that each is read for two of the reader's at most."""
        return 2 * self._most_elements(fed) >= self._most_elements(reader)

    def _most_elements(self, nodes: int) -> int:
        """Elements of the largest tensor that groups compute."""
        found = (node for number in members(nodes) for node in self.nodes[self.flow.names[number]])
        return max(int(node.type.size) for node in found)

    def _reads_no_more(self, nodes: int, than: int) -> bool:
        """Whether a part reads no more bytes than a smaller one, or has one more product or reduction."""
        more = self._answer(nodes).bytes_in > self._answer(than).bytes_in
        return not more or bool(nodes & ~than & self._work)

    def _reads_less(self, nodes: int, than: int) -> bool:
        return self._answer(nodes).bytes_in < self._answer(than).bytes_in

    def _computes(self, nodes: int) -> bool:
        """Whether groups do arithmetic, which a kernel may do again for each of its tiles."""
        found = [node for number in members(nodes) for node in self.nodes[self.flow.names[number]]]
        return any(OPS[node.op].cost is not CostClass.MOVEMENT and node.op != "cast" for node in found)

    def _open(self, number: int, barred: int) -> bool:
        return bool(self.flow.groups >> number & ~(barred >> number) & 1)

    def _feeds_only(self, number: int, nodes: int) -> bool:
        return all(nodes >> reader & 1 for reader in self.flow.readers(1 << number))
