"""Cuts a graph until all of its pieces are worth it: where some are turned down it is cut again without them.

So parts of a piece have their chance where the piece would lose or ptxas makes no good kernel of it. What can be told
without a build, by rooflines and by what earlier processes have found out, is told first. Then kernels are built for
all pieces of a cut at once, in two rounds at most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from wsopt.torch.choose import Judged, estimate, judge
from wsopt.torch.cutting import Cut, Way, best_cut
from wsopt.torch.lower import Lowered
from wsopt.torch.options import Options
from wsopt.torch.pieces import Piece

BUILDS = 2
"""Rounds of builds, at most."""
_CUTS = 32
"""How often a graph is cut, at most, before what is turned down then is left out."""
_UNBUILT = f"not built: it came of the cut after {BUILDS} rounds of builds"


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of one FX graph: what our graphs say of it, its last cut, the judgement on each piece by its key,
    and the pieces that were taken and turned down.
    """

    lowered: Lowered
    cut: Cut
    judged: Mapping[str, Judged]
    taken: tuple[Piece, ...]
    refused: tuple[Piece, ...]


def settle(ways: Sequence[Way], options: Options) -> Settled:
    """The last cut of an FX graph, and its pieces."""
    judged, turned_down = dict[str, Judged](), dict[str, str]()
    refused: list[Piece] = []
    builds = 0
    for _ in range(_CUTS):
        lowered, found = best_cut(ways, turned_down)
        new = [piece for key, piece in _different(found.pieces).items() if key not in judged]
        judged |= _by_key(new, estimate(new, options))
        losing = [piece for piece in found.pieces if judged[piece.key].refusal]
        if not losing:
            open_ones = [one for key, one in _different(found.pieces).items() if judged[key].is_open]
            if open_ones and builds < BUILDS:
                builds += 1
                estimates = [judged[piece.key] for piece in open_ones]
                judged |= _by_key(open_ones, judge(open_ones, estimates, options))
            else:
                judged |= {one.key: replace(judged[one.key], refusal=_UNBUILT) for one in open_ones}
            losing = [piece for piece in found.pieces if judged[piece.key].refusal]
        refused += losing
        if not losing:
            break
        turned_down |= {key: "" for key, one in judged.items() if not (one.refusal or one.is_open)}
        for piece in losing:
            turned_down |= dict.fromkeys(_kin(piece, judged[piece.key]), judged[piece.key].refusal)
    taken = tuple(piece for piece in found.pieces if not judged[piece.key].refusal)
    return Settled(lowered, found, judged, taken, tuple(refused))


def _different(pieces: Sequence[Piece]) -> dict[str, Piece]:
    """The pieces by key, one of those that are alike."""
    return {piece.key: piece for piece in pieces}


def _by_key(pieces: Sequence[Piece], judged: Sequence[Judged]) -> dict[str, Judged]:
    return {piece.key: one for piece, one in zip(pieces, judged, strict=True)}


def _kin(piece: Piece, judged: Judged) -> tuple[str, ...]:
    """Under which names a piece is turned down: its own, and its work, where a kernel with the same work and less or
    more arithmetic is not likely to be better. That is so where it lost, and where it has several products or
    reductions; one alone may have too much arithmetic for a thread's registers.
    """
    lost, several = judged.theirs_us is not None, ";" in piece.work
    return (piece.key, piece.work) if lost or several else (piece.key,)
