"""Every example of the README and of docs/ runs as printed, and every link of theirs leads somewhere.

How a fenced block is run:

```python            a block that begins as a file does has a namespace of its own; others go on with the one before
```python title=F    is written to the file F first, where later blocks find it, and is not run; so is any language
```bash              rostam commands, one a line or continued by a backslash; comments and exports between them
<!-- not run: WHY -->  in the line before a block: nobody runs it here
<!-- slow: WHY -->     run by the slow tests only
```text              right behind one: lines of its output, but for spaces, lines of tables, and lines with "..."

Sweeps of all files but the README run in this process: their results are those of several (tests/sweep/test_sweep.py),
which would each import torch.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rostam_py.cli.main import main
from rostam_py.tracing import custom

pytestmark = pytest.mark.usefixtures("cached_traces")

ROOT = Path(__file__).parents[2]
FILES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
RUN = ("python", "bash")

# Examples that nobody runs here, by file; each names why in a comment before it.
NOT_RUN = {
    "README.md": 1,
    "docs/how-to/my_cost_table.md": 1,
    "docs/how-to/my_fabric.md": 2,
    "docs/how-to/my_model.md": 1,
    "docs/how-to/my_ray_cluster.md": 5,
    "docs/tutorial.md": 1,
}

_BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>not run|slow): (?P<why>[^\n]+) -->\n\n?)?"
    r"^```(?P<language>\w+)(?: title=\"?(?P<title>[^\s\"]+)\"?)?\n(?P<body>.*?)^```$"
    r"(?:\n\n```text\n(?P<output>.*?)^```$)?",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Example:
    """One fenced block. where: "docs/tutorial.md:12". mark: "", "not run" or "slow", and why."""

    where: str
    language: str
    body: str
    title: str
    mark: str
    why: str
    output: str

    def commands(self) -> list[str]:
        """Return the commands of a bash block, continued lines joined, comments and empty lines left out."""
        lines = self.body.replace("\\\n", " ").splitlines()
        return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def examples(path: Path) -> Iterator[Example]:
    """Yield the blocks of a file that are run, or say that they are not; output and other text is passed over."""
    text = path.read_text(encoding="utf-8")
    for found in _BLOCK.finditer(text):
        language, title = found["language"], found["title"] or ""
        if language in RUN or title:
            line = text.count("\n", 0, found.start("body"))
            where = f"{path.relative_to(ROOT)}:{line}"
            yield Example(
                where, language, found["body"], title, found["mark"] or "", found["why"] or "", found["output"] or ""
            )


class Runner:
    """Run examples of one file in order, in the current folder.

    Args: main: the command line; returns the exit status.
    """

    def __init__(self, main: Callable[[list[str]], int]) -> None:
        self._main = main
        self._names: dict[str, Any] = {}

    def run(self, example: Example) -> None:
        """Run one example. Raises: AssertionError naming the line that failed; whatever a Python block raises."""
        if example.title:
            target = Path(example.title)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(example.body, encoding="utf-8")
        elif example.language == "python":
            if example.body.startswith(("import ", "from ", '"""')):
                self._names = {"__name__": "example"}
            exec(compile(example.body, example.where, "exec"), self._names)  # noqa: S102 (our own files)
        else:
            is_in_readme = example.where.startswith("README.md:")
            for command in example.commands():
                if not is_in_readme:
                    command = command.replace("sweep.backend=process", "sweep.backend=inline")
                program, *arguments = shlex.split(command, comments=True)
                if program == "export":
                    os.environ.update(one.split("=", 1) for one in arguments)
                    continue
                assert program == "rostam", f"{example.where}: {command!r} is not rostam's; say why it is not run"
                assert self._main(arguments) == 0, f"{example.where}: {command}"


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", FILES, ids=named)
def test_examples_run_in_order(path, tmp_path, monkeypatch, capsys):
    run_examples([one for one in examples(path) if not one.mark], tmp_path, monkeypatch, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("path", [p for p in FILES if any(e.mark == "slow" for e in examples(p))], ids=named)
def test_slow_examples_run_in_order(path, tmp_path, monkeypatch, capsys):
    run_examples([one for one in examples(path) if one.mark != "not run"], tmp_path, monkeypatch, capsys)


def run_examples(found: list[Example], folder: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(folder)
    for name in ("WANDB_MODE", "ROSTAM_CONFIGS"):  # what examples set ends with them
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(custom, "_OPS", {})  # what examples register ends with them
    monkeypatch.setattr(custom, "_STAND_INS", {})
    runner = Runner(main)
    for one in found:
        runner.run(one)
        printed = plain_lines(capsys.readouterr().out)
        assert printed or one.title or one.language == "python", f"{one.where} prints nothing"
        missing = [line for line in plain_lines(one.output) if "..." not in line and line not in printed]
        assert not missing, f"{one.where} does not print {missing}"


def plain_lines(text: str) -> list[str]:
    """Return the lines that hold words, without the lines of tables and repeated spaces."""
    lines = [re.sub(r"[\s\u2500-\u257f]+", " ", line).strip() for line in text.splitlines()]
    return [line for line in lines if line]


def test_examples_that_are_not_run_are_counted():
    found = [one for path in FILES for one in examples(path) if one.mark == "not run"]
    counts = {named(path): sum(one.where.startswith(f"{named(path)}:") for one in found) for path in FILES}
    listed = "\n".join(f"{one.where}: {one.why}" for one in found)
    assert {name: count for name, count in counts.items() if count} == NOT_RUN, listed


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_the_new_fabric_of_the_how_to_compiles(tmp_path):
    found = [one for path in FILES for one in examples(path) if one.title.endswith(".cpp")]
    assert len(found) == 1
    (tmp_path / "new.cpp").write_text(found[0].body, encoding="utf-8")
    command = ["c++", "-std=c++17", "-fsyntax-only", "-Wall", "-Werror", f"-I{ROOT / 'csrc'}", "new.cpp"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", FILES, ids=named)
def test_links_lead_to_files_and_headings(path):
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        assert file.exists(), f"{named(path)} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = [re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings]
            assert anchor in slugs, f"{named(path)} links to {target}; headings: {slugs}"


def test_every_ruling_that_the_code_names_is_in_the_model():
    places = [ROOT / name for name in ("rostam_py", "csrc", "models", "configs", "experiments", "tests")]
    suffixes = (".py", ".h", ".cpp", ".inc", ".yaml", ".md")
    files = [path for place in places for path in place.rglob("*") if path.suffix in suffixes]
    ruling = r"[A-K]\d+[a-z]?(?:\.\d+)?"
    named = {one for path in files for one in re.findall(rf"MODEL ({ruling})", path.read_text(encoding="utf-8"))}
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "model").glob("?_*.md")]
    headings = [one for page in pages for one in re.findall(rf"^###+ ({ruling})\. ", page, re.MULTILINE)]
    explained = set(headings)
    assert len(explained) == len(headings), "a ruling stands twice"
    assert len(named) > 20
    assert named - explained == set()
