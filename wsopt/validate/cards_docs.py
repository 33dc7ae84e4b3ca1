"""Makes a card's page of published figures and of roles: `python -m wsopt.validate.cards_docs A.json B.json -o PAGE`.

The first file has figures that others published (`published.py`), the second the same problems on two cards
(`cards.py`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from wsopt.exit_status import with_exit_status
from wsopt.report.layout import counted
from wsopt.schedule.types import PartitionRole
from wsopt.targets import Operands
from wsopt.validate.cards import Card, Problems, Side, load_cards
from wsopt.validate.files import write_text
from wsopt.validate.published import NEAR, Figures, Published, load_published

_HEAD = """\
# {title}

This page is made from [`{first}`]({first_link}) and [`{second}`]({second_link}) by
`python -m wsopt.validate.cards_docs`; it is not edited by hand. All times are predictions of the model.

"""
_ROLES = """\
## Roles on {one.name} and on {other.name}

The same problems compiled for both cards: what the solver chose, with how many warps a role has, the tile of a block,
slots of all rings and the interval of an iteration, and the predicted time with the share of it that the roofline
takes. Kernels for {other.name} were checked, simulated and assembled; none has run.

What all products have in common: on {other.name} sums are in tensor memory, so that a warp of its own issues them and
consumers' registers do not hold them; consumers read a tile's sums behind its loop. An SM of {other.name} has
{other.multiply_adds:g} multiply-adds of bf16 a cycle and {other.l2_bytes:g} bytes from L2, one of {one.name}
{one.multiply_adds:g} and {one.l2_bytes:g}: tiles have to make more of a byte.

Where a loop computes values between products, as attention does, scores and computed operands go through tensor
memory too. On {one.name} a consumer issues the products of its rows, waits for them, and has scores and sums in
registers. On {other.name} each of its threads reads a row of scores, and the warp that issues goes on with the other
consumer's products meanwhile. Sums are rescaled where they lie, which another warpgroup than the consumer's may do.

"""


def page(figures: tuple[str, Figures], problems: tuple[str, Problems]) -> str:
    """The whole page, from both files' contents with their paths as the page's links have them."""
    (link, published), (other, found) = figures, problems
    head = _HEAD.format(
        title=published.title,
        first=Path(link).name,
        first_link=link,
        second=Path(other).name,
        second_link=other,
    )
    lines = [*_published(published), *_roles(found)]
    return head + published.introduction + "\n\n" + "\n".join(lines) + "\n"


# --- published figures ----------------------------------------------------------------------------------


def _published(figures: Figures) -> Iterator[str]:
    yield "## Predicted and published"
    yield ""
    yield "| work | card | published kernel | published | us | predicted us | ratio |"
    yield "|---|---|---|---:|---:|---:|---:|"
    sources = list(dict.fromkeys(one.source["address"] for one in figures.entries))
    for one in figures.entries:
        yield _row(one, sources.index(one.source["address"]) + 1)
    yield ""
    held = [one for one in figures.entries if not one.fitted]
    near = sum(abs(one.ratio - 1) <= NEAR for one in held)
    yield (
        f"{near} of {len(held)} figures that nothing was fitted to are met within {NEAR:.0%}. The others, and what "
        "makes the difference:"
    )
    yield ""
    yield from (f"- {one.name} ({one.ratio:.2f}): {one.difference}." for one in held if far(one))
    yield from (f"- {one.name} ({one.ratio:.2f}, fitted): {one.difference}." for one in _fitted_far(figures))
    yield ""
    yield "Sources, as read on the day given:"
    yield ""
    for number, address in enumerate(sources, 1):
        source = next(one.source for one in figures.entries if one.source["address"] == address)
        yield f"{number}. {source['title']}: <{address}>, {source['read']}."
    yield ""


def far(one: Published) -> bool:
    """Whether a prediction is off by so much that the entry has to say why."""
    return abs(one.ratio - 1) > NEAR


def _fitted_far(figures: Figures) -> list[Published]:
    return [one for one in figures.entries if one.fitted and far(one)]


def _row(one: Published, number: int) -> str:
    assert one.predicted is not None, "a ratio has a prediction"
    kernel = f"{one.kernel} [{number}]" + ("; this schedule" if one.under else "")
    figure = f"{one.figure:g} {one.unit}"
    cells = [
        one.name, one.machine, kernel, figure, f"{one.microseconds:.1f}", f"{one.predicted.microseconds:.1f}",
        f"{one.ratio:.2f}" + (", fitted" if one.fitted else ""),
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


# --- roles ----------------------------------------------------------------------------------------------


def _roles(found: Problems) -> Iterator[str]:
    one, other = found.cards
    yield from _ROLES.format(one=one, other=other).split("\n")[:-1]
    yield f"| problem | {one.name} | {other.name} | what differs besides, and why |"
    yield "|---|---|---|---|"
    for name, first, second in found.rows:
        told = "; ".join(differences(first, second, found.cards)) or "nothing"
        yield f"| {name} | {_told(first)} | {_told(second)} | {told} |"


def _told(side: Side) -> str:
    rows, columns, depth = side.tile
    tile = f"{rows}x{columns}" + (f"x{depth}" if side.products else "")
    sets = f", {side.columns} columns in {counted(side.sets, 'set')}" if side.columns else ""
    return (
        f"{side.described}; {tile}, {side.slots} slots, II {side.ii}{sets}; "
        f"{side.microseconds:.1f} us ({side.roofline_us / side.microseconds:.0%})"
    )


def differences(first: Side, second: Side, cards: tuple[Card, Card]) -> Iterator[str]:
    """What the second schedule has otherwise than the first, with what follows from their figures for the reason."""
    if second.columns and not first.columns:
        yield _sets(second, cards[1])
    if second.paired:
        yield "pairs of blocks: each copies half of one operand, which the products of both read"
    if first.promotes and not second.promotes:
        yield "f8 sums are f32's in the tensor core, so consumers add up none"
    if second.operands != Operands.REGISTERS:
        yield from _computed(first, second, cards)
    stores = ["store_warp" in {name for name, _, _ in side.roles} for side in (first, second)]
    if stores[0] != stores[1]:
        yield "store warps start the stores" if stores[1] else "consumers start their stores"
    if first.splits != second.splits:
        yield f"sums split {second.splits} ways instead of {first.splits}"
    if first.swap != second.swap:
        yield "operands have changed sides" if second.swap else "operands keep their sides"
    if first.tile != second.tile:
        yield from _tiles(first, second, cards)


def _sets(side: Side, card: Card) -> str:
    """How many sets of sums it keeps, and why no more."""
    if side.sets > 1:
        return f"{side.sets} sets of sums: an epilogue runs under the next tile's products"
    one_tile = "one set of sums, for a block has one tile"
    if side.operands != Operands.REGISTERS:  # a block has one tile where values go through tensor memory
        return one_tile
    if 2 * side.columns > card.columns:
        return f"one set of sums, for two of {side.columns} columns are more than {card.columns}"
    if side.waves == 1:
        return one_tile
    return "one set of sums, for consumers are in the loop" if side.beside else "one set of sums"


_MEMORY = {Operands.SCORES: "their scores' columns", Operands.COLUMNS: "columns of their own"}


def _computed(first: Side, second: Side, cards: tuple[Card, Card]) -> Iterator[str]:
    """What it has where values are computed between products: who rescales sums, where operands lie, the pipes of
    exp2, the rows of a consumer, and the streamed elements of a K-block.
    """
    if PartitionRole.CORRECTION in {name for name, _, _ in second.roles}:
        yield "a correction warpgroup rescales sums, off the way of those who compute"
    if second.lazy:
        yield "rows keep a maximum that has grown by less than 2^8, and with it their sums"
    yield f"operands in {_MEMORY[Operands(second.operands)]}"
    if second.exp2_eighths > first.exp2_eighths:
        before, now = (card.multiply_adds / card.exp2 for card in cards)
        why = f"for one takes the time of {now:g} multiply-adds instead of {before:g}"
        yield f"{second.exp2_eighths}/8 of exp2 on the FMA pipe, {why}"
    rows = [side.tile[0] // side.consumers for side in (first, second)]
    if rows[0] != rows[1]:
        yield f"{rows[1]} rows a consumer instead of {rows[0]}, one for each lane of tensor memory"
    if first.tile[2] != second.tile[2]:
        yield f"K-blocks of {second.tile[2]} instead of {first.tile[2]}"


def _tiles(first: Side, second: Side, cards: tuple[Card, Card]) -> Iterator[str]:
    """Their tiles by what those are for: one product's multiply-adds for a byte of operands, or bytes on the way."""
    if not second.products:
        rates = [card.memory_gbs for card in cards]
        yield f"tiles for {rates[1]:g} GB/s an SM instead of {rates[0]:g}"
    elif second.products == 1:
        before, now = (round(rows * n / (2 * (rows + n))) for rows, n, _ in (first.tile, second.tile))
        if before != now:
            yield f"{now} multiply-adds a byte of 16-bit operands instead of {before}"


@with_exit_status
def main(arguments: Sequence[str]) -> int:
    """The command line: 0, or the exit status of what is wrong with an input."""
    parser = argparse.ArgumentParser(prog="python -m wsopt.validate.cards_docs", description=__doc__)
    parser.add_argument("published", type=Path)
    parser.add_argument("cards", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    chosen = parser.parse_args(arguments)
    links = (one.relative_to(chosen.output.parent).as_posix() for one in (chosen.published, chosen.cards))
    first, second = links
    figures = load_published(chosen.published)
    write_text(chosen.output, page((first, figures), (second, load_cards(chosen.cards))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
