"""HammingMesh's dense GPT-3 and ResNet-152 on a cluster each, by hand counts; figure 15's products."""

import json

import pytest

from rostam_py.reproduction import experiments_in

KNOWN = experiments_in()
N_A = 4 * 2048 * 12288
pytestmark = pytest.mark.always


def test_gpt3_exposes_four_rings_of_four_at_the_links_that_a_ring_has(monkeypatch):
    """2 x 3/4 N_A each, at 200 GB/s below a leaf and at 100 over the two row links of a 1 x 1 board."""
    module = KNOWN["hammingmesh_gpt3"].load()
    bandwidths = {"75% tapered tree": 200e9, "2D HyperX (as Hx1Mesh)": 100e9}
    monkeypatch.setattr(module, "CLUSTERS", bandwidths)
    figures = {one.name: one for one in module.figures()}
    for name, bandwidth in bandwidths.items():
        by_hand = 31.8 + 4 * 1.5 * N_A / bandwidth * 1e3
        assert float(figures[name].ours) == pytest.approx(by_hand, rel=0.004)  # embedding, head and starts of messages
        assert figures[name].is_met is False


def test_resnet152_exposes_less_than_one_ring_and_computes_in_proportion_to_samples(monkeypatch):
    module = KNOWN["hammingmesh_resnet152"].load()
    monkeypatch.setattr(module, "CLUSTERS", ("nonblocking tree",))
    rows = module.compare(names=("ring",))
    assert [row["degree"] for row in rows] == [256, 512, 1024]
    one_ring = 2 * 24.1e6 / 200e9 * 1e3 + 2 * 1023 * 200e-9 * 1e3
    for row in rows:
        assert 0.1 < row["ring"] - 108 * 1024 / row["degree"] < one_ring
    met = {one.name: one.is_met for one in module.figures()}
    assert met["nonblocking tree, D = 1,024"]
    assert not met["nonblocking tree, D = 1,024: exposed communication"]


def test_a_cluster_is_weighed_by_its_price_and_its_overhead():
    study = KNOWN["hammingmesh_fig15"]
    kept = json.loads((study.folder / "points.json").read_text())["points"]
    shown = {one.name: one.ours for one in study.load().figures(study.folder / "points.json")}
    # Table II: 25.3 and 5.4 M$.
    by_hand = 25.3 * kept["GPT-3 | nonblocking tree"] / (5.41 * kept["GPT-3 | Hx2Mesh"])
    assert float(shown["GPT-3: Hx2Mesh"]) == pytest.approx(by_hand, rel=0.01)
    assert shown["CosmoFlow: nonblocking tree"] == "1.00"
