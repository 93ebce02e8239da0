"""The API reference: the house's docstrings become readable pages, and every public name has its place there."""

import importlib.util
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rostam_py

pytest.importorskip("pdoc")
SCRIPT = Path(__file__).parents[2] / "docs" / "api.py"


@pytest.fixture(scope="module")
def api():
    spec = importlib.util.spec_from_file_location("rostam_docs_api", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DOCSTRING = """Do one thing.

More about it, with a key <hash>.

Model: t = a + b,
    ignoring c.
Args: first, second: numbers >= 0; the rest is
    ignored. third (text): its unit ["1 us"].
Returns: a number.
Example:
    do(1,
       2)
"""

MARKDOWN = """Do one thing.

More about it, with a key &lt;hash>.

**Model:** t = a + b, ignoring c.

**Args**

- `first`, `second`: numbers >= 0; the rest is ignored.
- `third`: its unit ["1 us"].

**Returns:** a number.

**Example**

```python
do(1,
   2)
```"""


def test_sections_become_markdown(api):
    assert api.as_markdown(inspect.cleandoc(DOCSTRING)) == MARKDOWN


def test_fields_of_a_dataclass_become_a_list_and_its_summary_does_not(api):
    text = "one: a summary with a colon.\n\nname: of it. size, count: how much; more of that.\n"
    assert api.as_markdown(text) == (
        "one: a summary with a colon.\n\n- `name`: of it.\n- `size`, `count`: how much; more of that."
    )


def test_indented_paragraphs_are_shown_as_they_stand(api):
    assert api.as_markdown("What a folder holds.\n\n    store/  points\n      x") == (
        "What a folder holds.\n\n```\nstore/  points\n  x\n```"
    )


@pytest.mark.parametrize("name", rostam_py.__all__)
def test_no_section_of_a_public_docstring_is_left_in_the_text(api, name):
    value = getattr(rostam_py, name)
    members = [getattr(value, key) for key in vars(value) if not key.startswith("_")] if inspect.isclass(value) else []
    for one in (value, *members):
        found = api.as_markdown(inspect.getdoc(one) or "")
        assert not re.search(rf"^(?:{'|'.join(api.SECTIONS)}):", found, re.MULTILINE)
        assert found.count("```") % 2 == 0


def test_modules_of_the_pages_exist(api):
    assert [name for name in api.modules() if importlib.util.find_spec(name) is None] == []


@pytest.mark.slow
def test_every_public_name_is_on_the_first_page_and_no_page_asks_the_network(api, tmp_path):
    # On its own: the build resolves lazy names for good.
    subprocess.run([sys.executable, SCRIPT, tmp_path], check=True, capture_output=True)
    page = (tmp_path / "rostam_py.html").read_text(encoding="utf-8")
    assert [name for name in rostam_py.__all__ if f'id="{name}"' not in page] == []
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) == 1 + len(set(api.modules()))  # and the index
    for one in pages:
        assert not re.search(r"""(?:src=|@import |url\()["']?https?:""", one.read_text(encoding="utf-8")), one
