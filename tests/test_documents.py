"""Documents against schemas: what is read quickly is what pydantic accepts, and it says what is wrong with the rest."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from rostam_py import documents
from rostam_py.errors import ConfigError


@dataclass
class Inner:
    """A mapping inside."""

    name: str
    sizes: dict[str, int]


@dataclass
class Outer:
    """Every kind of annotation that is read quickly."""

    title: str
    count: int
    is_done: bool
    anything: Any
    inner: Inner
    rows: list[tuple[int | float, str, list[int | None]]]
    pairs: tuple[tuple[int, bool] | None, list[str]]
    more: list[int] = field(default_factory=list)


DOCUMENT = {
    "title": "t", "count": 3, "is_done": False, "anything": {"a": [1]}, "inner": {"name": "n", "sizes": {"a": 1}},
    "rows": [[1, "x", [None, 2]], [0.5, "y", []]], "pairs": [[1, True], ["z"]], "more": [4], "unknown": 1,
}  # fmt: skip


def read(document):
    """Return the document as ``parse_tables`` reads it."""
    data = json.dumps(document).encode()
    return documents.parse_tables(Outer, json.loads(data), data, "x.json")


def test_a_document_that_fits_is_read_without_pydantic(monkeypatch):
    monkeypatch.setattr(documents, "parse_json", lambda *_: 1 / 0)
    found = read(DOCUMENT)
    assert found.inner == Inner("n", {"a": 1})
    assert found.rows == DOCUMENT["rows"]  # lists, where the schema has tuples
    assert read({key: value for key, value in DOCUMENT.items() if key != "more"}).more == []


def test_what_is_read_quickly_is_what_pydantic_accepts(mutations):
    adapter, outcomes = TypeAdapter(Outer), {True: 0, False: 0}
    for place, changed in mutations(DOCUMENT, 3000):
        data = json.dumps(changed).encode()
        try:
            adapter.validate_json(data, strict=True)
            is_valid = True
        except ValidationError:
            is_valid = False
        assert documents._fits_record(Outer, json.loads(data)) == is_valid, (place, changed)
        outcomes[is_valid] += 1
    assert min(outcomes.values()) > 300


def test_a_misfit_is_told_with_its_place():
    with pytest.raises(ConfigError, match=r"x\.json: rows\[1\]\[1\]: input should be a valid string \(it is 5\)"):
        read({**DOCUMENT, "rows": [[1, "x", []], [2, 5, []]]})
    with pytest.raises(ConfigError, match=r"x\.json: inner\.name: field required"):
        read({**DOCUMENT, "inner": {"sizes": {}}})


def test_annotations_that_are_not_known_are_pydantics():
    @dataclass
    class Schema:
        half: float
        place: dict[int, str]

    value = {"half": 1, "place": {"1": "a"}}
    found = documents.parse_tables(Schema, value, json.dumps(value).encode(), "x.json")
    assert (found.half, found.place) == (1.0, {1: "a"})
