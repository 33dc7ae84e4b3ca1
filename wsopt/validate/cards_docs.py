"""Makes a card's page of published figures and of roles: `python -m wsopt.validate.cards_docs A.json B.json -o PAGE`.

The first file has figures that others published (`published.py`), the second the same problems on two cards
(`cards.py`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from wsopt.errors import WsoptError
from wsopt.report.layout import joined
from wsopt.validate.cards import Problems, Side, load_cards
from wsopt.validate.files import write_text
from wsopt.validate.published import NEAR, Figures, Published, load_published

_HEAD = """\
# {title}

This page is made from [`{first}`]({first_link}) and [`{second}`]({second_link}) by
`python -m wsopt.validate.cards_docs`; it is not edited by hand. All times are predictions of the model.

"""
_ROLES = """\
## Roles on {one} and on {other}

The same problems compiled for both cards: what the solver chose, with how many warps a role has, the tile of a block,
slots of all rings and the interval of an iteration, and the predicted time with the share of it that the roofline
takes. Kernels for {other} were checked, simulated and assembled; none has run.

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
    yield f"| problem | {one} | {other} | why they differ |"
    yield "|---|---|---|---|"
    for name, first, second in found.rows:
        yield f"| {name} | {_told(first)} | {_told(second)} | {joined(list(differences(first, second)))} |"


def _told(side: Side) -> str:
    rows, columns, depth = side.tile
    tile = f"{rows}x{columns}" + (f"x{depth}" if side.products else "")
    sets = f", {side.columns} columns in {side.sets} set(s)" if side.columns else ""
    return (
        f"{side.described}; {tile}, {side.slots} slots, II {side.ii}{sets}; "
        f"{side.microseconds:.1f} us ({side.roofline_us / side.microseconds:.0%})"
    )


def differences(first: Side, second: Side) -> Iterator[str]:
    """Why the second schedule is not the first, by what one of them has alone."""
    names = [{name for name, _, _ in side.roles} for side in (first, second)]
    if second.columns and not first.columns:
        yield "sums are in tensor memory, so a warp of its own issues the products and consumers read them behind"
    if second.sets > 1:
        yield "a second set of sums lets an epilogue run under the next tile's products"
    elif second.columns:
        yield "one set of sums, for two do not fit the columns or no tile follows under an epilogue"
    if first.promotes and not second.promotes:
        yield "f8 sums are f32's in the tensor core, and are not added up by consumers"
    if "store_warp" in names[1] - names[0]:
        yield "store warps start the stores, for the consumers' own time is short under faster products"
    if "store_warp" in names[0] - names[1]:
        yield "consumers start their stores, which nothing waits for"
    if second.products and second.tile[0] * second.tile[1] > first.tile[0] * first.tile[1]:
        yield "larger tiles, for products are twice as fast and a byte from L2 is not"
    if first.splits != second.splits:
        yield f"sums split {second.splits} ways instead of {first.splits}, for other numbers of SMs and tiles"
    if first.swap != second.swap:
        yield "operands change sides on one of them"
    if not second.products:
        yield (
            "the same work at other rates of memory"
            if first.tile == second.tile
            else "tiles for more bytes on the way"
        )


def main(arguments: Sequence[str]) -> int:
    """The command line: 0, or the exit status of what is wrong with an input."""
    parser = argparse.ArgumentParser(prog="python -m wsopt.validate.cards_docs", description=__doc__)
    parser.add_argument("published", type=Path)
    parser.add_argument("cards", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    chosen = parser.parse_args(arguments)
    try:
        links = (one.relative_to(chosen.output.parent).as_posix() for one in (chosen.published, chosen.cards))
        first, second = links
        figures = load_published(chosen.published)
        write_text(chosen.output, page((first, figures), (second, load_cards(chosen.cards))))
    except WsoptError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
