"""The drawn pipeline: every mark of the document, numbers where they fit, words that say what is shown."""

import copy

import pytest

import rostam_py as rostam
from rostam_py.report.run.figures import run_figures
from rostam_py.simulation.detail import run_detail


@pytest.fixture(scope="module")
def detail():
    """Detail of an interleaved pipeline: two stages of two chunks, four micro-batches."""
    graph = rostam.trace("gpt_125m", num_layers=4)
    fabric = rostam.fabric("fat_tree", num_accelerators=4, radix=4, link_bandwidth="400 Gb/s")
    strategy = rostam.Strategy(dp=2, pp=2, virtual_stages=2, micro_batch=1, precision="bf16_mixed")
    plan = rostam.place(graph, rostam.Machine(fabric=fabric), global_batch=8, strategy=strategy, software="ideal")
    return run_detail(rostam.simulate(plan, timeline=True))


def figure_of(detail):
    return next((figure for figure in run_figures(detail, "p") if figure.name == "p-pipeline"), None)


def colours_of(figure):
    return {bar.name: bar.marker.color for bar in figure.plotly.data}


def test_every_mark_is_a_bar_of_its_phase_and_chunk(detail):
    figure, marks = figure_of(detail), detail["pipeline"]["marks"]
    assert [bar.name for bar in figure.plotly.data] == [
        "forward, chunk 0", "forward, chunk 1", "backward, chunk 0", "backward, chunk 1", "optimizer",
    ]  # fmt: skip
    assert figure.table.to_dict(as_series=False) == marks
    drawn = {
        (bar.name.split(",")[0], stage, round(base, 9), round(length, 9))
        for bar in figure.plotly.data for stage, base, length in zip(bar.y, bar.base, bar.x, strict=True)
    }  # fmt: skip
    columns = (marks[key] for key in ("phase", "stage", "start_s", "duration_s"))
    assert drawn == {(p, s, round(a * 1e3, 9), round(d * 1e3, 9)) for p, s, a, d in zip(*columns, strict=True)}
    assert figure.plotly.layout.xaxis.title.text == "time in the iteration [ms]"


def test_chunks_differ_by_shade_and_phases_by_colour(detail):
    colours = colours_of(figure_of(detail))
    assert len(set(colours.values())) == len(colours) == 5

    def lightness(name):
        return sum(int(colours[name][k : k + 2], 16) for k in (1, 3, 5))

    for phase in ("forward", "backward"):
        assert lightness(f"{phase}, chunk 0") < lightness(f"{phase}, chunk 1")


def test_marks_bear_the_number_of_their_micro_batch_where_it_fits(detail):
    first = copy.deepcopy(detail)
    marks = first["pipeline"]["marks"]
    place = next(k for k, phase in enumerate(marks["phase"]) if phase == "forward")
    for length, text in ((first["pipeline"]["end_s"] / 20, str(marks["microbatch"][place])), (1e-9, "")):
        marks["duration_s"][place] = length
        bars = figure_of(first).plotly.data
        bar = next(bar for bar in bars if bar.name == f"forward, chunk {marks['chunk'][place]}")
        assert bar.text[0] == text
        assert "of micro-batch 0" in bar.hovertext[0]
    assert set(figure_of(first).plotly.data[-1].text) == {""}  # the optimizer's


def test_the_caption_says_schedule_bubbles_and_what_decided_the_length(detail):
    result = detail["result"]
    caption = figure_of(detail).caption
    assert caption.startswith("Schedule 1f1b, interleaved: 2 chunks of layers per stage, later ones paler; 4 micro")
    assert f"Bubbles are {result['breakdown_s']['bubble'] / result['iteration_time_s']:.1%} of" in caption
    kind, seconds = max(result["critical_path_s"].items(), key=lambda item: item[1])
    assert kind == "compute"
    assert f"along the critical path: compute {seconds / result['iteration_time_s']:.1%}" in caption
    assert "(accelerators 0, 1)" in caption
    assert "Only the first" not in caption
    part = copy.deepcopy(detail)
    part["pipeline"] |= {"is_whole": False, "end_s": result["iteration_time_s"] / 4, "num_shown": 3}
    count = len(part["pipeline"]["marks"]["stage"])
    said = f"Only the first {count} marks are drawn: 25.0% of the iteration, in which 3 of 4 micro-batches begin."
    assert figure_of(part).caption.endswith(said)
    assert figure_of(part).plotly.layout.xaxis.range[1] == pytest.approx(result["iteration_time_s"] / 4 * 1e3)


def test_the_static_figure_has_as_many_bars(detail):
    pytest.importorskip("matplotlib").use("Agg")
    import matplotlib.pyplot as plt

    canvas, axes = plt.subplots()
    figure_of(detail).paper(axes)
    canvas.canvas.draw()
    assert len(axes.patches) == len(detail["pipeline"]["marks"]["stage"])
    plt.close(canvas)


def test_documents_without_a_pipeline_are_drawn_without_it(detail):
    older = {key: value for key, value in detail.items() if key != "pipeline"}
    assert figure_of(older) is None
    assert figure_of(detail | {"pipeline": None}) is None
