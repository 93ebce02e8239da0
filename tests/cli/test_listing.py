"""``rostam list``: quantities in the units that data sheets use."""

import json

from rostam_py.cli.main import main


def test_memory_bandwidth_is_given_in_bytes(capsys):
    assert main(["list", "accelerators", "--json"]) == 0
    rows = {row["accelerator"]: row for row in json.loads(capsys.readouterr().out)["accelerators"]}
    assert rows["a100_80gb"]["memory bandwidth"] == "2.039 TB/s"
