"""Keys of packets on the command line: read, refused where nothing is a packet, and without trace where unset."""

import json

import pytest

from rostam_py.cli.main import main
from rostam_py.spec.build import simulation_options
from rostam_py.spec.settings import complete_settings
from rostam_py.sweep.identity import point_key

COLLECTIVE = ["collective", "fabric=torus", "fabric.dims=[4,4]", "sizes.list=[1 MiB]", "algorithm=ring"]


def time_of(capsys, *overrides):
    assert main([*COLLECTIVE, *overrides, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    return document["rows"][0]["time_s"], document


def test_a_collective_takes_packets_and_says_which(capsys):
    plain, document = time_of(capsys, "fidelity=packet")
    assert "packets" not in document
    # Store and forward: each of 30 steps waits for whole packets at what forwards.
    late, document = time_of(capsys, "fidelity=packet", "packets.flit_bytes=8192 B", "packets.buffer_latency=1 us")
    assert late > plain
    assert document["packets"]["buffer_latency"] == pytest.approx(1e-6)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["fidelity=packet", "packets.buffer_bytes=32"], "packets.buffer_bytes is 32, a number without a unit"),
        (["fidelity=packet", "packets.buffer_bytes=1 kB"], "packets.buffer_bytes is '1 kB'; it must hold a packet"),
        (["fidelity=packet", "packets.num_vcs=0"], "packets.num_vcs is 0; it must be an integer from 1 to 1024, or"),
        (["fidelity=packet", "packets.speed=2"], "unknown key 'packets.speed'"),
        (["fidelity=packet", "tolerance=0.1"], "this engine is exact only"),
        (["packets.buffer_bytes=1 MiB"], "packets.buffer_bytes is set, but this fidelity moves whole messages"),
        (["fidelity=analytic", "packets.num_vcs=2"], "fidelity='analytic' knows neither"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(overrides, said, capsys):
    assert main([*COLLECTIVE, *overrides]) == 2
    assert said in capsys.readouterr().err


def test_points_of_sweeps_carry_them_and_keep_their_identity_without():
    base = {"model": "gpt_125m", "fabric": {"name": "torus", "dims": [4, 4]}, "fidelity": "packet"}
    plain = complete_settings(base)
    assert "packets" not in plain
    assert point_key(complete_settings({**base, "packets": {"num_vcs": None}})) == point_key(plain)
    small = complete_settings({**base, "packets": {"buffer_bytes": "1 MiB"}})
    assert point_key(small) != point_key(plain)
    assert simulation_options(small).packets.to_dict()["buffer_bytes"] == 2**20
