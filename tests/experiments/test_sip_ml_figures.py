"""SiP-ML's figures 5 to 10, table 1 and abstract: which claims the kept points meet, and that they are current."""

import dataclasses
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest

FIGURES = (
    *(f"sip_ml_fig{number}" for number in range(5, 11)), "sip_ml_table1", "sip_ml_abstract", "sip_ml_ring",
)  # fmt: skip


@pytest.fixture(scope="module")
def figure(load_experiment):
    """Return a function: an experiment's module and its kept points, without searching."""
    loaded = {}

    def load(name):
        if name not in loaded:
            module = load_experiment(name)
            loaded[name] = module, module.SearchedPoints(module.POINTS, module.COMMAND, enable_search=False)
        return loaded[name]

    return load


def _by_claim(figure, name, *keys):
    module, points = figure(name)
    return {(row["claim"], *(row[key] for key in keys)): row["is_met"] for row in module.compare(points)}


@pytest.mark.parametrize("name", FIGURES)
def test_every_table_is_printed_from_kept_points(name, figure, monkeypatch, capsys):
    module, points = figure(name)
    monkeypatch.setattr(module, "SearchedPoints", lambda *_: points)
    module.main()
    assert "|" in capsys.readouterr().out


def test_figure_5_transformer_under_algorithm_1_meets_all_but_the_optical_ratios(figure):
    met = _by_claim(figure, "sip_ml_fig5", "model", "space")
    missed = {claim for (claim, model, space), is_met in met.items()
              if (model, space) == ("transformer_350m", "paper") and not is_met}  # fmt: skip
    assert len(missed) == 2
    assert {claim.split()[0] for claim in missed} == {"B", "OCS"}


def test_figure_5_elect_flat_is_the_lower_envelope_of_every_panel(figure):
    met = _by_claim(figure, "sip_ml_fig5", "model", "space")
    found = [is_met for (claim, *_), is_met in met.items() if "envelope" in claim]
    assert len(found) == 7
    assert all(found)


def test_figure_5_verdicts_of_the_transformer_and_megatron_are_those_of_every_variant(figure):
    module, points = figure("sip_ml_fig5")
    banded = [row for row in module.compare(points) if "band: " in row["ours"]]
    assert {(row["model"], row["space"]) for row in banded} == {(m, s.name) for m, s in module.BANDED.items()}
    for row in banded:
        met, every = map(int, re.search(r"met in (\d+) of (\d+)", row["ours"]).groups())
        assert every == len(module.VARIANTS[row["model"]])
        assert met == every * row["is_met"] or row["model"] == "resnet50"


def test_figure_5_bands_hold_the_case_as_stated_read_from_as_many_bandwidths(figure):
    # Where the variants have no bandwidth their curves are straight, in logarithms: what they need of B is read higher.
    module, points = figure("sip_ml_fig5")
    curves = module.times(points, module.TRANSFORMER, module.PAPER)
    few = {name: np.where(np.isin(module.BANDWIDTHS, module.FEW_BANDWIDTHS), own, np.nan)
           for name, own in curves.items()}  # fmt: skip
    place = module.BANDWIDTHS.index(module.RATIO_BANDWIDTH)
    exact, read = (module.bandwidth_ratios(one, "SiP-OCS") for one in (curves, few))
    assert exact[place] <= read[place] < 1.08 * exact[place]
    assert np.isnan(read).sum() == sum(one not in module.FEW_BANDWIDTHS for one in module.BANDWIDTHS[:-1])


def test_figure_5_free_batches_are_larger_where_links_are_slower(figure):
    module, points = figure("sip_ml_fig5")
    job, space = next(case for case in module.CASES if case[1] == module.ANY_BATCH and "transformer" in case[0].model)
    batches = [module.point(points, job, space, "SiP-OCS", b)["best"]["batch"] for b in module.FEW_BANDWIDTHS]
    assert batches == sorted(batches, reverse=True)
    assert batches[0] > batches[-1]


def test_figure_5_megatron_gains_most_and_does_not_fit_pure_data_parallelism(figure):
    module, points = figure("sip_ml_fig5")
    gains = {}
    for job, space in module.CASES[:3]:
        curves = module.times(points, job, space)
        gains[job.model] = curves["Elect-Cluster 400"][-1] / curves["SiP-OCS"][-1]
    assert list(gains) == ["resnet50", "transformer_350m", "megatron_18b"]
    assert list(gains.values()) == sorted(gains.values())
    assert gains["megatron_18b"] == pytest.approx(4.98, abs=0.01)
    assert "dp 1024 x mp 1: device 0" in module.point(points, *module.REFUSED, "Elect-Flat", 8_192)["refused"]
    dp = [module.point(points, module.TRANSFORMER, module.PAPER, module.DATA_PARALLEL, b)["best"]["dp"]
          for b in module.BANDWIDTHS]  # fmt: skip
    assert set(dp) == {1_024}


def test_figure_6_with_weights_in_slices_ends_at_sixteen_ways_as_published(figure):
    met = _by_claim(figure, "sip_ml_fig6", "space")
    for name in ("SLICED", "SHARED"):
        space = getattr(figure("sip_ml_fig6")[0], name).name
        assert met["best at 10,000 Gb/s", space]
        assert met["more model parallelism as B grows", space]


def test_figure_6_with_the_batch_searched_begins_with_pure_data_parallelism_as_published(figure):
    met = _by_claim(figure, "sip_ml_fig6", "space")
    assert met["best at 128 Gb/s", figure("sip_ml_fig6")[0].FREE.name]


def test_figure_10_bands_hold_the_case_as_stated(figure):
    module, points = figure("sip_ml_fig10")
    for row in module.compare(points):
        for stated, least, most in re.findall(r"([\d.]+)x \(([\d.]+)x to ([\d.]+)x\)", row["ours"]):
            assert float(least) <= float(stated) <= float(most)
    assert sum(" to " in row["ours"] for row in module.compare(points)) == 3 * 3


def test_bands_hold_the_case_as_stated_and_every_ratio(figure):
    module, points = figure("sip_ml_abstract")
    for model, variants in module.VARIANTS.items():
        for key in module.ratios(points, variants[0]):
            stated, least, most = module.band(points, model, key)
            assert least <= stated <= most
    assert module.band(points, "transformer_350m", "dp over best, flat")[1] == pytest.approx(1.64, abs=0.01)
    assert module.band(points, "megatron_18b", "cluster over OCS")[2] == pytest.approx(6.20, abs=0.01)


def test_break_even_prices_are_those_of_equal_dollars(figure):
    module, points = figure("sip_ml_abstract")
    network = module.break_even_usd(points, "megatron_18b", "OCS")
    stated = module.band(points, "megatron_18b", "cluster over OCS")[0]
    assert (18_625 + network) / stated == pytest.approx(18_625 + 197_680 / 1_024)  # bill_of_materials of the cluster


def test_figure_6_misses_are_as_documented(figure):
    module, points = figure("sip_ml_fig6")
    degrees = {module.point(points, module.PAPER, b)["best"]["mp"] for b in module.BANDWIDTHS}
    assert degrees == {8}
    assert module.gain(points, module.ONE_BUCKET, 8_192) == pytest.approx(1.86, abs=0.01)
    assert module.gain(points, module.FASTEST, 8_192) == pytest.approx(1.65, abs=0.01)
    longer = module.long_point(points, 128)["simulated"]
    order = [entry["mp"] for entry in longer]
    assert order.index(2) < order.index(1) < order.index(8)


def test_figure_6_sixteen_way_groups_lose_by_replicated_parameters(figure):
    # An optimizer step goes with the parameters of a device: a half at twice the degree, if they are divided.
    module, points = figure("sip_ml_fig6")
    eight, sixteen = (module.breakdown(points, mp, "adam") for mp in (8, 16))
    replicated = sixteen["optimizer"] - eight["optimizer"] / 2
    assert sum(sixteen.values()) - replicated < sum(eight.values()) < sum(sixteen.values())


def test_figure_8_gains_little_beyond_twelve_switches(figure):
    met = _by_claim(figure, "sip_ml_fig8", "case")
    free = figure("sip_ml_fig8")[0].FREE.name
    assert all(is_met for (claim, case), is_met in met.items() if "12" in claim and not case.startswith(free))


def test_figure_8_holds_over_compute_speed_and_assumed_shapes(figure):
    module, points = figure("sip_ml_fig8")
    for (space, _), found in module.series(points).items():
        assert len(found) == (len(module.VARIANTS) if space == module.PAPER.name else 1)
        for bests in found:
            early, late, _ = module.ratios(bests)
            assert early > (0.99 if space == module.FREE.name else 1)
            assert late == pytest.approx(1, abs=0.07)


def test_table_1_is_more_sensitive_to_latency_at_512_than_at_32(figure):
    module, points = figure("sip_ml_table1")
    rows = module.compare(points)
    assert len(rows) == 5 * 10
    slow = {
        (r["curve"], r["space"], r["num_accelerators"]): r["own_slowdown"] for r in rows if r["latency"] == "100 us"
    }
    for curve, space in {key[:2] for key in slow}:
        assert slow[curve, space, 512] > slow[curve, space, 32] > 1
    ratios = module.slowdowns(points)
    assert ratios[32] > 1 / 0.64 > ratios[64]  # where the printed table's 32 GPUs lie


def test_figure_7_keeps_all_bytes_in_blocks_and_rings_of_at_most_sixteen_circuits(figure):
    module, points = figure("sip_ml_fig7")
    for case in module.PUBLISHED:
        found = points.points[case.name]
        assert found["elsewhere"] == 0
        assert found["inside"] + found["dp_rings"] == pytest.approx(1)
        assert found["circuit_degree"] == case.k  # k - 1 peers in the block and one on the ring


def test_figure_7_blocks_are_heaviest_near_the_diagonal_only_for_coarser_sub_ops(figure):
    met = _by_claim(figure, "sip_ml_fig7", "case")
    claim = "blocks heaviest near the diagonal"
    assert {case for (what, case), is_met in met.items() if what == claim and is_met} == {
        "k = 16, 16 circuits, 100 us", "k = 16, 16 circuits, 1 ms",
    }  # fmt: skip


def test_figure_7_bands_are_of_seven_placements_each(figure):
    module, points = figure("sip_ml_fig7")
    for case in module.PUBLISHED:
        found = [points.points[one.name] for one in module.varied(case)]
        assert len({tuple(one["inside_by_step"]) for one in found}) >= 4  # variants are other placements
        assert all(one["elsewhere"] == 0 for one in found)


def test_what_two_figures_ask_alike_is_searched_once(load_experiment, monkeypatch, tmp_path):
    module = load_experiment("sip_ml_fig10")
    shared = sys.modules[module.SearchedPoints.__module__]
    asked = []

    def search(where, **keys):
        asked.append(where.fabric.num_accelerators)
        return SimpleNamespace(best=len(asked), simulated=[])

    monkeypatch.setattr(shared, "_FOUND", {})
    monkeypatch.setattr(shared, "describe", lambda candidate, in_full=False: {"number": candidate})
    monkeypatch.setattr(module.SearchedPoints, "searcher", lambda *_: SimpleNamespace(search=search))
    renamed = dataclasses.replace(module.PAPER, name="another")
    found = []
    for name, space, size in (("a", module.PAPER, 4), ("b", renamed, 4), ("c", module.PAPER, 8)):
        points = module.SearchedPoints(tmp_path / f"{name}.json", "")
        where = shared.machine("electrical_flat", "1 Tb/s", num_accelerators=size)
        found.append(points.search("key", module.TRANSFORMER, space, lambda where=where: where)["best"])
    assert found == [{"number": 1}, {"number": 1}, {"number": 2}]
    assert asked == [4, 8]


@pytest.mark.slow
@pytest.mark.parametrize("case", [0, 1])
def test_kept_matrices_are_what_rostam_places(case, figure):
    module, points = figure("sip_ml_fig7")
    again, kept = module.measure(module.PUBLISHED[case]), points.points[module.PUBLISHED[case].name]
    assert again["notes"] == kept["notes"]
    for key in ("inside_by_step", "sent_gb", "dp_rings", "mean_hops", "circuit_degree"):
        assert again[key] == pytest.approx(kept[key], rel=1e-9)


@pytest.mark.slow
def test_kept_searches_are_what_rostam_finds(figure, tmp_path):
    module, kept = figure("sip_ml_fig5")
    fresh = module.SearchedPoints(tmp_path / "points.json", module.COMMAND)
    for fabric in ("Elect-Flat", "SiP-OCS"):
        args = (module.TRANSFORMER, module.PAPER, fabric, 2_048)
        again, old = module.point(fresh, *args)["best"], module.point(kept, *args)["best"]
        assert again["strategy"] == old["strategy"]
        assert again["iteration_s"] == pytest.approx(old["iteration_s"], rel=1e-9)


def test_figure_9_crosses_within_twice_the_printed_delay_at_the_papers_size(figure):
    module, points = figure("sip_ml_fig9")
    found = module.crossing_us(points, module.STATED, module.LARGE_BANDWIDTH, module.LARGE, module.LARGE_DELAYS_US)
    assert module.PRINTED_CROSSING_US / 2 <= found <= module.PRINTED_CROSSING_US * 2


def test_segments_alone_make_the_ring_slower_than_the_ocs(figure):
    module, points = figure("sip_ml_ring")
    for group in module.GROUPS:
        for bandwidth in module.BANDWIDTHS:
            once, placed, finer, shared, free, dark = module.times_ms(points, group, bandwidth)
            assert placed == once
            assert abs(finer / once - 1) < 0.06
            assert once < free <= dark <= shared
            assert shared - finer > 4 * (dark - free)


@pytest.mark.slow
def test_kept_steps_are_what_rostam_simulates(figure, tmp_path):
    module, kept = figure("sip_ml_ring")
    fresh = module.SearchedPoints(tmp_path / "points.json", module.COMMAND)
    assert module.times_ms(fresh, 8, 8_192) == pytest.approx(module.times_ms(kept, 8, 8_192), rel=1e-9)
