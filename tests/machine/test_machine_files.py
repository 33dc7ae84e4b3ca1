"""Machine files: a valid one loads; each changed in one place is refused with that place and the reason."""

from __future__ import annotations

import re
import tomllib
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from machine_files import whole_card, write_toml

from wsopt.errors import InputError
from wsopt.machine import Machine, load_machine
from wsopt.machine.load import ARCHITECTURES, DATA, RATED, read_tables

GONE = object()


def changed(place: str, value: Any) -> dict[str, Any]:
    """The valid card with the value at a `/`-separated place set, or taken out where it is GONE."""
    card = deepcopy(whole_card())
    *above, last = place.split("/")
    table = card
    for key in above:
        table = table[key]
    if value is GONE:
        del table[last]
    else:
        table[last] = value
    return card


def faults(path: Path) -> list[str]:
    """What loading says of a broken file, a fault a line, without the file's name."""
    with pytest.raises(InputError) as caught:
        load_machine(path)
    assert caught.value.source == str(path)
    assert caught.value.exit_status == 2
    return [str(problem) for problem in caught.value.problems]


def figure(value: Any, **more: Any) -> dict[str, Any]:
    return {"value": value, "source": "estimate: for a test", **more}


def test_the_whole_file_is_the_shipped_card(tmp_path: Path, h200: Machine) -> None:
    path = write_toml(tmp_path / "card.toml", whole_card())
    assert load_machine(path) == load_machine(str(path)) == h200


@pytest.mark.parametrize(
    ("place", "value", "expected"),
    [
        # Form.
        ("sm_cuont", figure(132), "/sm_cuont: unknown key; did you mean sm_count?"),
        ("sm_count", 132, "/sm_count: expected { value = ..., source = ... }, found 132"),
        ("sm_count", GONE, "/sm_count: missing (streaming multiprocessors)"),
        ("sm_count/value", GONE, "/sm_count/value: missing"),
        ("sm_count/source", GONE, "/sm_count/source: missing"),
        (
            "sm_count/source",
            "a colleague",
            "/sm_count/source: 'a colleague' does not say where the figure is",
        ),
        ("sm_count/source", "datasheet:", "/sm_count/source: 'datasheet:' does not say where the figure is"),
        ("sm_count/unit", "SMs", "/sm_count/unit: unknown key of a figure; it has value, source"),
        ("tensor", 3, "/tensor: expected a table of figures, found 3"),
        ("latency", GONE, "/latency: missing"),
        ("tensor/bf61", figure(2048), "/tensor/bf61: unknown key; did you mean bf16? (known: bf16, f16,"),
        ("latency/tma_laod_l2", figure(1), "/latency/tma_laod_l2: unknown key; did you mean tma_load_l2?"),
        ("latency/barrier", GONE, "/latency/barrier: missing (cycles)"),
        ("scalar/exp2/unit", GONE, "/scalar/exp2/unit: missing"),
        ("scalar/exp2", GONE, "/scalar/exp2: missing: instructions per SM and cycle"),
        (
            "scalar/exp2/unit",
            "sfu",
            "/scalar/exp2/unit: 'sfu': input should be 'issue', 'fma', 'alu', 'mufu'",
        ),
        ("scalar/exp2/unit", "issue", "/scalar/exp2/unit: every instruction takes an issue slot"),
        # Types and ranges.
        ("name", GONE, "/name: missing"),
        ("name", "My Card", "/name: 'My Card': string should match pattern"),
        ("architecture", "hopper", "/architecture: 'hopper': string should match pattern"),
        ("sm_count/value", 0, "/sm_count/value: 0: input should be greater than or equal to 1 (streaming"),
        ("sm_count/value", 132.0, "/sm_count/value: 132.0: input should be a valid integer"),
        ("sm_count/value", True, "/sm_count/value: True: input should be a valid integer"),
        ("sm_count/value", "132", "/sm_count/value: '132': input should be a valid integer"),
        (
            "clock_mhz/value",
            1.98e9,
            "/clock_mhz/value: 1980000000.0: input should be less than or equal to 10000",
        ),
        ("clock_mhz/value", float("nan"), "/clock_mhz/value: nan: input should be"),
        (
            "dram_bandwidth/value",
            4800,
            "/dram_bandwidth/value: 4800: input should be greater than or equal to",
        ),
        ("tensor/bf16/value", -1, "/tensor/bf16/value: -1: input should be greater than or equal to"),
        (
            "latency/barrier/value",
            "30",
            "/latency/barrier/value: '30': input should be a valid number (cycles)",
        ),
        # What has to hold between figures.
        ("tensor/bf16/value", 4096, "/tensor/bf16: 132 SMs x 2 x 4096 at 1830 MHz are 1979 TFLOP/s, but"),
        (
            "dense_tflops/f16/value",
            1979,
            "/tensor/f16: 132 SMs x 2 x 2048 at 1830 MHz are 989.4 TFLOP/s, but",
        ),
        ("dense_tflops/i8", GONE, "/dense_tflops/i8: missing: the vendor's dense figure"),
        ("tensor/tf32", GONE, "/tensor/tf32: missing: dense_tflops states a figure for it"),
        ("tensor/bf16", GONE, "/tensor/bf16: missing: dense_tflops states a figure for it"),
        ("emit_target", GONE, "/refusal: missing: without emit_target, say why"),
        ("refusal", "no", "/refusal: stands beside emit_target"),
        ("emit_target", "sm_100", "/emit_target: sm_100 is not the card's architecture, sm_90"),
        ("sustained_clock_mhz/value", 2000, "/sustained_clock_mhz: 2000 exceeds clock_mhz, 1980"),
        ("clock_mhz/value", 1800, "/rated_clock_mhz: 1830 exceeds clock_mhz, 1800"),
        ("scalar/add/value", 256, "/scalar/add: 256 exceeds what the schedulers issue, 128 a cycle"),
        (
            "setmaxnreg_max_registers/value",
            236,
            "/setmaxnreg_max_registers: 236 is not a multiple of register_gran",
        ),
        (
            "setmaxnreg_max_registers/value",
            256,
            "/setmaxnreg_max_registers: 256 exceeds max_registers_per_thread",
        ),
        (
            "setmaxnreg_max_registers/value",
            16,
            "/setmaxnreg_min_registers: 24 exceeds setmaxnreg_max_registers, 16",
        ),
        ("registers_per_sm/value", 16384, "/registers_per_sm: 16384 do not hold a full block's 24576"),
        (
            "max_warps_per_block/value",
            30,
            "/max_warps_per_block: 30 is not a multiple of warps_per_warpgroup, 4",
        ),
        ("max_warps_per_sm/value", 16, "/max_warps_per_block: 32 exceeds max_warps_per_sm, 16"),
        ("schedulers_per_sm/value", 8, "/warps_per_warpgroup: 4 is not a multiple of schedulers_per_sm, 8"),
        (
            "shared_memory_per_block_bytes/value",
            233472,
            "/shared_memory_per_block_bytes: 233472 and the reserved",
        ),
        (
            "dram_sustained_bandwidth/value",
            5e12,
            "/dram_sustained_bandwidth: 5e+12 exceeds dram_bandwidth, 4.8e+12",
        ),
        ("l2_bandwidth/value", 1e12, "/l2_bandwidth: 1e+12 is below dram_bandwidth, 4.8e+12"),
        ("l2_bytes/value", 2**40, "/l2_bytes/value: 1099511627776: input should be less than"),
        ("mma_columns_step/value", 24, "/mma_columns_max: 256 is not a multiple of mma_columns_step, 24"),
        (
            "sms_per_gpc/value",
            0,
            "/sms_per_gpc/value: 0: input should be greater than or equal to 1 (SMs that",
        ),
        ("joint_warpgroups_loss/value", 1.5, "/joint_warpgroups_loss/value: 1.5: input should be less than"),
        (
            "power_cycles_per_l2_byte/value",
            -1,
            "/power_cycles_per_l2_byte/value: -1: input should be greater",
        ),
        (
            "power_cycles_per_dram_byte",
            GONE,
            "/power_cycles_per_dram_byte: missing (energy of a byte of device memory, in cycles of the tensor",
        ),
        (
            "power_clock_mhz/value",
            0,
            "/power_clock_mhz/value: 0: input should be greater than or equal to 1 (",
        ),
        ("power_idle", GONE, "/power_idle: missing (energy of a cycle of the SM by itself, in cycles of"),
        ("power_idle/value", -0.1, "/power_idle/value: -0.1: input should be greater than or equal to 0 ("),
        (
            "copy_knee/value",
            0.5,
            "/copy_knee/value: 0.5: input should be greater than or equal to 1 (exponent",
        ),
        ("copy_queue", GONE, "/copy_queue: missing (how much longer a copy takes on a path that is always"),
        (
            "sector_split_factor/value",
            0.9,
            "/sector_split_factor/value: 0.9: input should be greater than or equal to 1 (how much more a",
        ),
        ("l2_sector_bytes/value", 48, "/l2_line_bytes: 128 is not a multiple of l2_sector_bytes, 48"),
        # Figures that cards had once.
        ("wave_tail_cycles", figure(1500), "/wave_tail_cycles: unknown key"),
        ("power_cycles_per_tensor_cycle", figure(0.1), "/power_cycles_per_tensor_cycle: unknown key"),
        (
            "scalar_alone/exp2",
            GONE,
            "/scalar_alone/exp2: missing: instructions per SM and cycle of one warpgroup",
        ),
        ("tile_start/row_max", GONE, "/tile_start/row_max: missing: cycles of the tile operation"),
        ("tile_alone/row_mx", figure(1), "/tile_alone/row_mx: unknown key; did you mean row_max?"),
        ("tile_crowded/row_sum/value", -1, "/tile_crowded/row_sum/value: -1: input should be greater than"),
        (
            "l2_distinct_bandwidth/value",
            3e13,
            "/l2_distinct_bandwidth: 3e+13 exceeds l2_bandwidth, 1.979e+13",
        ),
        ("latency/tma_load_l2/value", 2000, "/latency/tma_load_l2: 2000 exceeds latency/tma_load_dram, "),
    ],
)
def test_one_change_is_one_fault(tmp_path: Path, place: str, value: Any, expected: str) -> None:
    found = faults(write_toml(tmp_path / "card.toml", changed(place, value)))
    assert len(found) == 1
    assert found[0].startswith(expected)


def test_a_card_needs_both_16_bit_rates(tmp_path: Path) -> None:
    card = changed("tensor/f16", GONE)
    del card["dense_tflops"]["f16"]
    found = faults(write_toml(tmp_path / "card.toml", card))
    assert found == ["/tensor/f16: missing: multiply-adds per SM and cycle"]


def test_keys_are_escaped_in_pointers(tmp_path: Path) -> None:
    card = {**whole_card(), "a/b~c": figure(1)}
    assert faults(write_toml(tmp_path / "card.toml", card)) == ["/a~1b~0c: unknown key"]


def test_all_faults_are_reported_together(tmp_path: Path) -> None:
    card = changed("sm_count/value", 0)
    card["tensor"]["bf16"] = 2048
    card["clock_mhz"]["value"] = 1800
    card["l2_bandwidth"]["value"] = 1e12
    card["sm_cuont"] = 1
    found = faults(write_toml(tmp_path / "card.toml", card))
    places = {fault.split(":")[0] for fault in found}
    assert places == {"/tensor/bf16", "/sm_cuont", "/sm_count/value", "/rated_clock_mhz", "/l2_bandwidth"}
    assert len(found) == 5


def test_a_file_may_state_only_what_differs(tmp_path: Path) -> None:
    shipped = load_machine("h100_sxm")
    path = tmp_path / "mine.toml"
    path.write_text(
        'base = "h100_sxm"\nname = "mine"\ntitle = "A measured H100"\n'
        'kernel_launch_us = { value = 2.5, source = "measured: this card, 2026-11" }\n'
        '[latency]\nbarrier = { value = 41, source = "measured: this card, 2026-11" }\n'
    )
    mine = load_machine(path)
    assert (mine.kernel_launch_us, mine.latency.barrier) == (2.5, 41)
    assert mine.tensor == shipped.tensor
    assert mine.latency.smem_load == shipped.latency.smem_load
    assert set(shipped.assumed()) - set(mine.assumed()) == {"kernel_launch_us", "latency.barrier"}


def test_bases_have_bases(tmp_path: Path, h200: Machine) -> None:
    """h200 is based on the card before it was measured, and that on its architecture: the nearest figure counts."""
    rated = read_tables("h200_rated", RATED / "h200_rated.toml")
    under = read_tables("sm_90", ARCHITECTURES / "sm_90.toml")
    own = tomllib.loads((DATA / "h200.toml").read_text(encoding="utf-8"))
    assert own["base"] == "h200_rated"
    assert h200.l2_bandwidth == own["l2_bandwidth"]["value"] != rated["l2_bandwidth"]["value"]
    assert h200.scalar["exp2"] == own["scalar"]["exp2"]["value"]
    assert "sustained_clock_mhz" not in own
    assert "sustained_clock_mhz" not in under
    assert h200.sustained_clock_mhz == rated["sustained_clock_mhz"]["value"]
    assert h200.power_idle == under["power_idle"]["value"]
    path = tmp_path / "mine.toml"
    path.write_text('base = "h200_rated"\nname = "mine"\ntitle = "Mine"\n')
    assert load_machine(path).l2_bandwidth == rated["l2_bandwidth"]["value"]


def test_a_card_before_it_was_measured_is_no_card_by_name() -> None:
    with pytest.raises(InputError, match=r"no machine of this name \(known: b200, "):
        load_machine("h200_rated")


def test_a_file_does_not_inherit_a_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('base = "h200"\n')
    assert faults(path) == ["/name: missing", "/title: missing"]


def test_a_refusal_replaces_the_target_of_the_base(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('base = "h200"\nname = "mine"\ntitle = "Mine"\nrefusal = "not today"\n')
    assert load_machine(path).emit_target is None


@pytest.mark.parametrize("base", ['"h2000"', "3", '"../h200"'])
def test_an_unknown_base_is_named(tmp_path: Path, base: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f"base = {base}\n")
    assert re.match(r"/base: no card or architecture .*known: b200, .*sm_90", faults(path)[0])


def test_syntax_errors_give_the_line(tmp_path: Path) -> None:
    path = tmp_path / "card.toml"
    path.write_text('name = "mine"\nsm_count = { value = \n')
    assert re.match(r"not TOML: .*line 2", faults(path)[0])


def test_unreadable_files(tmp_path: Path) -> None:
    assert faults(tmp_path / "none.toml") == ["cannot be read: No such file or directory"]
    assert faults(tmp_path) == ["cannot be read: Is a directory"]
    binary = tmp_path / "card.toml"
    binary.write_bytes(b'name = "\xff"')
    assert faults(binary) == ["not UTF-8 text: invalid start byte at byte 8"]


def test_an_empty_file_lists_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "card.toml"
    path.write_text("")
    found = faults(path)
    assert "/sm_count: missing (streaming multiprocessors)" in found
    assert "/tensor: missing" in found
    assert not [fault for fault in found if "scalar_unit" in fault or "sources" in fault]


@pytest.mark.parametrize(
    ("name", "nearest"), [("H200", "h200"), ("h100", "h100_pcie or h100_sxm"), ("rtx5090", "rtx_5090")]
)
def test_unknown_names_list_the_nearest_and_all(name: str, nearest: str) -> None:
    with pytest.raises(
        InputError, match=rf"no machine of this name; did you mean ({nearest})\? \(known: b200, b300"
    ):
        load_machine(name)


def test_a_name_near_to_nothing() -> None:
    with pytest.raises(InputError, match=r"no machine of this name \(known: b200, "):
        load_machine("quantum")
