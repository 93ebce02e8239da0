"""Two runs compared: rows by hand, sums that agree, configurations that differ, folders that are no runs."""

import json

import pytest

from rostam_py.errors import ConfigError
from rostam_py.report.run.comparison import Side, comparison, flat_config, load_side

A = {
    "model": "m", "fabric": "torus, 4 accelerators", "num_accelerators": 4, "global_batch": 8,
    "iteration_time_s": 2.0, "first_iteration_s": 2.5, "samples_per_s": 4.0, "mfu": 0.4, "hfu": 0.5,
    "breakdown_s": {"compute": 1.5, "tp": 0.5, "bubble": 0.0},
    "critical_path_s": {"compute": 1.25, "tp": 0.75},
    "critical_tasks": [{"kind": "compute", "name": "forward", "count": 2, "duration_s": 1.0}],
    "bytes_sent": {"tp": 100, "pp": 0},
    "memory_bytes": 30, "memory_parts_bytes": {"parameters": 10, "gradients": 20}, "network_usd": 1000.0,
}  # fmt: skip
B = A | {
    "iteration_time_s": 3.0, "global_batch": 24, "breakdown_s": {"compute": 1.0, "dp": 2.0},
    "critical_path_s": {"compute": 1.0, "dp": 2.0}, "bytes_sent": {"dp": 50}, "network_usd": None,
    "critical_tasks": [{"kind": "dp", "name": "reduce", "count": 1, "duration_s": 2.0}],
    "memory_bytes": 45, "memory_parts_bytes": {"parameters": 10, "gradients": 35},
    "time_to_accuracy": {"time_s": 60.0},
}  # fmt: skip


def compared(a=A, b=B, config_a=None, config_b=None):
    return comparison(Side("a", a, config_a or {}), Side("b", b, config_b or {}))


def rows(document, section):
    return {row["name"]: (row["a"], row["b"], row["difference"], row["ratio"]) for row in document[section]}


def test_rows_hold_both_figures_their_difference_and_ratio():
    found = compared()
    assert rows(found, "time_s") == {
        "iteration": (2.0, 3.0, 1.0, 1.5), "first iteration": (2.5, 2.5, 0.0, 1.0),
        "per sample": (0.25, 0.125, -0.125, 0.5), "to accuracy": (None, 60.0, None, None),
    }  # fmt: skip
    assert rows(found, "memory_bytes") == {
        "parameters": (10, 10, 0, 1.0), "gradients": (20, 35, 15, 1.75), "fullest device": (30, 45, 15, 1.5),
    }  # fmt: skip
    assert rows(found, "usd") == {"network": (1000.0, None, None, None)}


def test_rounding_of_means_is_no_difference():
    found = compared(b=A | {"iteration_time_s": 2.0 * (1 + 4e-16), "first_iteration_s": 2.5 * (1 + 1e-11)})
    differences = {name: row[2] for name, row in rows(found, "time_s").items()}
    assert differences["iteration"] == 0.0
    assert differences["first iteration"] == pytest.approx(2.5e-11, rel=1e-3)


def test_a_kind_that_one_side_lacks_took_no_time_there_and_differences_sum_to_that_of_the_iteration():
    found = compared()
    assert rows(found, "breakdown_s") == {
        "compute": (1.5, 1.0, -0.5, 1 / 1.5), "tp": (0.5, 0.0, -0.5, 0.0), "dp": (0.0, 2.0, 2.0, None),
    }  # fmt: skip
    assert rows(found, "bytes_sent") == {"tp": (100, 0.0, -100.0, 0.0), "dp": (0.0, 50, 50.0, None)}
    for section in ("breakdown_s", "critical_path_s"):
        assert sum(row["difference"] for row in found[section]) == pytest.approx(1.0)


def test_a_critical_task_that_one_side_does_not_list_is_unknown_there():
    assert rows(compared(), "critical_tasks_s") == {
        "compute: forward": (1.0, None, None, None), "dp: reduce": (None, 2.0, None, None),
    }  # fmt: skip


def test_a_run_compared_with_itself_differs_in_nothing():
    found = compared(A, A, {"seed": 0}, {"seed": 0})
    assert found["configuration"] == []
    sections = [name for name in found if name not in ("a", "b", "configuration")]
    assert all(row["difference"] == 0 and row["ratio"] == 1 for name in sections for row in found[name])


def test_configurations_are_compared_by_what_is_simulated():
    one = {"seed": 0, "strategy": {"tp": 1, "pp": 1}, "fabric": {"radix": 8, "board": None}, "out": "x", "report": True}
    other = {"seed": 0, "strategy": {"tp": 2, "pp": 1}, "fabric": {"dims": [4, 4]}, "out": "y", "report": False}
    found = compared(
        config_a=flat_config(one, {"fabric": "fat_tree"}), config_b=flat_config(other, {"fabric": "torus"})
    )
    assert [tuple(row.values()) for row in found["configuration"]] == [
        ("fabric", "fat_tree", "torus"), ("fabric.dims", None, [4, 4]), ("fabric.radix", 8, None),
        ("strategy.tp", 1, 2),
    ]  # fmt: skip


def test_a_folder_is_read(tmp_path):
    (tmp_path / "result.json").write_text(json.dumps(A))
    (tmp_path / "config.yaml").write_text("seed: 3\nfabric:\n  dims: [2, 2]\nout: here\n")
    (tmp_path / "run.json").write_text("{}")
    side = load_side(tmp_path)
    assert (side.name, side.result) == (str(tmp_path), A)
    assert side.config == {"seed": 3, "fabric.dims": [2, 2], "fabric": "torus"}
    (tmp_path / "run.json").write_text('{"choices": {"fabric": "hyper_torus", "cost": "constant"}}')
    assert load_side(tmp_path).config["fabric"] == "hyper_torus"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [("result.json", None, "result.json is missing"), ("result.json", "{", "result.json is damaged"),
     ("config.yaml", "a: [", "config.yaml is damaged"), ("run.json", "[]", "run.json is damaged")],
)  # fmt: skip
def test_a_folder_that_is_no_run_is_refused(name, text, words, tmp_path):
    for file, content in (("result.json", "{}"), ("config.yaml", "seed: 0"), ("run.json", "{}")):
        (tmp_path / file).write_text(content)
    if text is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=words):
        load_side(tmp_path)
