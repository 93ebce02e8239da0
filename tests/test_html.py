"""Notebook fragments: every public object shows its headline figure with a unit, well formed and escaped."""

import dataclasses
import re
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest

import rostam_py as rostam
from rostam_py.fabrics.traffic import Traffic
from rostam_py.fleet import JobOutcome, MixResult
from rostam_py.html import html_bars, html_pairs, html_table

VOID = {"br", "hr", "img", "meta", "link"}
NASTY = "<script>alert('&')</script>"


class Fragment(HTMLParser):
    """Collect text and elements; ``errors`` are tags that close what is not open, ``open`` what is left open."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.errors, self.elements, self.cells, self.styles, self.text = [], [], [], [], [], ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append(tag)
        self.styles.append(dict(attrs).get("style", ""))
        if tag not in VOID:
            self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.errors.append(tag)

    def handle_data(self, data):
        self.text += data
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1] += data


@pytest.fixture(scope="module")
def shown():
    """One of every object that a notebook may show, by name; all small."""
    graph = dataclasses.replace(rostam.trace("gpt_125m", num_layers=2), name=NASTY)
    fabric = rostam.fabric("fat_tree", num_accelerators=8, accelerator_bandwidth="400 Gb/s")
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb")
    strategy = rostam.Strategy(dp=4, tp=2, recompute="full")
    plan = rostam.place(graph, machine, global_batch=8, strategy=strategy, software="ideal")
    result = rostam.simulate(plan)
    optical = rostam.fabric("sip_ocs", num_accelerators=8, accelerator_bandwidth="400 Gb/s")
    switched = optical.with_circuits(Traffic.from_messages(8, [0, 1], [1, 2], [10**9, 10**9]))
    answered = SimpleNamespace(iteration_time_s=0.1, plan=SimpleNamespace(graph_name="resnet50", global_batch=4096))
    return {
        "graph": graph, "fabric": fabric, "machine": machine, "strategy": strategy, "plan": plan,
        "result": result, "circuits": switched.circuits, "bill": fabric.bill_of_materials(),
        "search": rostam.search(graph, machine, batches=[8], software="ideal"),
        "collective": rostam.run_collective(fabric, "all_reduce", num_bytes="1 GB"),
        "flows": rostam.run_flows(fabric, src=[0, 1], dst=[4, 4], num_bytes=[10**9, 10**9]),
        "mix": MixResult((JobOutcome(NASTY, "m", 4, 0.0, (2.0, 4.0), (2.0, 2.0)),), (result,), "hash", 0, 2),
        "answer": rostam.time_to_accuracy(answered, "resnet50_mlperf"),
    }  # fmt: skip


# 400 Gb/s = 50 GB/s. A ring all-reduce of 1 GB on 8 ranks takes 2 x 7/8 x 1 GB / 50 GB/s = 35 ms (plus some latency);
# two flows of 1 GB into one accelerator 2 GB / 50 GB/s = 40 ms. One switch and 8 copper cables cost
# 14,280 + 8 x 272 = 16,456 USD. Two of 8 accelerators' 16 circuits of 25 Gb/s go to one demanded pair each: 32.
# 11,240 iterations of 0.1 s take 18.7 min.
HEADLINES = {
    "graph": r"[\d.]+ M$",
    "fabric": r"^400 Gb/s an accelerator$",
    "machine": r"^8 x a100_80gb, 400 Gb/s each$",
    "strategy": r"^8 accelerators$",
    "plan": r"^[\d.]+ [MG]B of 85\.9 GB on the fullest device$",
    "result": r"^[\d.]+ ms$",
    "circuits": r"^32 for 2 pairs$",
    "bill": r"^16,456 USD$",
    "search": r"^[\d.]+ ms$",
    "collective": r"^35(\.\d+)? ms$",
    "flows": r"^40(\.\d+)? ms$",
    "mix": r"^1\.500 x$",  # 3 s an iteration in the mix, 2 s alone
    "answer": r"^18\.7 min$",
}


@pytest.mark.parametrize("name", HEADLINES)
def test_notebook_shows_the_headline_with_its_unit_well_formed(shown, name):
    text = shown[name]._repr_html_()
    fragment = Fragment(text)
    assert isinstance(text, str)
    assert text.isascii()
    assert (fragment.open, fragment.errors) == ([], [])
    assert any(re.search(HEADLINES[name], cell) for cell in fragment.cells), fragment.cells
    assert "script" not in fragment.elements
    assert "http" not in text
    assert not any(re.search(r"(^|;)color:(?!inherit)|background:(white|#fff)", style) for style in fragment.styles)


@pytest.mark.parametrize("name", ["graph", "plan", "result", "search", "mix"])
def test_names_of_users_are_escaped(shown, name):
    assert NASTY in Fragment(shown[name]._repr_html_()).text


def test_result_draws_its_breakdown(shown):
    result = shown["result"]
    widths = [float(w) for w in re.findall(r"flex:([\d.]+)", result._repr_html_())]
    parts = [seconds for seconds in result.breakdown.values() if seconds > 0]
    assert widths == pytest.approx([seconds / result.iteration_time_s for seconds in parts], abs=1e-6)


def test_strategy_shows_what_is_not_the_default(shown):
    cells = Fragment(shown["strategy"]._repr_html_()).cells
    assert cells == ["accelerators used", "8 accelerators", "recompute", "full"]


def test_table_escapes_and_leaves_empty_columns_out():
    fragment = Fragment(html_table("a < b", [{"x": "1 ms", "none": None, "&": "<i>"}, {"x": None, "none": "", "&": 2}]))
    assert fragment.cells == ["x", "&", "1 ms", "<i>", "", "2"]
    assert "i" not in fragment.elements
    assert fragment.text.startswith("a < b")


def test_table_of_sequences_takes_given_columns_and_may_be_empty():
    assert Fragment(html_table("t", [("a", "3 s")], ("name", "time"))).cells == ["name", "time", "a", "3 s"]
    assert Fragment(html_table("t", [], ("name", "time"))).cells == ["name", "time"]
    assert Fragment(html_table("t", [])).errors == []


def test_figures_stand_flush_right_and_words_left():
    styles = [s for s in Fragment(html_table("", [("a", "3 s"), ("b", "")], ("x", "y"))).styles if "text-align" in s]
    assert [style.rpartition("text-align:")[2].partition(";")[0] for style in styles] == ["left", "right"] * 3


def test_pairs_leave_none_out():
    assert Fragment(html_pairs("t", {"a": 0, "b": None, "c<": "d&"})).cells == ["a", "0", "c<", "d&"]


def test_bars_name_parts_with_time_and_share():
    fragment = Fragment(html_bars({"compute": 3e-3, "dp": 1e-3, "pp": 0.0, NASTY: 1e-3}))
    assert "compute 3 ms (60.0%)" in fragment.text
    assert "pp" not in fragment.text
    assert NASTY in fragment.text
    assert fragment.errors == []


def test_bars_of_nothing_are_empty_but_well_formed():
    assert Fragment(html_bars({"compute": 0.0})).open == []
