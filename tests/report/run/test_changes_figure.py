"""The figure of what changed in the network, from a document by hand."""

from rostam_py.report.run.changes_figure import changes_figure
from rostam_py.simulation.changes import CIRCUITS, FAILED, RESTARTS, Change, changes_detail

MS = 10**9
CHANGES = [
    Change(CIRCUITS, "8 circuits change", 2 * MS, 3 * MS, 8),
    Change(FAILED, "links 6, 7", 5 * MS, 20 * MS, 2),
    Change(RESTARTS, "cut, goes on with iteration 1", 6 * MS, 10 * MS, 1),
]


def document():
    """Return a document with three lanes."""
    return {
        "changes": changes_detail(CHANGES, [0, 10 * MS, 20 * MS]),
        "result": {"restarts": [{"cut_s": 6e-3, "start_s": 10e-3}]},
    }


def test_each_lane_has_its_bars_where_the_changes_were():
    figure = changes_figure(document(), "")
    bars = {bar.name: (list(bar.base), list(bar.x)) for bar in figure.plotly.data}
    assert bars == {CIRCUITS: ([2.0], [1.0]), FAILED: ([5.0], [15.0]), RESTARTS: ([6.0], [4.0])}
    assert len(figure.plotly.layout.shapes) == 3  # begin and ends of iterations
    assert figure.table.rows()[1][:2] == (FAILED, "links 6, 7")
    assert "Between cuts and restarts: 4 ms" in figure.caption


def test_a_run_without_changes_has_no_such_figure():
    assert changes_figure({"changes": None, "result": {}}, "") is None
    assert changes_figure({"result": {}}, "") is None  # a document of before


def test_the_static_figure_names_the_lanes():
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    axes = plt.figure().subplots()
    changes_figure(document(), "").paper(axes)
    assert [tick.get_text() for tick in axes.get_yticklabels()] == [CIRCUITS, FAILED, RESTARTS]
    plt.close("all")
