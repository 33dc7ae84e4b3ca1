"""Pages in a browser: nothing is said, nothing is asked for, and what is drawn and told is the schedule's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from page_browser import WIDTHS, Opened, opened, until
from page_builds import HOSTILE, Pages, hostile_build, write, write_build

from wsopt.folder import read_folder
from wsopt.pages.build import build_page
from wsopt.pages.content import Beside
from wsopt.pages.many import report_page
from wsopt.pages.timeline import loop_of
from wsopt.report.facts import ii_limits

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = [pytest.mark.browser, pytest.mark.slow]
BENCHMARKS = sorted((Path(__file__).parents[2] / "docs" / "benchmarks").glob("*.json"))


@pytest.fixture
def attention(browser: Browser, pages: Pages) -> Iterator[Opened]:
    one = opened(browser, pages["attention_causal"])
    yield one
    one.check()
    one.page.close()


def chart(page: Page, name: str) -> Locator:
    return page.locator(f'#kernel-0 [data-chart="{name}"]')


def bars(page: Page, name: str) -> list[dict[str, str]]:
    """What the bars of a picture say of themselves."""
    found: list[dict[str, str]] = (
        chart(page, name)
        .locator("rect.bar")
        .evaluate_all("all => all.map(one => ({...one.dataset, x: one.getAttribute('x')}))")
    )
    return found


@pytest.mark.parametrize("width", WIDTHS)
def test_pages_open_and_say_nothing(browser: Browser, pages: Pages, width: int) -> None:
    for name in ("gemm_bf16", "gemm_swiglu", "attention_causal", "layer_norm", "cut"):
        one = opened(browser, pages[name], width)
        for scheme, paper in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(20, 23, 27)")):
            one.page.emulate_media(color_scheme=scheme)
            assert one.page.evaluate("getComputedStyle(document.body).backgroundColor") == paper
            settled(one.page)
            one.check()
        assert one.page.locator(".chart svg").count() >= 8
        one.page.close()


@pytest.mark.parametrize("name", ["gemm_swiglu", "layer_norm"])
def test_the_interval_that_is_drawn_is_the_schedules(browser: Browser, pages: Pages, name: str) -> None:
    verified = pages.builds[name].verified
    ii = verified.schedule.ii
    one = opened(browser, pages[name])
    drawn = bars(one.page, "interval")
    for op in verified.program.loop:
        placed = verified.schedule.place(op.id)
        own = [bar for bar in drawn if bar["op"] == str(op.id)]
        assert any(float(bar["begin"]) == placed.cycle for bar in own)
        on_role = [bar for bar in own if bar["row"] == placed.partition]
        assert sum(float(bar["end"]) - float(bar["begin"]) for bar in on_role) == op.issue
        held = sum(cycles for _, cycles in op.held)
        assert sum(float(bar["end"]) - float(bar["begin"]) for bar in own) == op.issue + min(held, held)
    # Places are to scale: an interval is as wide as the picture beside its names.
    width = chart(one.page, "interval").locator(".time").evaluate("box => box.clientWidth")
    left = width_of_names = 156
    for bar in drawn:
        expected = left + float(bar["begin"]) / ii * (width - width_of_names - 1)
        assert float(bar["x"]) == pytest.approx(max(expected, left - 2), abs=0.6)
    one.check()
    one.page.close()


def test_the_time_line_that_is_drawn_is_the_block_as_it_runs(attention: Opened, pages: Pages) -> None:
    verified = pages.builds["attention_causal"].verified
    loop, begin = loop_of(verified), verified.schedule.prediction.start
    drawn = [bar for bar in bars(attention.page, "timeline") if "waits" not in bar]
    for op in ("mma:scores@0", "load:k", "phase1@1"):
        role = verified.schedule.place(verified.program.named(op).id).partition
        first = [float(bar["begin"]) for bar in drawn if (bar["op"], bar["row"]) == (op, role)]
        starts = [round(begin + time, 1) for time in loop.run.started[op]]
        assert first, op
        assert set(first) <= set(starts)
        assert first[0] == starts[0]
    steady = attention.page.locator('#kernel-0 [data-chart="timeline"] [data-band="steady"]')
    assert steady.count() == 1


def test_a_click_shows_an_operation_everywhere_and_its_lines(attention: Opened, pages: Pages) -> None:
    page = attention.page
    chart(page, "interval").locator('rect.bar[data-op="mma:mixed@0"]').first.click()
    source = pages.builds["attention_causal"].kernel.splitlines()
    lines = page.locator("#kernel-0 .source li.chosen")
    assert lines.count() == 6
    texts = lines.all_inner_texts()
    assert sum("warpgroup_mma(weights" in text for text in texts) == 3
    assert all(text in [line.rstrip() for line in source] for text in texts)
    assert chart(page, "timeline").locator("rect.bar.chosen").count() > 3
    assert chart(page, "measured").locator('rect.bar.chosen[data-op="mma:mixed@0"]').count() == 3
    first = lines.first.bounding_box()
    panel = page.locator("#kernel-0 .source").bounding_box()
    assert first is not None
    assert panel is not None
    assert panel["y"] <= first["y"] <= panel["y"] + panel["height"]
    # The same click again takes the choice back, and a line's click makes one.
    chart(page, "interval").locator('rect.bar[data-op="mma:mixed@0"]').first.click()
    assert lines.count() == 0
    page.locator("#kernel-0 .source li.linked", has_text="tma_load(v_desc").click()
    assert chart(page, "interval").locator('rect.bar.chosen[data-op="load:v"]').count() == 2


def test_operations_and_lines_of_split_sums_highlight_each_other(browser: Browser, tmp_path: Path) -> None:
    write_build(tmp_path / "split", "golden-shared_products")
    path = tmp_path / "split.html"
    path.write_text(build_page(read_folder(tmp_path / "split")), encoding="utf-8")
    one = opened(browser, path)
    chart(one.page, "interval").locator('rect.bar[data-op="mma:p@0"]').first.click()
    assert any("warpgroup_mma(" in text for text in one.page.locator(".source li.chosen").all_inner_texts())
    ahead = one.page.locator("#kernel-0 .source li.linked", has_text="tma_load(w_desc").first
    ahead.click()
    assert chart(one.page, "interval").locator('rect.bar.chosen[data-op="load:w"]').count() > 0
    assert one.page.locator("#kernel-0 .source li.chosen", has_text="tma_load(w_desc").count() == 2
    one.check()
    one.page.close()


def test_hovering_tells_the_figures(attention: Opened, pages: Pages) -> None:
    verified = pages.builds["attention_causal"].verified
    op = verified.program.named("phase2@0")
    placed = verified.schedule.place(op.id)
    chart(attention.page, "interval").locator('rect.bar[data-op="phase2@0"]').first.hover()
    told = attention.page.locator(".tip").inner_text()
    assert f"cycle {placed.cycle:,} of {verified.schedule.ii:,}" in told
    assert f"issue {op.issue:,}, busy {op.busy:,}, result after {op.latency:,}" in told
    attention.page.mouse.move(5, 5)
    limits = ii_limits(verified)
    chart(attention.page, "limits").locator("rect").nth(1).hover()
    assert f"{limits[1].name}: {limits[1].amount:,} cycles" in attention.page.locator(".tip").inner_text()


def view(page: Page) -> list[float]:
    found: list[float] = page.evaluate("window.pages[0].timeline.view")
    return found


def settled(page: Page) -> None:
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def test_it_zooms_and_pans_by_keys_wheel_and_buttons(attention: Opened) -> None:
    page, line = attention.page, chart(attention.page, "timeline").locator(".time")
    begin, end = view(page)
    line.focus()
    page.keyboard.press("+")
    assert view(page)[1] - view(page)[0] == pytest.approx(0.6 * (end - begin))
    first = view(page)[0]
    page.keyboard.press("ArrowRight")
    assert view(page)[0] == pytest.approx(first + 0.2 * 0.6 * (end - begin))
    page.keyboard.press("0")
    total = page.evaluate("window.pages[0].kernel.timeline.total")
    assert view(page) == [0, total]
    page.keyboard.down("Control")
    line.hover()
    page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    until(page, f"window.pages[0].timeline.view[1] - window.pages[0].timeline.view[0] < {total}")
    chart(page, "timeline").get_by_role("button", name="steady state").click()
    settled(page)
    steady = page.evaluate("window.pages[0].kernel.timeline.bands.find(band => band.kind === 'steady')")
    assert view(page)[0] < steady["begin"] < view(page)[1] < steady["end"]
    box = line.bounding_box()
    assert box is not None
    before = view(page)
    page.mouse.move(box["x"] + 500, box["y"] + 5)
    page.mouse.down()
    page.mouse.move(box["x"] + 400, box["y"] + 5, steps=4)
    page.mouse.up()
    assert view(page)[0] > before[0]
    line.focus()
    page.keyboard.press("n")
    said = chart(page, "timeline").locator("p[aria-live]").inner_text()
    assert "cycles" in said
    assert page.evaluate("window.pages[0].chosen") is not None


def test_finding_marks_operations_and_lines(attention: Opened) -> None:
    page = attention.page
    chart(page, "interval").get_by_role("searchbox").fill("rescale")
    found = chart(page, "interval").locator("rect.bar.found")
    assert {one["op"] for one in found.evaluate_all("all => all.map(one => ({...one.dataset}))")} == {
        "rescale:mixed@0",
        "rescale:mixed@1",
    }
    page.locator(".find-line").fill("tma_store(")
    assert page.locator(".found-lines").inner_text() == "1 lines"
    assert "tma_store(o_desc" in page.locator(".source li.found").inner_text()


GAINS = {"shared memory": 0.04, "registers": 0.015, "tensor core": 0.11}


def test_another_build_stands_below_at_one_scale_and_budgets_are_bars(
    browser: Browser, pages: Pages, tmp_path: Path
) -> None:
    ours, theirs = pages.builds["attention_causal"], pages.builds["gemm_swiglu"]
    facts = {"now": "1", "then": "2", "predicted_us": 1.0, "changes": ["ring of 5 slots"]}
    gains = {
        "what_if": [{"budget": name, "gain": gain, **facts} for name, gain in GAINS.items()],
        "skipped": ["L2"],
    }
    beside = Beside(gains, ("the other", theirs.verified, theirs.certificate))
    path = tmp_path / "beside.html"
    path.write_text(build_page(ours, beside), encoding="utf-8")
    one = opened(browser, path)
    for name, other in (
        ("against-interval", "against-other"),
        ("against-timeline", "against-other-timeline"),
    ):
        above, below = chart(one.page, name).bounding_box(), chart(one.page, other).bounding_box()
        assert above is not None
        assert below is not None
        assert above["y"] + above["height"] <= below["y"]
        assert scale(one.page, name) == pytest.approx(scale(one.page, other), rel=0.02)
    drawn = {bar["op"] for bar in bars(one.page, "against-other")}
    assert {str(op.id) for op in theirs.verified.program.loop} <= drawn
    chart(one.page, "what-if").locator("rect").nth(2).hover()
    assert "tensor core: 1, then 2" in one.page.locator(".tip").inner_text()
    widths = (
        chart(one.page, "what-if")
        .locator("rect")
        .evaluate_all("all => all.map(one => one.width.baseVal.value)")
    )
    assert [width / widths[2] for width in widths] == pytest.approx(
        [gain / 0.11 for gain in GAINS.values()], rel=0.02
    )
    assert "Skipped for lack of time: L2." in one.page.locator("#whatif-0").inner_text()
    one.check()
    one.page.close()


def scale(page: Page, name: str) -> float:
    """Pixels of a cycle: the widest bar of those that are whole in view."""
    found: list[float] = (
        chart(page, name)
        .locator("rect.bar")
        .evaluate_all(
            "all => all.map(one => [one.dataset.end - one.dataset.begin, one.width.baseVal.value])"
            ".sort((a, b) => b[1] - a[1]).slice(0, 3).map(([cycles, pixels]) => pixels / cycles)"
        )
    )
    return found[1]


def test_every_structure_of_the_search_can_be_looked_at(browser: Browser, pages: Pages) -> None:
    one = opened(browser, pages["gemm_swiglu"])
    page, box = one.page, chart(one.page, "search").locator(".time")
    count = page.evaluate("window.pages[0].kernel.search.every.count")
    assert int(box.get_attribute("data-seen") or 0) == count > 200
    box.scroll_into_view_if_needed()
    at = page.evaluate(
        """() => {
          const place = [...document.querySelectorAll('[data-chart="search"] canvas')][0];
          const all = window.searches[0], solved = all.lanes.indexOf('solved');
          const number = [...all.lane].findIndex((lane) => lane === solved), box = place.getBoundingClientRect();
          const [x, y] = all.at(number);
          return [box.left + x, box.top + y];
        }"""
    )
    page.mouse.move(*at)
    predicted = pages.builds["gemm_swiglu"].verified.schedule.prediction.microseconds
    told = page.locator(".tip").inner_text()
    assert f"predicted {predicted:,.2f} us, II 1,540" in told
    assert f"bound {round(0.99 * predicted, 4):,.2f} us" in told
    chart(page, "search").get_by_role("searchbox").fill("consumers=2")
    settled(page)
    assert 0 < int(box.get_attribute("data-seen") or 0) < count
    one.check()
    page.close()


def test_five_thousand_structures_stay_fluid(browser: Browser, pages: Pages, tmp_path: Path) -> None:
    found = pages.builds["gemm_bf16"]
    write(tmp_path / "many", found.verified, found.graph, found.certificate.margin, count=5000)
    path = tmp_path / "many.html"
    path.write_text(build_page(read_folder(tmp_path / "many")), encoding="utf-8")
    assert path.stat().st_size < 1_000_000
    one = opened(browser, path)
    frames: list[float] = one.page.evaluate(
        """() => [0.5, 0.5, 2, 2, 0.5, 0.5, 0.5].map((times) => {
          const begin = performance.now();
          window.searches[0].zoom(times);
          window.searches[0].draw();
          return performance.now() - begin;
        })"""
    )
    assert one.page.evaluate("window.searches[0].count") == 5001
    assert min(frames) < 30, f"a frame takes {frames} ms"
    one.check()
    one.page.close()


def test_texts_that_would_break_a_page_stay_text(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "hostile.html"
    path.write_text(build_page(hostile_build(tmp_path / "build")), encoding="utf-8")
    one = opened(browser, path)
    page = one.page
    page.on("dialog", lambda dialog: one.told.append(f"dialog {dialog.message}"))
    assert page.title() == HOSTILE
    assert page.locator("h1").inner_text() == HOSTILE
    assert page.locator("img, iframe, object, embed").count() == 0
    assert page.locator("script").count() == 2
    assert HOSTILE in page.locator("#measured-0 td.words").first.inner_text()
    chart(page, "measured").locator("rect.bar").first.hover()
    assert HOSTILE in page.locator(".source li").first.inner_text()
    drawn: list[Any] = page.locator("svg title").all_text_contents()
    assert any(HOSTILE in text for text in drawn)
    policy = page.locator('meta[http-equiv="Content-Security-Policy"]').get_attribute("content") or ""
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    one.check()
    page.close()


def test_the_theme_changes_and_print_shows_all_lines(browser: Browser, pages: Pages) -> None:
    one = opened(browser, pages["gemm_bf16"])
    background = "getComputedStyle(document.body).backgroundColor"
    light = one.page.evaluate(background)
    one.page.get_by_role("button", name="Dark").click()
    assert one.page.evaluate(background) != light
    assert one.page.get_by_role("button", name="Light").is_visible()
    one.page.emulate_media(media="print")
    assert not one.page.locator("header nav").is_visible()
    assert (
        one.page.evaluate(
            "(list => list.scrollHeight - list.clientHeight)(document.querySelector('.source'))"
        )
        <= 1
    )
    one.check()
    one.page.close()


def test_every_control_has_a_name(browser: Browser, pages: Pages) -> None:
    one = opened(browser, pages["cut"])
    nameless = one.page.evaluate(
        """() => [...document.querySelectorAll('button, input, svg[role=img], canvas, .time')]
          .filter((one) => !one.getAttribute('aria-label') && !one.textContent.trim() && !one.closest('label'))
          .map((one) => one.outerHTML.slice(0, 80))"""
    )
    assert nameless == []
    one.page.locator('[data-chart="whole"] rect.bar[data-op="launch 1"]').click()
    until(one.page, "document.getElementById('kernel-1').getBoundingClientRect().top < innerHeight")
    one.check()
    one.page.close()


def test_a_report_of_many_sorts_and_filters(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(report_page(BENCHMARKS), encoding="utf-8")
    for width in WIDTHS:
        one = opened(browser, path, width)
        page = one.page
        page.get_by_role("button", name="measured us").click()
        column = page.locator("tbody td:nth-child(2)").all_inner_texts()
        times = [float(text.replace(",", "")) for text in column]
        assert len(times) > 30
        assert times == sorted(times)
        page.get_by_role("button", name="measured us").click()
        assert page.locator("th[aria-sort=descending]").count() == 1
        page.locator(".filter").fill("gemm_f8")
        assert page.locator("tbody tr").count() == 2
        assert page.locator('[data-chart="model"] circle').count() == len(times)
        one.check()
        page.close()
