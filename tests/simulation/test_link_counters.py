"""Loads of links as counters of a timeline: against the engine's own count, folded and not."""

import json

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError, DeadlockError

SHAPE = {"pp": 4, "dp": 4, "num_microbatches": 3, "act_bytes": 10**6, "grad_bytes": 10**7}


@pytest.fixture
def plan(hand_plan):
    """Return four stages on a torus of 16."""
    return hand_plan(rostam.fabric("torus", dims=(4, 4), link_bandwidth=1e10), **SHAPE)


def drawn(result, path):
    """Times [us] and rates of each counter of a saved timeline, by name."""
    result.save_timeline(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    (process,) = (one["pid"] for one in events if one["ph"] == "M" and one["args"]["name"] == "load of links")
    found = {}
    for one in events:
        if one["ph"] == "C" and one["pid"] == process:
            found.setdefault(one["name"], []).append((one["ts"], one["args"]["bytes_per_s"]))
    return {name: np.array(steps).T for name, steps in found.items()}


@pytest.mark.parametrize("fold", [True, False])
def test_counters_add_up_to_what_links_carried_and_change_nothing(plan, tmp_path, fold):
    how = {"fold": fold, "min_iterations": 3, "max_iterations": 3}
    alone, result = rostam.simulate(plan, **how), rostam.simulate(plan, timeline=True, **how)
    assert result.iteration_times_s == alone.iteration_times_s
    np.testing.assert_array_equal(result.link_bytes, alone.link_bytes)
    assert alone.link_counters == ()
    counters = drawn(result, tmp_path / "t.json")
    assert 0 < len(counters) <= 8
    assert len(counters) == len(result.link_counters)
    for one, (time_us, rate) in zip(result.link_counters, counters.values(), strict=True):
        # The steps of the last iteration, each until the next, are the bytes that the engine counted in it.
        assert time_us[0] == 0.0
        assert time_us[-1] <= result.iteration_time_s * 1e6 * (1 + 1e-9)
        assert rate[-1] == 0.0
        carried = float((rate[:-1] * np.diff(time_us)).sum()) * 1e-6
        assert carried == pytest.approx(result.link_bytes[one.link], rel=1e-6)
        assert rate.max() <= 1e10 * (1 + 1e-6)
    busiest = result.busiest_links(1)[0]
    assert result.link_bytes[result.link_counters[0].link] == pytest.approx(busiest.num_bytes)


def test_a_counter_follows_the_messages_of_a_pipeline(tmp_path, hand_plan):
    # Two stages on two accelerators, 10 MB at 10 GB/s: 1 ms forwards, 1 ms backwards, no gradients. The two links are
    # not alike: one carries the first, the other the second.
    fabric = rostam.fabric("electrical_flat", num_accelerators=2, link_bandwidth=1e10)
    result = rostam.simulate(
        hand_plan(fabric, pp=2, dp=1, num_microbatches=1, act_bytes=10**7, grad_bytes=0), timeline=True
    )
    for time_us, rate in drawn(result, tmp_path / "t.json").values():
        lengths = np.diff(time_us)
        assert lengths[rate[:-1] > 0.99e10].sum() == pytest.approx(1000, abs=4)  # readings are 2 us apart
        assert (rate[:-1] * lengths).sum() * 1e-6 == pytest.approx(10**7)


def test_a_counter_shows_the_rates_on_both_sides_of_a_change_under_way(tmp_path, hand_plan):
    # The first stage sends 10 MB from 1 ms on, at 10 GB/s until 1.4 ms; 6 MB are left for 5 GB/s, which takes 1.2 ms.
    fabric = rostam.fabric("electrical_flat", num_accelerators=2, link_bandwidth=1e10)
    (link,) = np.flatnonzero(fabric.links["src"] == 0)
    plan = hand_plan(fabric, pp=2, dp=1, num_microbatches=1, act_bytes=10**7, grad_bytes=0)
    events = [rostam.LinkBandwidth("1.4 ms", int(link), 0.5)]
    result = rostam.simulate(plan, timeline=True, events=events, max_iterations=1)
    place = [one.link for one in result.link_counters].index(link)
    time_us, rate = list(drawn(result, tmp_path / "t.json").values())[place]
    lengths = np.diff(time_us)
    assert lengths[rate[:-1] > 0.99e10].sum() == pytest.approx(400, abs=4)
    assert lengths[np.abs(rate[:-1] - 5e9) < 1e8].sum() == pytest.approx(1200, abs=4)


def test_a_run_that_stands_still_ends_with_its_error(plan):
    stop = [rostam.LinkBandwidth("1 us", link, 0.0) for link in range(64)]
    with pytest.raises(DeadlockError, match="stalled on links of capacity 0"):
        rostam.simulate(plan, events=stop, timeline=True)


def test_wrong_parameters_are_refused(plan):
    with pytest.raises(ConfigError, match="num_links is 0 < 1"):
        rostam.simulate(plan, controllers=[("link_load", {"bytes_per_s": [1.0], "num_links": 0})])
