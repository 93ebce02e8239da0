"""The pages of the programs that train are what docs/software.py writes today."""

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def pages():
    spec = importlib.util.spec_from_file_location("docs_software", DOCS / "software.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.pages()


def test_pages_are_those_of_today(pages):
    kept = {path.name: path.read_text() for path in (DOCS / "software").glob("*.md")}
    assert sorted(kept) == sorted(pages), "run: python docs/software.py"
    for name, text in pages.items():
        assert kept[name] == text, f"{name}: run: python docs/software.py"


def test_every_flag_of_a_page_has_a_meaning(pages):
    for name, text in pages.items():
        for line in text.splitlines():
            if line.startswith("| `"):
                assert len(line.split("|")[3].strip()) > 5, f"{name}: {line}"
