"""A saved graph that is not one is refused at the door: fields dropped, of another type, ids that name nothing."""

import copy
import json

import pytest

from rostam_py.errors import ConfigError
from rostam_py.graph import Affine, Halo, Op, OperatorGraph, Split, Tensor


@pytest.fixture
def document(tmp_path):
    """A small graph with views, splits and a backward op, as JSON has it."""
    batch, wide = Affine(0, 1), Affine(8)
    tensors = (
        Tensor(0, (batch, wide), "float32", "input", "x"),
        Tensor(1, (wide, wide), "float32", "parameter", "w"),
        Tensor(2, (batch, wide), "float32", "activation", producer=0, is_saved=True, storage=0),
        Tensor(3, (wide, wide), "float32", "gradient", "w", producer=1),
    )
    split = Split("column", (None, 1), (1,), wide, halos=(Halo(1, 1, 0),))
    summed = Split("row", (1, 0), (-1,), wide, "all_reduce", Affine(0, 4))
    ops = (
        Op(0, "mm", "layer", "forward", "aten.mm.default", (0, 1), (2,), {"args": []}, Affine(0, 128), Affine(256, 32),
           Affine(0, 32), block=0, splits=(split, summed), role="product", linear_in=((0,), (1,))),
        Op(1, "mm_1", "layer", "backward", "aten.mm.default", (0, 2), (3,), {"args": []}, Affine(0, 128),
           Affine(0, 64), Affine(256), forward_op=0, role="product", linear_in=((0, 1),), repeated_flops=Affine(0, 32)),
    )  # fmt: skip
    graph = OperatorGraph("small", ops, tensors, block_names=("layer",), notes=("a note",))
    graph.save(str(tmp_path / "whole.json"))
    assert OperatorGraph.load(str(tmp_path / "whole.json")) == graph
    return json.loads((tmp_path / "whole.json").read_text())


def places(value, path=()):
    """Yield the path of everything inside."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


def at(document, path):
    """Return the value at a path."""
    for key in path:
        document = document[key]
    return document


def changed(document, path, *value):
    """Return a copy with the value at a path replaced, or, without one, taken away."""
    found = copy.deepcopy(document)
    if value:
        at(found, path[:-1])[path[-1]] = value[0]
    else:
        del at(found, path[:-1])[path[-1]]
    return found


def bad_values(place, old):
    """Return what must not stand at a place: another type, no number, an id that names nothing, an unknown word."""
    values = [{}] if isinstance(old, list | str | int | float) else []
    if isinstance(old, list):
        return [*values, None, "text", 5]
    is_dim = place[0] == "splits" and len(place) == 4 and place[2] in (1, 2)
    nullable = old is None or (place[0] == "tensors" and place[2:] == (4,)) or place[2:] == (0, 8)
    values += [] if nullable or is_dim else [None]
    if isinstance(old, str):
        return [*values, 5, True, *(["text"] if is_word(place) else [])]
    if isinstance(old, bool):
        return [*values, 5, "text"]
    if is_quantity(place):
        return [*values, "text", float("nan"), float("inf"), 2.0**70, -(2.0**70)]
    if place[0] == "split_halos" and len(place) == 5 and place[4] == 4:
        return [*values, "text", 0.0, -0.5, 1.5]
    is_storage = place[0] == "tensors" and place[2:] == (6,)
    return [*values, "text", 0.5, -7, *([] if is_storage or place == ("sequence_length",) else [10**6])]


def is_word(place):
    """Say whether a text is one of a few: dtype and kind of tensors, phase, kinds of splits and communication."""
    if place in (("format",),):
        return True
    words = {"tensors": [(1,), (2,)], "splits": [(0,), (4,)], "ops": [(0, 3), (5,)]}
    return place[2:] in words.get(place[0], ())


def is_quantity(place):
    """Say whether a number is half of a quantity that is linear in the batch."""
    return (place[0], len(place), place[2:3]) in (("tensors", 5, (0,)), ("ops", 5, (1,))) or (
        len(place) == 4 and (place[0], place[2]) in (("splits", 3), ("splits", 5), ("repeated_flops", 1))
    )


def is_of_a_record(place):
    """Say whether what stands at a place may not be missing: a key, or a part of a record of fixed length."""
    fixed = {"tensors": {3, 5}, "splits": {3, 4}, "ops": {3, 4, 5}}.get(place[0], set())
    if len(place) == 1:
        return True
    is_list = (place[0] == "ops" and place[2:3] in ((2,), (3,), (4,), (6,))) or (
        place[0] == "splits" and place[2:3] in ((1,), (2,))
    )
    return len(place) in fixed and not (is_list and len(place) > 3)


def test_no_mutated_graph_slips_through(document, tmp_path):
    path = tmp_path / "mutated.json"
    wrong, count = [], 0
    for place in places(document):
        is_free = place[0] in ("metadata", "notes", "block_names") and len(place) > 1
        if is_free or place[0] == "version" or place[2:4] == (0, 5):  # arguments: any JSON
            continue
        cases = [(value, changed(document, place, value)) for value in bad_values(place, at(document, place))]
        if is_of_a_record(place):
            cases.append(("dropped", changed(document, place)))
        for what, mutated in cases:
            count += 1
            path.write_text(json.dumps(mutated))
            try:
                OperatorGraph.load(str(path))
            except Exception as error:
                if not isinstance(error, ConfigError) or str(path) not in str(error):
                    wrong.append((place, what, repr(error)))
            else:
                wrong.append((place, what, "accepted"))
    assert wrong == []
    assert count > 500


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("ops", 0, 2, 1), 9, r"op 0 \('mm'\): inputs name tensor 9; tensors are 0 to 3"),
        (("tensors", 0, 0, 1, 0), -8, r"tensor 0: shape\[1\] is -8 at batch 1; it must be from 0"),
        (("tensors", 3, 4), 0, "op 1 .'mm_1'. writes tensor 3, whose producer is 0"),
        (("ops", 0, 2, 0), 3, "reads tensor 3 before op 1 writes it"),
        (("ops", 0, 4, 0), 7, r"ops\[0\] has split 7; there are 2 from 0"),
        (("repeated_flops", 0, 0), 2, "repeated_flops names op 2; there are 2 from 0"),
        (("repeated_flops", 0, 1, 1), 129, r"op 1 \('mm_1'\) repeats 129 FLOPs at batch 1; it has 128"),
        (("splits", 0, 2, 0), 2, "split column has 2 in output_dims; tensor 2 has 2 dimensions"),
        (("split_halos", 0, 1, 0, 0), 0, "split column has a halo of input 0, which it does not split"),
        (
            ("split_halos", 0, 1, 0, 1),
            0,
            "split column has a halo of 0 and 0 slices; both must be from 0 to 65536",
        ),
        (("split_halos", 0, 1, 0, 4), 0.0, r"split column has a halo of share 0.0; it must be in \(0, 1\]"),
        (("split_halos", 0, 0), 2, "split_halos names split 2; there are 2 from 0"),
        (("ops", 0, 5), "produkt", r"op 0 \('mm'\) has role 'produkt'; it must be one of: ''"),
        (("ops", 1, 6, 0), [1, 0], r"op 1 .'mm_1'. has \[1, 0\] in linear_in; it must be places of its 2 inputs, asc"),
        (("ops", 1, 0, 1), 5, r"ops\[1\]\[0\]\[1\]: input should be a valid string \(it is 5\)"),
    ],
)
def test_the_error_names_file_and_place(document, tmp_path, place, value, message):
    (tmp_path / "x.json").write_text(json.dumps(changed(document, place, value)))
    with pytest.raises(ConfigError, match=rf"x\.json is a damaged operator graph: .*{message}"):
        OperatorGraph.load(str(tmp_path / "x.json"))
