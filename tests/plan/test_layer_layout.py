"""Layouts of a pipeline's layers: Megatron's text against hand counts and a second reading, and what is refused."""

import random
import re

import pytest

from rostam_py.errors import ConfigError, DegreeError
from rostam_py.plan import Strategy
from rostam_py.plan.layer_layout import LayerLayout

# Counted by hand: 1 chunk with the table and two layers, 34 of two, three of three, one of two, one with the loss:
# 40 chunks, 2 + 68 + 9 + 2 = 81 layers.
FORTY = "E t*2 | (t*2 |)*34 , t*3 | t*3 | t*3 | t t | L"


def read_by_replacement(text):
    """Return the letters of each chunk, as regular expressions unroll them one after the other."""
    text = re.sub(r"[\s,]", "", text)
    for pattern in (r"\(([^)]+)\)\*(\d+)", r"(.)\*(\d+)"):
        text = re.sub(pattern, lambda found: found.group(1) * int(found.group(2)), text)
    return text.split("|")


def test_forty_chunks_counted_by_hand():
    layout = LayerLayout.of(FORTY)
    assert layout.num_chunks == 40
    assert layout.blocks == (2, *[2] * 34, 3, 3, 3, 2, 0)
    assert (layout.table, layout.loss) == (0, 39)
    assert sum(layout.blocks) == 81


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("Ettt|(tt|)*29,t|L", (3, *[2] * 29, 1, 0)),
        ("E|t||t*2|L", (0, 1, 0, 2, 0)),
        ("E||*2tL", (0, 0, 0, 1)),
        ("E(t|t)*3L", (1, 2, 2, 1)),
        ("EtL", (1,)),
    ],
)
def test_texts(text, blocks):
    assert LayerLayout.of(text).blocks == blocks


def test_random_texts_are_read_as_by_replacement():
    draw = random.Random(39)
    for _ in range(200):
        pieces = [draw.choice(["t", "t*3", "|", "|*2", ",", " ", "(t|)*2", "(tt|t)*3", "t|"]) for _ in range(8)]
        text = "E" + "".join(pieces) + "t|L"
        chunks = read_by_replacement(text)
        assert LayerLayout.of(text).blocks == tuple(chunk.count("t") for chunk in chunks)


def test_chunks_start_where_their_first_part_does():
    # Positions: table 0..9, blocks at 10, 20, 30, loss from 40, 50 in all.
    layout = LayerLayout.of("E||t|tt|L")
    assert layout.starts([10, 20, 30], 40, 50) == [10, 10, 20, 40]
    assert LayerLayout.of([1, 2]).starts([10, 20, 30], 40, 50) == [20]
    assert LayerLayout.of("EtttL|").starts([10, 20, 30], 40, 50) == [50]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], r"^strategy\.placing\.layers is \[\]; it must list"),
        ([0, 0], r"integers >= 0 such as \[5,9,9,9\]"),
        ([1, -1], r"is \[1, -1\]"),
        ([1, True], r"it must list"),
        (7, r"is 7; it must list"),
        ("t|tL", r"must begin with its only E"),
        ("Et|EtL", r"must begin with its only E"),
        ("E|L", r"have a t in between"),
        ("Et|x|L", r"with 'x'"),
        ("Et|m L", r"further tokens are not modelled"),
        ("E((t|)*2)*3L", r"is no letter"),
        ("E(t|L", r"'\(t\|L' is no letter"),
        ("Et*|L", r"'\*\|L' is no letter"),
        ("E" + "(t*999|)*999999" + "L", r"more than 100,000 blocks"),
    ],
)
def test_what_is_no_layout_is_refused(given, said):
    with pytest.raises(ConfigError, match=said):
        Strategy.of(pp=2, layers=given)


def test_layouts_fit_their_pipeline():
    assert Strategy.of(pp=2, virtual_stages=2, layers="Et|t|t|tL").placing.layout.num_chunks == 4
    with pytest.raises(DegreeError, match=r"of 4 chunks; .* is 2 x 1"):
        Strategy.of(pp=2, layers=[1, 1, 1, 1])
    with pytest.raises(ConfigError, match=r"software\.rules\.stage_blocks is 'even', which cuts the blocks, too"):
        Strategy.of(pp=2, layers=[1, 1], stage_blocks="even")
    with pytest.raises(ConfigError, match=r"strategy\.placer=sip_ml has no pipeline"):
        Strategy.of(mp=2, placer="sip_ml", layers=[1, 1])
    with pytest.raises(ConfigError, match=r"^strategy\.layers is strategy\.placing\.layers now"):
        Strategy(pp=2, layers=[1, 1])
