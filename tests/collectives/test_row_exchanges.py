"""Exchanges of experts' rows that go once to each server and rank: shares of links by hand, and what they miss.

Source of the rates: deepseek-ai/DeepEP, docs/README_Hybrid-EP.md and docs/legacy.md (calibration/measured).
"""

import math
from math import comb

import numpy as np
import pytest

import rostam_py as rostam
from calibration import row_exchanges
from rostam_py.collectives.group_costs import group_costs
from rostam_py.collectives.rank_groups import ScheduleKey
from rostam_py.collectives.row_exchanges import CONSTANTS, DISPATCHERS, read_dispatchers, row_overhead
from rostam_py.collectives.transport import PLAIN, transport
from rostam_py.fabrics.link_classes import LINK_CLASSES


def test_constants_are_found_again(tmp_path):
    row_exchanges.write(tmp_path / "found.json")
    assert (tmp_path / "found.json").read_text() == CONSTANTS.read_text()
    assert read_dispatchers(tmp_path / "found.json") == DISPATCHERS


def test_shares_are_those_of_printed_rates():
    # GB200, 8 and 24 ranks of one NVLink domain: rates count a rank's own rows, which cross no link.
    rates = [750.15 * 7 / 8, 684.27 * 7 / 8, 637.80 * 23 / 24, 565.53 * 23 / 24]
    share = math.prod(rate / 900 for rate in rates) ** 0.25
    assert DISPATCHERS["hybridep"].share("inside", "nvlink5") == pytest.approx(share, rel=1e-3)
    # 32 H100, 4 servers: what goes to a rank's own server is counted, 3 of 4 parts cross its NIC of 50 GB/s.
    share = math.sqrt(57.69 * 57.46) * 3 / 4 / 50
    assert DISPATCHERS["hybridep"].share("between", "infiniband") == pytest.approx(share, rel=1e-3)
    # 16 H100: rows for 2 servers in the time that the printed rate says; inside them 7 of 8 rows for 16 ranks go on.
    servers = 2 * (1 - comb(64, 8) / comb(128, 8))
    ranks = 16 * (1 - comb(120, 8) / comb(128, 8))
    share = math.sqrt(71.71 * 62.95) / servers * ranks * 7 / 8 / 450
    assert DISPATCHERS["hybridep"].share("relay", "nvlink4") == pytest.approx(share, rel=1e-3)


@pytest.mark.parametrize(
    ("dispatcher", "place", "mean", "worst"),
    [("hybridep", "inside", 0.06, 0.125), ("hybridep", "between", 0.03, 0.06), ("deepep", "between", 0.03, 0.04)],
)
def test_what_was_not_fitted_is_missed_by_little(dispatcher, place, mean, worst):
    misses = [abs(one["error"]) for one in DISPATCHERS[dispatcher].held_out if one["place"] == place]
    assert len(misses) >= 2
    assert np.mean(misses) <= mean
    assert max(misses) <= worst


def test_an_exchange_takes_its_rows_over_the_share():
    # 4,096 tokens of 7,168 in 16 bits, 8 of 64 experts on 8 B200s: the published kernels took 434 and 473 us.
    fabric = rostam.machine("dgx_b200", servers=1).fabric
    rows = round(4096 * 7168 * 2 * 8 * (1 - comb(56, 8) / comb(64, 8)))
    key = ScheduleKey("all_to_all", "direct", 8, protocol="hybridep inside")
    how = transport(fabric, key, rows)
    assert (how.startup_s, how.server_rate) == (0.0, math.inf)
    took = group_costs(fabric, "all_to_all", "direct", np.arange(8)[None, :]).time_s(rows, how)
    assert took == pytest.approx(rows * 7 / 8 / (900e9 * DISPATCHERS["hybridep"].share("inside", "nvlink5")), rel=0.01)
    assert 434e-6 < took < 473e-6


def test_links_without_rates_go_as_those_that_have_them():
    hybrid = DISPATCHERS["hybridep"]
    assert {hybrid.share("inside", link) for link in ("nvlink3", "nvlink4_xla")} == {hybrid.share("inside", "nvlink4")}
    assert hybrid.share("between", "nvlink5") == hybrid.share("between", "infiniband")
    classes = rostam.fabric("fat_tree", num_accelerators=16, server_size=8).config.link_classes
    assert row_overhead(classes, "hybridep inside") == row_overhead(classes, "hybridep between") == 1
    links = rostam.machine("dgx_h100", servers=2).fabric.config.link_classes
    share = LINK_CLASSES.get("infiniband").share
    assert row_overhead(links, "deepep between") == share / DISPATCHERS["deepep"].share("between", "infiniband")


def test_ideal_links_start_at_once():
    fabric = rostam.fabric("fat_tree", num_accelerators=16, server_size=8)
    assert transport(fabric, ScheduleKey("all_to_all", "direct", 8), 10**6) == PLAIN


@pytest.mark.parametrize("name", DISPATCHERS)
def test_every_class_of_links_has_a_share_at_every_place(name):
    for link in LINK_CLASSES:
        if link != "ideal":
            assert all(0 < DISPATCHERS[name].share(place, link) < 1 for place in ("inside", "relay", "between")), link
