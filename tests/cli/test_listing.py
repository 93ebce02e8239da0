"""``rostam list``: quantities in the units that data sheets use."""

import json

from rostam_py.cli.main import main
from rostam_py.plan.strategy import AXES, INNER_AXES


def test_memory_bandwidth_is_given_in_bytes(capsys):
    assert main(["list", "accelerators", "--json"]) == 0
    rows = {row["accelerator"]: row for row in json.loads(capsys.readouterr().out)["accelerators"]}
    assert rows["a100_80gb"]["memory bandwidth"] == "2.039 TB/s"


def test_every_axis_of_a_strategy_is_explained_in_a_line(capsys):
    assert main(["list", "strategies", "--json"]) == 0
    rows = {row["axis"]: row for row in json.loads(capsys.readouterr().out)["strategies"]}
    assert set(rows) == {f"strategy.{axis}" for axis in (*AXES, *INNER_AXES, "mp")}
    assert rows["strategy.cp"]["placer"] == rows["strategy.ep"]["placer"] == "megatron"
    assert rows["strategy.dp"]["placer"] == "megatron, sip_ml"
    assert all(row["what"] for row in rows.values())
