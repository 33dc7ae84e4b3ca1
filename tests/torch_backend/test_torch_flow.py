"""Which nodes can be one piece: all that lies between two of its nodes too, and no two pieces wait for each other."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from wsopt.graph import DType, TensorType
from wsopt.graph.types import Node
from wsopt.partition.web import members
from wsopt.torch.flow import Flow, flow_of
from wsopt.torch.greedy import Answer, Greedy

SHAPE = TensorType((8, 8), DType.F32)


def flow(text: str, left: str = "") -> Flow:
    """A flow from lines such as `c = a b`, in order; `left` are the nodes that no piece may have."""
    reads = {line.partition("=")[0].strip(): line.partition("=")[2].split() for line in text.split(";")}
    return flow_of(reads, reads, [name for name in reads if name not in left.split()])


def named(found: Flow, nodes: int) -> str:
    return " ".join(found.names[number] for number in members(nodes))


def bits(found: Flow, names: str) -> int:
    return sum(1 << found.names.index(name) for name in names.split())


def test_what_lies_between_belongs_to_a_piece() -> None:
    found = flow("x =; a = x; b = a; c = a b", left="x")
    assert named(found, found.closed(bits(found, "a c"), 0) or 0) == "a b c"


def test_a_node_that_stays_parts_a_piece() -> None:
    found = flow("x =; a = x; b = a; c = a b", left="x b")
    assert found.closed(bits(found, "a c"), 0) is None


def test_groups_that_read_nothing_are_free() -> None:
    found = flow("x =; i =; m = i; a = x m", left="x")
    assert named(found, found.free) == "i m"
    assert named(found, found.between(bits(found, "a"))) == ""


def test_fused_nodes_are_one() -> None:
    """Of a1 -> b1 and b2 -> a2 either both a or both b may be one piece, not both."""
    found = flow("x =; a1 = x; b2 = x; b1 = a1; a2 = b2", left="x")
    assert found.closed(bits(found, "b1 b2"), 0) == bits(found, "b1 b2")
    found.fuse(bits(found, "a1 a2"))
    assert found.closed(bits(found, "b1 b2"), bits(found, "a1 a2")) is None


# --- the search -----------------------------------------------------------------------------------------


def nodes(products: Iterable[str], others: Iterable[str]) -> dict[str, list[Node]]:
    ops = {**dict.fromkeys(products, "matmul"), **dict.fromkeys(others, "add")}
    return {name: [Node(name, op, (), (), SHAPE)] for name, op in ops.items()}


def cut(
    found: Flow, kernels: Iterable[str], products: str, large: str = ""
) -> tuple[list[str], dict[str, str]]:
    """The pieces of a flow where kernels are made of these sets of nodes alone. Each writes a byte for each node that
    others read, and two for a `large` one.
    """
    known = {frozenset(text.split()) for text in kernels}

    def answer(groups: frozenset[str]) -> Answer:
        own = bits(found, " ".join(groups))
        read = [
            name
            for name in found.names
            if name in groups and any(not own >> n & 1 for n in found.readers(bits(found, name)))
        ]
        told = "" if groups in known else f"not {' '.join(sorted(groups))}"
        return Answer(lambda: told, 1, tuple((name, 1 + (name in large.split())) for name in read))

    search = Greedy(
        found,
        answer,
        nodes(products.split(), [name for name in found.names if name not in products.split()]),
    )
    return [" ".join(sorted(piece)) for piece in search.pieces()], search.reasons


def test_a_piece_grows_past_what_is_refused() -> None:
    found = flow("x =; p = x; s = p; q = s; y = q", left="x")
    assert cut(found, ["p", "p q s"], "p q") == (["p q s"], {})


def test_a_piece_takes_the_product_that_its_reader_needs() -> None:
    found = flow("x =; p = x; s = p; q = x; y = s q", left="x")
    assert cut(found, ["p", "p s", "q", "p q s y"], "p q") == (["p q s y"], {})


def test_what_is_refused_has_its_reason() -> None:
    found = flow("x =; p = x; q = x", left="x")
    assert cut(found, ["q"], "p q") == (["q"], {"p": "not p"})


def test_pieces_do_not_overlap() -> None:
    found = flow("x =; p = x; s = p; q = s", left="x")
    assert cut(found, ["p", "p s", "q", "q s"], "p q") == (["p s", "q"], {})


@pytest.mark.parametrize(("kept", "pieces"), [("p g", ["g p"]), ("p g h", ["p"])])
def test_what_is_kept_for_a_backward_pass_is_written_beside(kept: str, pieces: list[str]) -> None:
    """Nobody has to read the product again where the part behind it alone reads it, and it is a result itself."""
    found = flow(
        f"x =; p = x; g = p; h = {'p' if 'h' in kept else 'x'}; end = {kept}; q = g", left="x q h end"
    )
    assert cut(found, ["p", "p g"], "p")[0] == pieces


def test_a_product_is_left_to_a_part_that_saves_more() -> None:
    """Scores `s` and what a projection `q` multiplies can be one kernel, but attention as a whole saves more."""
    found = flow("x =; k = x; q = x; s = q k; e = s; m = e", left="x k")
    apart = ["q", "s", "s e", "m"]
    for more, pieces in (
        (["q s"], ["q s", "m"]),
        (["q s", "s e m"], ["q", "e m s"]),
        (["q s", "s e m", "q s e m"], ["e m q s"]),
    ):
        assert cut(found, [*apart, *more], "q s m", large="s e") == (pieces, {})


def drawn(random: Random) -> tuple[Flow, list[str], str]:
    """A flow of nodes that read one or two earlier ones, kernels of some sets, and which nodes are products."""
    names = [f"n{number}" for number in range(9)]
    lines = ["x ="] + [
        f"{name} = {' '.join(random.sample(['x', *names[:at]], random.randint(1, min(2, at + 1))))}"
        for at, name in enumerate(names)
    ]
    kernels = [" ".join(random.sample(names, random.randint(1, 5))) for _ in range(60)] + names
    return flow("; ".join(lines), left="x"), kernels, " ".join(random.sample(names, 3))


def test_nothing_is_missed_where_no_product_feeds_a_part_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not tried, because no product or reduction could be won, would have been given up."""
    cuts = [cut(*drawn(Random(seed))) for seed in range(400)]
    monkeypatch.setattr(Greedy, "_may_add_work", lambda self, nodes, barred: True)
    assert [cut(*drawn(Random(seed))) for seed in range(400)] == cuts
    assert sum(len(piece.split()) > 1 for pieces, _ in cuts for piece in pieces) > 100


@pytest.mark.parametrize("products", ["all", "every third"])
def test_a_long_chain_is_asked_about_in_parts(products: str) -> None:
    """As many parts of each length are asked about as there are groups, and none from a group back to the first."""

    def asked(length: int) -> set[frozenset[str]]:
        names = [f"n{number}" for number in range(length)]
        found = flow(
            "; ".join(["x =", *(f"{a} = {b}" for a, b in zip(names, ["x", *names], strict=False))]), "x"
        )
        seen = set[frozenset[str]]()

        def answer(groups: frozenset[str]) -> Answer:
            seen.add(groups)
            return Answer(lambda: "none", 1, (("", 1),))

        work = names if products == "all" else names[::3]
        assert not list(Greedy(found, answer, nodes(work, set(names) - set(work))).pieces())
        return seen

    short, long = asked(100), asked(200)
    assert len(long) <= 2.2 * len(short)
    assert max(map(len, long)) == max(map(len, short)) < 100
