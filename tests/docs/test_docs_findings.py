"""The diary's figures are those of the files that it names."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import docs_results as results
import pytest

from wsopt.machine import load_machine

ROOT = Path(__file__).parents[2]
PAGE = " ".join((ROOT / "docs" / "findings.md").read_text(encoding="utf-8").split())


def measured(name: str) -> Any:
    return json.loads((ROOT / "docs" / f"{name}.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def stores() -> dict[str, dict[str, Any]]:
    runs = measured("calibration/h200_stores")["runs"]
    return {run["kernel"]: {one["variant"]: one for one in run["variants"]} for run in runs}


def change(variants: dict[str, Any], name: str, of: str = "neither") -> str:
    """How many more cycles the longest block takes than that of another variant."""
    return f"{variants[name]['cycles_longest_block'] / variants[of]['cycles_longest_block'] - 1:+.1%}"


def test_clocks(stores: dict[str, dict[str, Any]]) -> None:
    ffn, f8 = (stores[name]["neither"]["clock_ghz"] for name in ("gemm_ffn", "gemm_f8"))
    attention = measured("calibration/h200_attention_cycles")["schedules"][0]
    sustained = load_machine("h200").sustained_clock_mhz / 1000
    told = f"`gemm_ffn` at {ffn:.2f} GHz, `gemm_f8` at {f8:.2f}, attention with K-blocks of 128 keys at "
    assert f"{told}{attention['clock_ghz']:.2f}, where the sustained clock is {sustained:.2f}" in PAGE


def test_two_ratios() -> None:
    _, item = results.measured()["gemm_nn", "cublas"]
    told = f"{results.in_turns(item):.2f} times as fast as cuBLAS in turns and {item.settled_ratio:.2f} times settled"
    assert told in PAGE


def test_paths_from_l2() -> None:
    machine = load_machine("h200")
    every, own = machine.l2_bandwidth, machine.l2_distinct_bandwidth
    assert f"L2 is {every / own:.1f} times as wide" in PAGE
    assert f"{every / 1e12:.1f} against {own / 1e12:.1f} TB/s" in PAGE


def test_rows_by_ring() -> None:
    data = measured("calibration/h200_rows_by_ring")
    cut = {"graph": "softmax_rows", "rows": 2, "consumers": 1, "warps": 8}
    found = [one for one in data["kernels"] if cut.items() <= one.items()]
    shown = [one for one in found if f"| {one['slots']} | {one['bytes_on_the_way'] // 1024} |" in PAGE]
    assert len(shown) == 6
    for one in shown:
        assert f"| {one['slots']} | {one['bytes_on_the_way'] // 1024} | {one['median_us']:.1f} |" in PAGE
    assert (max(one["slots"] for one in found), min(found, key=lambda one: one["median_us"])["slots"]) == (
        13,
        3,
    )
    assert f"A copy of as many bytes takes {data['copy_us']['softmax_rows']:.1f} us" in PAGE


def test_published_orders() -> None:
    schedules = measured("calibration/h200_attention_cycles")["schedules"][:3]
    assert [one["graph"] for one in schedules] == ["attention"] * 3
    own, ahead, apart = (f"{one['us']:.1f}" for one in schedules)
    told = f"takes {own} us, the next product first with the same tile {ahead}, K-block by K-block with three"
    assert f"{told} consumers {apart}" in PAGE


def test_longest_blocks_of_causal_kernels() -> None:
    schedules = measured("calibration/h200_attention_cycles")["schedules"]
    shares = [
        one["cycles_longest_consumer"] / one["cycles_mean_consumer"]
        for one in schedules
        if one["graph"] == "attention_causal" and ", persistent," in one["schedule"]
    ]
    assert f"took {min(shares):.2f} to {max(shares):.2f} times the cycles of the average" in PAGE


def test_instructions() -> None:
    m = load_machine("h200")
    assert (m.mma_least_cycles, m.mma_least_cycles_per_column, m.mma_least_cycles_registers) == (16, 0.25, 13)
    assert f"about {m.mma_queue:.0f} tensor instructions fit the queue" in PAGE
    assert (
        f"at {m.tma_store_bytes_per_cycle:.0f} bytes a cycle, and each takes {m.tma_store_box_cycles:.0f}"
        in PAGE
    )


def test_starts_of_stores() -> None:
    cycles = measured("calibration/h200_epilogue_clocks")["consumers"][0]["cycles"]
    first = cycles["subtile 0: store of h started"] - cycles["subtile 0: h staged"]
    last = cycles["subtile 3: store of y started"] - cycles["subtile 3: y staged"]
    after = cycles["next tile begins"] - cycles["subtile 3: store of y started"]
    told = (
        f"stands still for {first:.0f} cycles at a tile's first store and for {last:.0f} at its last, and for"
    )
    assert f"{told} {after:.0f} until the next tile begins" in PAGE


def test_store_warps_and_early_slots(stores: dict[str, dict[str, Any]]) -> None:
    for kernel in ("gemm_residual", "gemm_ffn", "gemm_f8", "rms_norm_matmul"):
        names = ("storers", "slots handed back early", "both")
        cells = [change(stores[kernel], name) if name in stores[kernel] else "" for name in names]
        row = " | ".join([kernel, *cells])
        assert " ".join(f"| {row} |".split()) in PAGE, row


def test_copies_of_a_residual(stores: dict[str, dict[str, Any]]) -> None:
    (variants,) = (found for name, found in stores.items() if name.startswith("gemm_residual, both"))
    told = change(variants, "after 7, 10, 13 and 16", "all four after 7")
    assert f"Four subtiles after 7, 10, 13 and 16 iterations instead of all after 7: {told} cycles" in PAGE


def test_calls() -> None:
    (row,) = (one for one in measured("host_cost/h200")["rows"] if one["build"] == "gemm_2048")
    us = row["us"]
    assert (
        f"`gemm_2048` takes {us['run']:.1f} us of the host, `torch.mm` beside it {us['torch_mm']:.1f}" in PAGE
    )


def test_races() -> None:
    best = {}
    for name in ("gemm_small_k", "gemm_2048", "gemm_tall"):
        races = measured(f"tuning/h200_{name}")["races"]
        best[name] = max(race["ratio"] for race in races if race["rank"] > 1)
    assert f"one of them ran {best['gemm_small_k']:.2f} times as fast" in PAGE
    assert (
        f"for `gemm_2048` {best['gemm_2048']:.2f} and for `gemm_tall` {best['gemm_tall']:.2f} times" in PAGE
    )


def test_short_loops() -> None:
    data = measured("calibration/h200_short_loops")
    variants = {(run["kernel"], one["variant"]): one for run in data["runs"] for one in run["variants"]}
    for kernel in ("mm_few_rows", "mm_1024"):
        for name in ("products issued whole", "counted slots", "counted slots, products issued whole"):
            one = variants[kernel, name]
            assert f"| {kernel} | {name} | {one['us']:.1f} | {one['ratio']:.3f} |" in PAGE
    found = {one["kernel"]: one for one in data["beside_before"]}
    three = [found[name]["in_graph"] for name in ("mm_few_rows", "mm_1024", "mm_gelu_512")]
    problems = [
        one["ratio"] for name, one in found.items() if name.startswith(("gemm", "router", "rms_norm_m"))
    ]
    told = "{:.3f}, {:.3f} and {:.3f} times as fast as before".format(*three)
    assert (
        f"{told}, and for the {len(problems)} problems of products {min(problems):.3f} to {max(problems):.3f}"
        in PAGE
    )


def test_code_and_heads_in_parts() -> None:
    data = measured("calibration/h200_short_loops")
    first, *_, last = data["traces"]["att_window"]["passes"]
    assert f"takes {round(first, -2):,} cycles and later ones {round(last, -2) + 100:,}" in PAGE
    bias = data["bias_of_predictions"]["att_window"]
    assert f"were {-bias['before']:.0%} too fast, and are {-bias['after']:.0%}" in PAGE.replace(" %", "%")
    heads = next(o for o in data["beside_before_with_divided_slots"] if o["kernel"] == "att_d96_causal")
    assert (
        f"at {heads['ratio']:.2f} of the padded kernel in turns and at {heads['settled']:.2f} settled" in PAGE
    )


def test_orders_and_slots() -> None:
    data = measured("calibration/h200_orders")
    ratios = {(row["problem"], row["variant"]): f"{row['ratio']:.3f}" for row in data["rows"]}
    rescaled = (
        f"{ratios['attention', '2rescale']} for `attention`, {ratios['attention_causal', '2rescale']} under a causal "
        f"mask, {ratios['attention_d64', '2pin']} for heads of 64"
    )
    waited = f"as well: {ratios['attention', '3wait']} and {ratios['attention_causal', '3wait']}"
    alone = f"product: {ratios['attention', '9own']} and {ratios['attention_causal', '9own']}"
    told = " ".join(PAGE.split())
    assert all(words in told for words in (rescaled, waited, alone))
    assert f"in turns it runs at {ratios['attention_d256', '1now']}" in told


def test_lazy_rescaling_in_registers() -> None:
    rows = measured("calibration/h200_lazy_rescale")["rows"]
    of = {(row["problem"], row["variant"]): row for row in rows}
    both = {
        variant: f"{of['attention', variant]['ratio']:.3f} and {of['attention_causal', variant]['ratio']:.3f}"
        for variant in ("2branch", "3vote")
    }
    told = " ".join(PAGE.split())
    assert f"`attention` runs at {of['attention', '1none']['ratio']:.3f} in turns" in told
    assert f"`attention_causal` at {of['attention_causal', '1none']['ratio']:.3f}" in told
    assert f"for all of a thread's sums: {both['3vote']}." in told
    assert f"on which the warpgroup agrees: {both['2branch']}." in told
    settled = [
        of[name, "3vote"]["settled_ratio"] for name in ("attention", "attention_causal", "attention_d64")
    ]
    assert (
        f"comes to {settled[0]:.3f} and {settled[1]:.3f} settled, and to {settled[2]:.3f} for heads of 64"
        in told
    )
    assert f"they take more time, {of['attention_d256', '1none']['ratio']:.3f} in turns" in told


def test_turned_rows() -> None:
    data, told = measured("calibration/h200_turned_rows"), " ".join(PAGE.split())
    of = {row["graph"]: row for row in data["rows"]}
    middle, first = of["softmax_middle"], of["sum_axis0"]
    assert f"and took {middle['before_us']:.1f}." in told
    share = middle["copy_us"] / middle["after_us"]
    assert f"{middle['after_us']:.1f} us, {share:.3f} of a copy" in told
    assert f"first axis {first['after_us']:.1f} us ({first['before_us']:.1f})" in told
    (traced,) = (row for row in data["traced"] if (row["rows"], row["warps"]) == (64, 4))
    assert f"in {traced['read']:,} cycles, which the model had with {traced['read_predicted']}," in told
    assert f"staged it in {traced['store']:,} ({traced['store_predicted']})" in told
    us = {(one["graph"], one["bytes"], one["consumers"]): one["median_us"] for one in data["pieces"]}
    wide, narrow = us["softmax_first", 64, 1], us["softmax_first", 32, 2]
    assert f"where it took 16, and {wide:.1f} us where it took {narrow:.1f}" in told


def test_turns_of_consumers() -> None:
    rows, told = measured("calibration/h200_consumer_turns")["rows"], " ".join(PAGE.split())
    of = {(row["problem"], row["variant"]): f"{row['ratio']:.3f}" for row in rows}
    small, large = (
        {one: of[name, one] for name, one in of if name == which} for which in ("attention", "attention_d256")
    )
    assert small["issued"] == large["issued"]
    assert f"issued its own: {small['issued']} for `attention` and for heads of 256" in told
    assert f"ended {small['first result']} and {large['first result']}, until both have" in told
    assert f"until both have {small['both results']} and {large['both results']}." in told
    assert f"does not matter either, {large['scores first']}" in told


def test_who_adds_parts_up() -> None:
    data, told = measured("calibration/h200_who_adds"), " ".join(PAGE.split())
    of = {(row["product"], row["added_by"]): f"{row['ratio']:.3f}" for row in data["rows"]}
    for product, words in (
        ("512x256x16384", "{} and {} there, with parts that stay in registers"),
        ("512x576x16384", "{} and {} for 512 x 576 x 16384"),
        ("4096x576x7168", "{} and {} for 4096 x 576 x 7168"),
    ):
        shared = of[product, "shared"], of[product, "shared, own part in registers"]
        assert words.format(*shared) in told
    tail = data["tail_us"]["512x256x16384"]
    assert f"stored in {tail['stored']} us, the arrival takes {tail['arrived']}" in told
    assert f"all parts in {tail['added_up']}:" in told


def test_order_of_parts() -> None:
    data, told = measured("calibration/h200_parts_order"), " ".join(PAGE.split())
    us = {(row["graph"], row["layout"], row["kernel"]): row["median_us"] for row in data["rows"]}
    after, before = (
        {graph: time for (graph, layout, kernel), time in us.items() if (layout, kernel) == ("plain", which)}
        for which in ("_apart", "_before")
    )
    few, narrow, wide, keys = "512_256_16384", "4096_128_8192", "128_4096_16384", "contiguous_1_64_8_131072"
    first = f"takes {after[few]:.2f} us instead of {before[few]:.2f}, 4096 x 128 x 8192 {after[narrow]:.2f}"
    assert f"{first} instead of {before[narrow]:.2f}" in told
    assert f"128 x 4096 x 16384 {after[wide]:.2f} instead of {before[wide]:.2f}" in told
    assert f"does not care ({after[keys]:.1f} and {before[keys]:.1f})" in told
    place = {processor: block for block, processor in enumerate(data["blocks"])}
    of_gpcs = [sorted(place[processor] for processor in cluster) for cluster in data["clusters"]]
    assert of_gpcs[0] == list(range(16, 32))
    assert all(cluster == list(range(cluster[0], cluster[0] + 16)) for cluster in of_gpcs[:5])
    lost = [us[graph, "plain", "_rot"] / before[graph] - 1 for graph in (few, wide)]
    assert (
        f"for each tile lose {lost[0]:.0%} and {lost[1]:.0%}".replace("%", "", 1).replace("%", " %") in told
    )
    assert all(abs(us[graph, "xw", "_before"] / before[graph] - 1) < 0.01 for graph in (few, narrow, wide))


def test_products_whose_parts_are_apart() -> None:
    now, then = (
        {
            row["name"]: row["baselines"][0]["graph_ratio"] or row["baselines"][0]["ratio"]
            for row in measured(f"few_tiles/{name}")["rows"]
        }
        for name in ("h200_first_parts", "h200")
    )
    both = [name for name in now if name in then]
    after, before = (statistics.geometric_mean(ratios[name] for name in both) for ratios in (now, then))
    told = " ".join(PAGE.split())
    assert all(then[name] < 1 for name in both)
    assert f"Of the {len(both)} products that were behind cuBLAS" in told
    assert f"is {after:.3f} of it, {before:.3f} before" in told


def test_survey() -> None:
    rows = [
        row
        for path in sorted((ROOT / "docs" / "survey").glob("*.json"))
        for row in measured(f"survey/{path.stem}")["rows"]
    ]
    graphs = {path.stem for path in (ROOT / "docs" / "survey" / "graphs").glob("*.json")}
    assert {row["status"] for row in rows} == {"ok"}
    assert graphs <= {row["name"] for row in rows}
    assert all(any(row["name"].startswith(graph) for graph in graphs) for row in rows)
    ratios: dict[str, dict[str, float]] = {}
    for row in rows:
        for one in row["baselines"]:
            if one["status"] == "ok":
                ratios.setdefault(one["name"], {})[row["name"]] = one["graph_ratio"] or one["ratio"]
    mean = {name: f"{statistics.geometric_mean(own.values()):.2f}" for name, own in ratios.items()}
    told = " ".join(PAGE.split())
    assert f"{len(graphs)} graphs of many kinds" in told
    assert (
        f"beside Inductor {mean['inductor']} in the geometric mean of {len(ratios['inductor'])} kernels"
        in told
    )
    assert f"beside cuDNN's attention {mean['sdpa_cudnn']} of {len(ratios['sdpa_cudnn'])}" in told
    assert f"which has the product alone, {mean['cublas']} of {len(ratios['cublas'])}." in told
    off = {
        row["name"]: row["predicted_us"] / (row["kernel_graph"] or row["kernel"])["median_us"] - 1
        for row in rows
    }
    assert f"off by {100 * statistics.mean(map(abs, off.values())):.1f} % on the mean" in told
    own = ratios["cublas"]
    assert f"1000 x 3000 x 1000 at {own['gemm_1000_3000_1000']:.2f} of cuBLAS" in told
    assert f"4096 x 128 x 8192 at {own['gemm_n128']:.2f}" in told
    assert (
        f"predicted {-100 * off['gemm_n128']:.0f} % too fast; 300 x 4096 x 4096 at {own['gemm_m300']:.2f}"
        in told
    )


def test_turns_with_kernels_of_before() -> None:
    rows = measured("calibration/h200_turns")["rows"]
    assert {row["status"] for row in rows} == {"ok"}

    def ratios(name: str) -> list[float]:
        found = (one for row in rows for one in row["baselines"] if one["name"] == name)
        return [one["ratio"] for one in found if one["ratio"]]

    before, flash = ratios("against"), ratios("flash_attn_4")
    assert f"The {len(before)} problems in nine turns" in PAGE
    own, other = map(statistics.geometric_mean, (before, flash))
    assert f"{min(before):.3f} to {max(before):.3f}, in the geometric mean {own:.3f}" in PAGE
    assert f"by {other:.2f} in the geometric mean of {len(flash)} graphs, and ahead in three" in PAGE
    assert sum(ratio < 1 for ratio in flash) == 3


def test_where_partial_sums_lie() -> None:
    data = measured("calibration/h200_partial_sums")

    def told(graph: str) -> tuple[str, ...]:
        own = next(row for row in data["rows"] if row["graph"] == graph)
        cublas = next(row for row in data["cublas"] if row["graph"] == graph)
        return tuple(f"{one[when]:.1f}" for one in (own, cublas) for when in ("now_us", "before_us"))

    now, before, beside, beside_before = told("mm_128_576_7168")
    assert f"takes {now} us where it took {before} (cuBLAS beside it {beside} and {beside_before})" in PAGE
    now, before, beside, beside_before = told("mm_16_1024_7168")
    assert f"{now} where it took {before} ({beside} and {beside_before})" in PAGE


def test_rows_beyond_the_end() -> None:
    rows = measured("calibration/h200_few_rows")["rows"]
    own = {(row["rows"], row["tile"]): row for row in rows if row["columns"] == row["contracted"]}
    before, whole = own[8, "64x64x128"]["us"], own[64, "64x64x128"]["us"]
    assert f"8192 x 8192 takes {before} us where the same kernel takes {whole} us for 64 rows" in PAGE
    wide, best = own[8, "64x16x128"], own[8, "64x8x128"]
    assert f"hold the 8 rows, {wide['us']} us, and 8 columns none too many, {best['us']} us" in PAGE
    rate = (8192 * 8192 + 2 * 8 * 8192) * 2 / best["us"] / 1e6
    assert f"{rate:.2f} TB/s, and {best['cublas_ratio']} of cuBLAS" in PAGE
    assert f"cost {own[8, '64x8x64']['us']} and {own[8, '64x8x32']['us']} us" in PAGE


def test_few_queries() -> None:
    rows = {(row["batch"], row["keys"]): row for row in measured("calibration/h200_decode")["rows"]}

    def told(batch: int, keys: int) -> tuple[str, str, float]:
        row = rows[batch, keys]
        reads, other = row["read_us"] / row["us"], row["flash_attn_4_us"] / row["us"]
        return f"{row['us']:.1f} us, ", f"{reads:.2f}", other

    us, reads, other = told(16, 8192)
    assert f"16 x 8192 keys {us}{reads} of the reads' and {other:.2f} of flash-attn-4's time" in PAGE
    us, reads, other = told(1, 131072)
    assert f"in one batch element {us}{reads} of the reads' and ahead by {other:.1f}; 8192 " in PAGE
    us, reads, other = told(1, 8192)
    assert f"keys {us}{reads} and {other:.1f}." in PAGE


def test_lengths_that_differ() -> None:
    drawn = measured("calibration/h200_decode")["lengths"]
    unsplit = [one["us_by_splits"]["1"] / one["read_us"] for one in drawn if one["keys"] < 131072]
    assert f"{min(unsplit):.2f} to {max(unsplit):.2f} of their reads' time unsplit" in PAGE
    (full,) = (one["us_by_splits"] for one in drawn if one["keys"] == 131072)
    assert f"to {full['8']:.0f} us. Unsplit it takes {full['1']:.0f}" in PAGE


def test_constants_that_are_copied_early() -> None:
    rows = {row["name"]: row["baselines"][0] for row in measured("calibration/h200_constants")["rows"]}
    short = ("gemm_ragged", "gemm_small_k", "gemm_2048")
    told = ", ".join(f"`{name}` {rows[name]['ratio']:.2f}" for name in short)
    wide = [one["ratio"] for name, one in rows.items() if name not in (*short, "router")]
    assert f"{told}, wide products {min(wide):.2f} to {max(wide):.2f}" in PAGE
    lost = [name for name, one in rows.items() if (one["graph_ratio"] or 1) < 0.985]
    assert lost == ["gemm_2048", "router"]
    assert {round(1 - rows[name]["graph_ratio"], 2) for name in lost} == {0.02}


def _told_us(file: str) -> dict[str, tuple[float, dict[str, float]]]:
    """Microseconds of each row of a bench, by folder, and its ratios to baselines; of a CUDA graph if it is short."""
    return {
        row["folder"]: (
            (row["kernel_graph"] or row["kernel"])["median_us"],
            {one["name"]: one["graph_ratio"] or one["ratio"] for one in row["baselines"]},
        )
        for row in measured(file)["rows"]
    }


def test_rows_that_no_sm_holds() -> None:
    found = _told_us("rows/long/h100")
    now, before = found["softmax_128256"], found["softmax_128256_before"]
    assert f"the softmax takes {now[0]:.1f} us where it took {before[0]:.1f}" in PAGE
    assert f"{now[1]['copy']:.2f} of a copy instead of {before[1]['copy']:.2f}" in PAGE
    kept, none = found["softmax_128256_8_warps"][0], found["softmax_128256_8_warps_none_retained"][0]
    assert f"the parts that stay are {none:.1f} to {kept:.1f}" in PAGE
    logarithm, loss = (found[f"{name}_128256"][1]["copy"] for name in ("log_softmax", "cross_entropy"))
    assert f"its logarithm is at {logarithm:.2f}, the cross-entropy at {loss:.2f}" in PAGE


def test_launches_beside_each_other() -> None:
    found = {row["kernel"]: row["us"] for row in measured("calibration/h100_resident_launches")["rows"]}
    half = {
        "c_8_4096_4096": "co6",
        "c_8_8192_8192": "co6",
        "c_64_4096_4096": "co4",
        "c_128_4096_4096": "co4",
        "i4_1": "co5",
    }
    told = [(found[name]["base"], found[name][way]) for name, way in half.items()]
    (a, b), *rest = told
    assert f"by 4096 x 4096 take {a:.2f} us, and {b:.2f} so" in PAGE
    for base, other in rest:
        assert f"{base:.2f} and {other:.2f}" in PAGE
    assert f"takes {found['c_8_4096_4096']['early']:.2f} us for the first" in PAGE
    others = [abs(found[name]["early"] / found[name]["base"] - 1) for name in half if name != "c_8_4096_4096"]
    assert f"changes the others by {max(others):.1%} at most".replace("%", " %") in PAGE


def test_longer_rows_of_packed_weights() -> None:
    found = _told_us("calibration/h100_packed_depth")
    short, few, long = (found[name][0] for name in ("i4_1", "i4_1_depth_256_rows_64", "i4_1_depth_256"))
    assert f"take {short:.1f} us on an H100 with K-blocks of 128" in PAGE
    assert f"and {few:.1f} and {long:.1f} with K-blocks of 256" in PAGE
    reads = [us * ratios["read"] for us, ratios in found.values()]
    assert f"takes {min(reads):.1f} to {max(reads):.1f}" in PAGE


def test_blocks_that_drift_apart() -> None:
    data = measured("calibration/h100_dynamic_tiles")
    plain = {(one["columns"], one["kernel"]): one["us"] for one in data["plain"]}
    kinds = ("one a block w8", "strided w8 x4", "blocked w8 x4", "dynamic w8 x4 (less zero)")
    one, strided, stretch, counter = (plain[8192, kind] for kind in kinds)
    assert f"take {one:.1f} us with one row a block" in PAGE
    assert (
        f"{strided:.1f} with four blocks an SM that stride, {stretch:.1f} where each has a stretch of its own"
        in PAGE
    )
    assert (
        f"and {counter:.1f} where rows come from a counter; a copy takes {plain[8192, 'copy']:.1f}." in PAGE
    )
    found = {
        one["kernel"]: tuple(min(one[way]) for way in ("turns_us", "run_time_us")) for one in data["kernels"]
    }

    def told(kernel: str) -> tuple[str, str]:
        turns, taken = found[kernel]
        return f"{turns:.1f}", f"{taken:.1f}"

    norm, wide = (
        told("rms_8192_consumers_1_consumer_warps_4_ring_2"),
        told("rms_16384_consumers_1_consumer_warps_8_ring_2"),
    )
    assert f"from {norm[0]} to {norm[1]} us, of 2048 x 16384 from {wide[0]} to {wide[1]}" in PAGE
    silu = "silu_columns_2048_rows_1_consumers_{}_consumer_warps_4_ring_{}"
    assert "silu of 8192 x 8192 from {} to {}".format(*told(silu.format(2, 4))) in PAGE
    assert "(64 KB: {} to {})".format(*told("rms_8192_consumers_2_consumer_warps_4_ring_2")) in PAGE
    assert "are too few ({} to {})".format(*told(silu.format(1, 8))) in PAGE


def test_products_that_read_registers() -> None:
    found = measured("calibration/h200_issue_slots")
    by_consumers = {row["consumers"]: row["ii_cycles"] for row in found["traces"] if row["rows"] == 64}
    assert by_consumers == {1: 852, 2: 1265, 3: 1731}
    assert 410 < by_consumers[2] - by_consumers[1] < 440 < by_consumers[3] - by_consumers[2] < 470
    ends = {row["end"]: row["us"] for row in found["ends"] if row["graph"] == "i4_16"}
    assert round(ends["whole"] - ends["none"], 2) == 2.35
    assert round(ends["whole"] - ends["stores and arrival"], 1) == 1.5
    dealt = {(r["graph"], r["depth"], r["consumers"]): r["us"] for r in found["dealt"]}
    chosen = {row["graph"]: row["us"] for row in found["chosen"]}
    assert (dealt["i4_16", 256, 2], chosen["i4_16"]) == (14.6, 16.3)
    assert (dealt["i4_1", 256, 2], chosen["i4_1"]) == (15.2, 16.2)
    assert (dealt["i4_64", 256, 2], chosen["i4_64"]) == (26.8, 20.7)
    assert dealt["i4_16", 256, 3] >= dealt["i4_16", 256, 2]
    again = {row["kernel"]: (row["us"], row["predicted_us"]) for row in found["rechosen"]}
    told = " ".join((ROOT / "docs" / "findings.md").read_text("utf-8").split())
    (one, one_predicted), (few, few_predicted) = again["i4_1"], again["i4_16"]
    assert f"one row takes {one} us (predicted {one_predicted}) and {again['before_1'][0]} before" in told
    assert f"16 rows {few} ({few_predicted}) and {again['before_16'][0]}" in told


def test_stored_by_threads() -> None:
    data = measured("calibration/h200_stored_by_threads")
    both = {one["graph"]: (one["by_threads_us"], one["by_copies_us"]) for one in data["stored"]}
    ln = "layer_norm_16384"
    assert f"columns takes {both[ln][0]} us and not {both[ln][1]}" in PAGE
    assert "of 8,192 {} ({})".format(*both["layer_norm_8192"]) in PAGE
    assert all(threads < copies for threads, copies in both.values()), "no kernel of reduced rows took longer"
    parts = {(one["graph"], one["in_registers"], one["stored"]): [] for one in data["parts"]}
    for one in data["parts"]:
        parts[one["graph"], one["in_registers"], one["stored"]].append(one["us"])
    log, soft = "log_softmax_128256", "softmax_128256"
    copied = parts[log, 3, "by copies"]
    assert f"three again, which the L2 had lost: {parts[log, 0, 'by copies'][0]} us" in PAGE
    assert f"takes {copied[0]} us" in PAGE
    assert f"the log-softmax {parts[log, 3, 'by threads'][0]} ({copied[1]})" in PAGE
    whole = parts[soft, 0, "by copies"]
    assert f"takes {parts[soft, 3, 'by copies'][0]} us with parts in registers and {whole[1]} without" in PAGE
    assert f"the softmax {parts[soft, 0, 'by threads'][0]} ({whole[0]})" in PAGE


def test_flat_rows() -> None:
    data, told = measured("calibration/h200_flat_rows"), " ".join(PAGE.split())
    one, several = data["one"], data["several"]
    norm = one["rms50257"]
    assert (
        f"the norm takes {norm['us']:.1f} us (predicted {norm['predicted_us']}), {norm['copy']} of a copy"
        in told
    )
    assert f"the gradient of a softmax over 30,522 {one['gsm30522']['us']:.1f}," in told
    for name, words in {
        "add30522": "a softmax of a sum over 30,522",
        "w3001": "one over 3,001",
        "sm50257": "one over 50,257",
    }.items():
        assert f"{words} {one[name]['us']:.1f} ({one[name]['predicted_us']})" in told
    before, sums = several["sm50257"], several["lse50257"]
    assert f"took {before['us']:.1f} us where {before['predicted_us']} were predicted" in told
    assert f"sums over them {sums['us']:.1f} ({sums['predicted_us']})" in told
    products = data["products"]
    (narrow, guess), (wide, other) = products["64_160_1_cooperative_1"], products["64_192_1_cooperative_1"]
    assert f"took {products['64_160_2_ping_pong_1'][0]:.1f} and {wide:.1f} us on an H100" in told
    assert f"cuBLAS {products['cublas_us']:.1f}" in told
    assert wide < narrow, "though it was predicted the other way round"
    assert guess < other


def test_one_place_and_small_blocks() -> None:
    data, told = measured("calibration/h200_blocks_elements"), " ".join(PAGE.split())
    one = data["one_place"]
    assert f"{one['us']:.1f} us where {one['before_us']:.1f} were taken" in told
    assert f"{one['of_copy']} of a copy and {one['of_inductor']} of Inductor" in told
    flat = {(row["columns"], row["consumer_warps"]): row for row in data["cross_entropy_50257"]}
    assert (
        f"takes {flat[4096, 8]['us']:.1f} us where {flat[4096, 8]['predicted_us']:.1f} are predicted" in told
    )
    assert f"columns {flat[8192, 8]['us']:.1f} ({flat[8192, 8]['predicted_us']:.1f})" in told
    edits = {row["edit"]: row["us"] for row in data["cross_entropy_50257_by_hand"] if row["columns"] == 8192}
    assert f"Copies alone take {edits['no arithmetic']:.1f} us" in told
    assert f"{edits['without the branches that hide ends']:.1f} are left" in told
    assert f"gain no more ({edits['columns numbered in the branches']:.1f})" in told
    assert f"{edits['without those and the sum at one place']:.1f} without the sum" in told

    def of(graph: str, elements: int) -> list[float]:
        rows = (row for row in data["variants"] if row["graph"] == graph)
        sizes = ((row, row["rows"] * row["columns"] // (32 * row["consumer_warps"])) for row in rows)
        return [row["us"] for row, size in sizes if size == elements]

    cast = {elements: of("cast_flat", elements) for elements in (8, 16, 32, 64)}
    assert f"{min(cast[8])} us with 8 elements a thread, {min(cast[16])} with 16" in told
    assert f"up to {max(cast[32] + cast[64])} with 64" in told
    assert min(cast[8]) < min(cast[16]) < min(cast[32]) < min(cast[64])
    norms = [*of("layer_norm_1024", 64), *of("rms_1024", 64)]
    assert (
        f"{min(of('layer_norm_1024', 16)):.1f} with 16 and {min(norms):.1f} to {max(norms):.1f} with 64"
        in told
    )
    heads = {
        (row["rows"], row["consumer_warps"], row["occupancy"], row["grid"]): row["us"]
        for row in data["heads"]
    }
    assert f"it takes {heads[16, 2, 8, 'numbers']:.1f} us" in told
    assert f"would be none, and {min(heads.values()):.1f} us" in told


def test_parts_by_threads() -> None:
    data, told = measured("calibration/h200_parts_by_threads"), " ".join(PAGE.split())
    rings = {
        (row["graph"], row["columns"], row["consumers"], row["consumer_warps"], row["edit"]): row["us"]
        for row in data["edits"]
        if "consumers" in row
    }
    three = [us for (graph, *cut, _), us in rings.items() if graph == "ce_50257" and cut == [4096, 3, 8]]
    first, numbered, shown, one = (f"{us:.1f}" for us in three)
    assert f"takes {first} us with three consumers of eight warps" in told
    assert (
        f"branches make it {numbered}, no zeros for elements that the maximum hides anyway {shown}," in told
    )
    assert f"ends are hidden {one}. Blocks" in told

    def us(graph: str, ahead: bool, flat: bool, warps: int = 0) -> list[float]:
        rows = (row for row in data["variants"] if row["graph"] == graph and row["occupancy"])
        rows = (row for row in rows if (row["ahead"], row["flat"]) == (ahead, flat))
        return [row["us"] for row in rows if warps in (0, row["occupancy"] * row["consumer_warps"])]

    chosen = data["chosen"]["ce_50257"]
    assert f"take {min(us('ce_50257', True, True, 32)):.1f} with 32 warps" in told
    assert f"and {chosen['us']:.1f} with 24, where {chosen['before_us']:.1f} were taken" in told
    elements = min(us("lse50257", False, False))
    assert (
        f"sums {min(us('lse50257', True, True)):.1f}, threads that read element by element {elements:.1f})"
        in told
    )
    turn = us("ce_50257", False, True)
    assert f"their turn comes take {min(turn):.1f} to {max(turn):.1f}" in told
    wide, narrow = (us("cross_entropy_128256", True, False, warps) for warps in (32, 28))
    assert (
        f"ahead take {min(wide):.1f} us over 128,256 columns with 32 warps, and {narrow[0]:.1f} with 28"
        in told
    )
    many = [row["us"] for row in data["variants"] if row["graph"] == "ce_151936" and row["run"] == 2]
    rings_us = data["chosen"]["ce_151936"]["us"]
    assert f"in f32 {min(many):.1f} to {max(many):.1f}, beside {rings_us:.1f} by rings" in told
    soft = min(us("sm50257", True, True))
    assert (
        f"takes {soft:.1f} by threads and {min(row['us'] for row in data['two_passes']):.1f} by rings" in told
    )


def test_dependents_and_rounds() -> None:
    data, told = measured("calibration/h200_parts_by_threads"), " ".join(PAGE.split())
    us = {
        (row["graph"], row["registers"], row["lets_the_next_begin"]): row["us"] for row in data["dependents"]
    }
    early, late = (us["ce_151936", 72, f"{when} the tile"] for when in ("before", "behind"))
    assert f"they took {early:.1f} us, and take {late:.1f} if" in told
    rounds, fit = (us["cross_entropy_128256", registers, "before the tile"] for registers in (72, 64))
    assert f"columns take {rounds:.1f} either way" in told
    assert f"and {fit:.1f} with 64 registers and eight" in told
    assert f"lose {1 - late / data['chosen']['ce_151936']['us']:.0%} by".replace("%", " %") in told


def test_hints_to_caches() -> None:
    rows, told = measured("calibration/h200_parts_by_threads")["caches"], " ".join(PAGE.split())
    first, stores = "the same, loads evicted first", "the same, stores evicted first"
    grid, table, norm = rows["rotary"], rows["positions"], rows["rms_8192"]
    three, blocks = "grid of three axes", "blocks of 16 warps"
    assert f"embedding {grid[first]:.1f} us from {grid[three]:.1f}, a norm" in told
    assert f"8,192 columns {norm[first]:.1f} from {norm[blocks]:.1f}, and" in told
    assert f"added {table[first]:.1f} from {table[three]:.1f}; stores" in told
    assert f"that are, {grid[stores]:.1f}, {norm[stores]:.1f} and {table[stores]:.1f}." in told
    assert (
        f"gives rotary {grid[three]:.1f} from {grid['as emitted']:.1f}, and the table {table[three]:.1f}"
        in told
    )


def test_elements_and_cards() -> None:
    data = measured("calibration/h200_stored_by_threads")
    us = {(one["stored"], one["consumer"]): one["us"] for one in data["elements"]}
    threads = [value for (stored, _), value in us.items() if stored == "by threads"]
    least = us["by copies", "the search's choice"]
    assert f"takes {least} us staged, and {min(threads)} to {max(threads)} by threads" in PAGE
    first, second, third, last = (one["us"] for one in data["cards"])
    assert f"took {first}, {second}, {third} and {last} us on four H200" in PAGE
    told = {(one["graph"], one["told"]): one["us"] for one in data["told"]}
    assert f"took {told['embedding', True]} us so and {told['embedding', False]} without" in PAGE
    assert f"bias and gelu {told['bias_gelu', True]} (" in PAGE
    assert f"said *evict last*, {told['rms50257', True]} (" in PAGE
    traced = data["traced"][0]
    one, two = (f"{cycles:,}" for cycles in traced["cycles"])
    assert f"({one} and {two} cycles, {traced['model_cycles']:,}; `traced`)" in PAGE


def test_softmax_with_parts_in_registers() -> None:
    data = measured("calibration/h200_softmax_parts")
    found = {one["variant"]: (one["us"], one["predicted_us"]) for one in data["registers"]}
    us, predicted = found["in_registers3_stored_by_threadsyes"]
    assert f"as slow as without, {predicted} us" in PAGE
    assert found["base"][1] == predicted
    assert f"it takes {us} us, and {found['base'][0]} without" in PAGE
    by_hand = {one["variant"]: f"{one['us']:.1f}" for one in data["by_hand"]}
    ahead = by_hand["the maxima of a part beside the exponentials of the one before"]
    assert f"({ahead} us, {by_hand['as chosen']} as chosen)" in PAGE
    reads = by_hand["the second pass's reads ahead"]
    assert f"reads a part ahead ({reads}), 16 warps ({by_hand['16 warps']})" in PAGE
    assert f"nothing is reduced ({by_hand['no mask in the second pass']})" in PAGE
    four = by_hand["four consumers with a quarter of a part's columns each"]
    assert f"({four}): the consumer was not what bound it" in PAGE
    rows = {Path(row["folder"]).name: row for row in measured("rows/h200_beyond_memory")["rows"]}
    assert f"predicts {rows['softmax_128256']['predicted_us']:.1f}, and of {len(rows)} graphs" in PAGE
    tiles = {one["variant"]: one["us"] for one in data["cross_entropy"]}
    again = rows["cross_entropy_128256"]["kernel"]["median_us"]
    assert f"takes {tiles['base']} us on one card and {again:.1f} on the next" in PAGE
    one_row = tiles["consumers2_consumer_warps4_rows1_columns8192"]
    assert f"four times as many, take {one_row} on the first" in PAGE


def test_caches_of_8_bits() -> None:
    def told(name: str) -> dict[str, tuple[str, str]]:
        rows = measured(f"quantized/{name}")["rows"]
        us = {Path(row["folder"]).name: (row["kernel"]["median_us"], row["predicted_us"]) for row in rows}
        return {name: (f"{took:.1f}", f"{predicted:.1f}") for name, (took, predicted) in us.items()}

    now, before = told("h200_caches"), told("h200_caches_direct")
    assert f"took {before['dec_f8'][0]} us so" in PAGE
    f8, i8, token = now["dec_f8"], now["dec_i8"], now["dec_f8_token"]
    assert (
        f"{f8[0]}, where i8 takes {i8[0]}, scales of tokens {token[0]} and bf16 {now['dec_bf16'][0]}" in PAGE
    )
    assert f"predicts {f8[1]}, {i8[1]} and {token[1]} us" in PAGE
    prefill = told("h200_caches_prefill")
    assert f"takes {prefill['pre_f8'][0]} us with f8 and {prefill['pre_bf16'][0]} with bf16" in PAGE
    assert f"predicted {prefill['pre_f8'][1]})" in PAGE


def test_turned_tiles() -> None:
    copied, soft = measured("calibration/h200_turned_tiles")["rows"]
    graph, predicted = copied["kernel_graph"]["median_us"], copied["predicted_us"]
    assert f"takes {graph:.1f} us out of a graph, predicted {predicted:.1f}" in PAGE
    inductor, copy = (one["graph_ratio"] for one in copied["baselines"])
    assert f"{copy:.2f} of a copy, and {inductor:.2f} of what Inductor" in PAGE
    us, ratio = soft["kernel"]["median_us"], soft["baselines"][0]["ratio"]
    assert f"takes {us:.1f} us (predicted {soft['predicted_us']:.1f}), {ratio:.2f} of Inductor" in PAGE


def test_transforms() -> None:
    data = measured("calibration/h200_transforms")
    us = {one["variant"]: one for one in data["warpgroups"]}
    for name in ("dec_f8", "dec_i8", "dec_f8_token"):
        one, each = (us[f"{name}_t{count}"] for count in (1, 2))
        assert (
            f"{each['us']:.1f} us ({one['us']:.1f}" in PAGE or f"{each['us']:.1f} ({one['us']:.1f})" in PAGE
        )
        assert f"{each['predicted_us']:.1f} ({one['predicted_us']:.1f})" in PAGE
    prefill = [one["us"] for one in data["prefill"]]
    told = "takes {:.1f} us with one consumer of eight warps, {:.1f} with two, {:.1f} with two and"
    assert told.format(*prefill) in PAGE
    arithmetic = data["cycles"]["arithmetic"]
    assert f"the arithmetic is {arithmetic['measured']:,} (predicted {arithmetic['predicted']})" in PAGE


def test_latent_roles() -> None:
    data = measured("calibration/h200_latent_roles")
    behind, before = (one["us"] for one in data["order"])
    whole, copied = (one["us"] for one in data["left_out"][:2])
    assert f"The whole takes {behind:.1f} us" in PAGE
    assert f"({copied:.1f} us of {whole:.1f} without them)" in PAGE
    assert f"all takes {before:.1f}" in PAGE


def test_few_long_rows() -> None:
    found = {one["variant"]: one for one in measured("calibration/h200_few_long_rows")["kernels"]}
    for name, told in (
        ("few_64_128256", "{:.1f} us (predicted {:.1f}; Inductor {:.2f} times as long, {:.2f} before)"),
        ("few_8_128256", "{:.1f} for 8 rows ({:.1f}; {:.2f} and {:.2f})"),
        ("few_32_50264", "{:.1f} for 32 rows of 50,264 ({:.1f}; {:.2f} and {:.2f})"),
        ("lse_64_128256", "{:.1f} for the logarithm of the sums of 64 rows ({:.1f}; {:.2f} and {:.2f})"),
    ):
        now, before = found[name], found[f"{name}_occ"]
        figures = (
            now["us"],
            now["predicted_us"],
            now["of_inductor_in_graphs"],
            before["of_inductor_in_graphs"],
        )
        assert told.format(*figures) in PAGE


def test_rows_that_are_not_there() -> None:
    rows = {row["name"]: row for row in measured("quantized/h200_caches_each")["rows"]}
    own = [rows[name] for name in ("dec_f8", "dec_i8", "dec_bf16", "dec_f8_token")]
    predicted, took = ([f"{us:.1f}" for us in each] for each in zip(*map(both, own), strict=True))
    told = "predicted {} us, over i8 {}, over bf16 {}, with scales of tokens {}; on one card more they took"
    assert f"{told.format(*predicted)} {took[0]}, {took[1]}, {took[2]} and {took[3]} us" in PAGE


def both(row: dict[str, Any]) -> tuple[float, float]:
    """A kernel's predicted time, and what it takes."""
    return row["predicted_us"], row["kernel"]["median_us"]


def test_constants_ahead_and_two_blocks_an_sm() -> None:
    data = measured("calibration/h200_ahead")
    groups = data["groups"]

    def us(group: str, **fields: Any) -> str:
        (found,) = (one["us"] for one in groups[group] if fields.items() <= one.items())
        return f"{found:.2f}"

    all_ahead, some = us("i4_16", blocks=1, ahead=9), us("i4_16", blocks=1, ahead=4)
    assert f"8192 x 8192, took {all_ahead} us in a CUDA graph" in PAGE
    narrow = "two consumers of 64 x 8"
    one, before = us("i4_1", tile=narrow, ahead=4), us("i4_1", tile=narrow, ahead=10)
    assert f"With the weights of four slots it takes {some} us, of one row {one} instead of {before}." in PAGE
    i8, bf16 = (
        (us(name, blocks=1, ahead=many), us(name, blocks=1, ahead=3))
        for name, many in (("i8_16", 5), ("bf16_16", 11))
    )
    assert (
        f"8 bits {i8[0]} us with all five slots and {i8[1]} with three, bf16 {bf16[0]} and {bf16[1]}." in PAGE
    )
    own, wide = us("i4_16", blocks=2, tile="64 x 16"), us("i4_16", blocks=2, tile="128 x 16", ahead=2)
    assert f"they take {own} us for those 16 rows, and with tiles of 128 weights {wide};" in PAGE
    two, alone = us("i4_1", blocks=2, tile="128 x 8", ahead=2), us("i4_1", blocks=1, ahead=2)
    assert f"one row takes {two} ({alone} with the best of one block)" in PAGE
    assert f"8 bits {us('i8_16', blocks=2, ahead=4)} ({i8[0]})" in PAGE
    assert f"gain for one row of 4 bits ({us('i4_1', blocks=3)} us)" in PAGE
    late = next(one["first_slot"] for one in data["stamps"] if one["blocks"] == 1)
    assert f"came {late / 1000:.1f} us later" in PAGE


def test_what_is_chosen_since_beside_what_was_before() -> None:
    data = measured("calibration/h200_two_blocks")
    row, few, four = (
        data["kernels"][name]
        for name in ("1 row, 4096 x 4096, bf16", "16 rows, 1024 x 2048, bf16", "16 rows, 8192 x 8192, 4 bits")
    )
    us = [(f"{one['chosen']['us']:.2f}", f"{one['before']['us']:.2f}") for one in (row, few, four)]
    cublas = [f"{one['cuBLAS']['us']:.2f}" for one in (row, few)]
    assert f"one row by 4,096 x 4,096 bf16 {us[0][0]} us ({us[0][1]}, cuBLAS {cublas[0]})" in PAGE
    assert f"16 rows by 1,024 x 2,048 {us[1][0]} ({us[1][1]}, cuBLAS {cublas[1]})" in PAGE
    assert f"16 rows by 8,192 x 8,192 of four bits {us[2][0]} ({us[2][1]})" in PAGE
    best = [
        max(one[f"two blocks of {kind}"]["ratio"] for kind in ("one consumer", "two consumers"))
        for one in data["many_rows"].values()
    ]
    assert f"six of 128 to 4,096 rows reach {min(best):.2f} to {max(best):.3f} of what is chosen" in PAGE
    some = measured("calibration/h200_few_columns")["kernels"]["16 rows, 2112 x 2048, bf16"]
    two, one, whole = (
        f"{some[name]['us']:.2f}" for name in ("two blocks, some of the rows", "one block", "chosen")
    )
    assert (
        f"16 rows by 2,112 x 2,048 took {two} us, with one block {one}, and with all rows in two {whole}"
        in PAGE
    )
