"""Cuts a graph until all of its pieces are worth it: where some are turned down it is cut again without them.

So parts of a piece have their chance where the piece would lose or ptxas makes no good kernel of it. What can be told
without a build, by rooflines, is told first. Then kernels are built for all pieces of a cut at once, in two rounds at
most. What is built already counts as well, so that a graph is cut alike whatever is in the cache.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from wsopt.torch.beside import left_beside
from wsopt.torch.choose import Judged, estimate, judge, unbuilt
from wsopt.torch.cutting import Cut, Way, best_cut
from wsopt.torch.lower import Lowered
from wsopt.torch.options import Options
from wsopt.torch.piece import Piece

BUILDS = 2
"""Rounds of builds, at most."""
_CUTS = 32
"""How often a graph is cut, at most, before what is turned down then is left out."""
_LOG = logging.getLogger("wsopt.torch")
"""What a first call is doing: a line a stage, with its seconds. Shown where a program asks for it by `logging`."""
_PENDING = "its kernel is not built yet"
_UNBUILT = f"not built: it came of the cut after {BUILDS} rounds of builds"


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of one FX graph: what our graphs say of it, its last cut, the judgement on each piece by its key,
    the pieces that were taken and turned down, and whether builds that were not waited for are `pending`.
    """

    lowered: Lowered
    cut: Cut
    judged: Mapping[str, Judged]
    taken: tuple[Piece, ...]
    refused: tuple[Piece, ...]
    pending: bool = False
    beside: Mapping[str, str] = field(default_factory=dict)


def settle(ways: Sequence[Way], options: Options, *, tells: bool = False) -> Settled:
    """The last cut of an FX graph, and its pieces; if it `tells`, with why operations are beside them."""
    rounds = _Rounds(options)
    for number in range(1, _CUTS + 1):
        with _told(f"cut {number}"):
            lowered, found = best_cut(ways, rounds.turned_down)
        if rounds.holds(found.pieces) or rounds.pending:
            break
    taken = tuple(piece for piece in found.pieces if not rounds.judged[piece.key].refusal)
    (way,) = (one for one in ways if one.lowered is lowered)
    beside = left_beside(way, found) if tells else {}
    return Settled(lowered, found, rounds.judged, taken, tuple(rounds.refused), rounds.pending, beside)


@dataclass(slots=True)
class _Rounds:
    """What has been found out of pieces, by key: the judgements, and under which names some are turned down, with the
    reason; how many rounds of builds there were, and whether some were not waited for.
    """

    options: Options
    judged: dict[str, Judged] = field(default_factory=dict)
    turned_down: dict[str, str] = field(default_factory=dict)
    refused: list[Piece] = field(default_factory=list)
    builds: int = 0
    pending: bool = False

    def holds(self, pieces: Sequence[Piece]) -> bool:
        """Whether a cut into these pieces holds: none is turned down, before or after kernels are built."""
        new = [piece for key, piece in _different(pieces).items() if key not in self.judged]
        with _told(f"{len(pieces)} pieces, {len(new)} new ones judged without a build"):
            self.judged |= _by_key(new, estimate(new, self.options))
        if self._none_loses(pieces):
            self._build([one for key, one in _different(pieces).items() if self.judged[key].is_open])
            return self._none_loses(pieces)
        return False

    def _none_loses(self, pieces: Sequence[Piece]) -> bool:
        """Turn down those of these pieces that have a refusal; whether there are none."""
        losing = [piece for piece in pieces if self.judged[piece.key].refusal]
        self.refused += losing
        self.turned_down |= {key: "" for key, one in self.judged.items() if not (one.refusal or one.is_open)}
        for piece in losing:
            judged = self.judged[piece.key]
            self.turned_down |= dict.fromkeys(_kin(piece, judged), judged.refusal)
        return not losing

    def _build(self, pieces: Sequence[Piece]) -> None:
        """Judge pieces by their kernels; those whose kernels are not built, or not waited for, are refused."""
        if self.builds == BUILDS:
            self._refuse(pieces, _UNBUILT)
        elif pieces:
            self.builds += 1
            late = [] if self.options.wait else unbuilt(pieces, self._known(pieces), self.options)
            self._refuse(late, _PENDING)
            self.pending = bool(late)
            ready = [piece for piece in pieces if self.judged[piece.key].is_open]
            with _told(f"kernels of {len(ready)} pieces built or found"):
                self.judged |= _by_key(ready, judge(ready, self._known(ready), self.options))

    def _known(self, pieces: Sequence[Piece]) -> list[Judged]:
        return [self.judged[piece.key] for piece in pieces]

    def _refuse(self, pieces: Sequence[Piece], why: str) -> None:
        for piece in pieces:
            self.judged[piece.key] = replace(self.judged[piece.key], refusal=why, is_open=False)


@contextmanager
def _told(stage: str) -> Iterator[None]:
    """Log a stage when it ends, with the seconds that it took."""
    began = time.monotonic()
    yield
    _LOG.info("%s: %.1f s", stage, time.monotonic() - began)


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
