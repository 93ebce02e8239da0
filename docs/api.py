"""Write the API reference from the docstrings: ``python docs/api.py [FOLDER]``, by default into build/docs.

The house's docstring sections (Model, Args, ...) become Markdown on their way to pdoc; the pages need no network.
"""

import dataclasses
import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pdoc
from pdoc.render_helpers import to_markdown_with_context

SECTIONS = ("Model", "Args", "Returns", "Raises", "Cost", "Source", "Example", "Legend", "Units")
# Besides rostam_py itself: the packages that its names come from, and what users of those meet.
PAGES = (
    "units", "errors", "graph", "tracing", "costs", "costs.table", "costs.profile", "fabrics", "fabrics.fabric",
    "fabrics.config", "fabrics.throughput", "convergence", "plan", "placement", "programs", "simulation", "searching",
    "fleet", "sweep", "sweep.columns", "report.report", "report.run.load", "report.sweep.load", "report.drawing.figure",
    "report.sinks.wandb_sink", "report.sinks.wandb_options",
)  # fmt: skip

_HEAD = re.compile(rf"^({'|'.join(SECTIONS)}):(?: (.*))?$")
# "name: meaning" or "one, other (...): meaning" at the start of a text or after a sentence or clause.
_ENTRY = re.compile(r"(?:^|(?<=[.;:\])]) )([a-z_]\w*(?:, [a-z_]\w*)*)(?: \([^)]*\))?: ")


def modules() -> list[str]:
    """Return the modules that get a page: those above and the schema of every fabric and cost model."""
    from rostam_py.costs import COST_MODELS
    from rostam_py.fabrics import FABRICS

    schemas = [registry.get(name).__module__ for registry in (FABRICS, COST_MODELS) for name in registry.names()]
    return ["rostam_py", *(f"rostam_py.{name}" for name in PAGES), *schemas]


def as_markdown(docstring: str) -> str:
    """Return a docstring as Markdown: sections with bold heads, arguments and fields as lists, examples as code."""
    summary, _, rest = docstring.partition("\n")  # one sentence, even if it begins as an entry of a list does
    parts = [_section(head, lines) if head else _prose(lines) for head, lines in _split(rest)]
    if parts[0] and not rest.startswith("\n"):
        parts[0] = f"{_text([summary])} {parts[0]}"
    else:
        parts.insert(0, _text([summary]))
    return "\n\n".join(part for part in parts if part)


def _split(docstring: str) -> list[tuple[str, list[str]]]:
    """Return (section or "", its lines); a section ends at a blank line that no indented line follows."""
    found: list[tuple[str, list[str]]] = [("", [])]
    for line in docstring.splitlines():
        head = _HEAD.match(line)
        if head:
            found.append((head[1], [head[2]] if head[2] else []))
            continue
        lines = found[-1][1]
        if found[-1][0] and lines and not lines[-1] and line and not line.startswith(" "):
            found.append(("", []))
        found[-1][1].append(line.rstrip())
    return found


def _section(head: str, lines: list[str]) -> str:
    if head == "Example" and not (lines and not lines[0].startswith(" ")):
        return f"**Example**\n\n{_code(lines)}"
    text = _text(lines)
    listed = _listed(text) if head == "Args" else ""
    return f"**{head}**\n\n{listed}" if listed else f"**{head}:** {text}"


def _prose(lines: list[str]) -> str:
    """Return paragraphs; one that begins with "name: " lists fields, an indented one is shown as it stands."""
    paragraphs = re.split(r"\n\s*\n", "\n".join(lines).strip("\n"))
    parts = []
    for paragraph in paragraphs:
        if paragraph.startswith(" "):
            parts.append(_code(paragraph.splitlines(), ""))
        else:
            text = _text(paragraph.splitlines())
            parts.append(_listed(text) or text)
    return "\n\n".join(part for part in parts if part)


def _listed(text: str) -> str:
    """Return "name: meaning. other: meaning." as a list; "" if it does not begin with a name."""
    pieces = _ENTRY.split(text)
    if pieces[0].strip() or len(pieces) < 3:
        return ""
    pairs = zip(pieces[1::2], pieces[2::2], strict=True)
    entries = [(", ".join(f"`{one}`" for one in names.split(", ")), text.strip()) for names, text in pairs]
    return "\n".join(f"- {names}: {text}" for names, text in entries)


def _text(lines: list[str]) -> str:
    return " ".join(line.strip() for line in lines if line.strip()).replace("``", "`").replace("<", "&lt;")


def _code(lines: list[str], language: str = "python") -> str:
    filled = [line for line in lines if line.strip()]
    indent = min((len(line) - len(line.lstrip()) for line in filled), default=0)
    body = "\n".join(line[indent:] for line in lines).strip("\n")
    return f"```{language}\n{body}\n```"


def _prepare(name: str) -> None:
    """Put a module's lazily imported names where pdoc looks for them; have it show fields of dataclasses."""
    module: Any = importlib.import_module(name)
    for key in getattr(module, "__all__", ()):
        vars(module).setdefault(key, getattr(module, key))
    for value in list(vars(module).values()):
        if isinstance(value, type) and dataclasses.is_dataclass(value) and not value.__init__.__doc__:
            value.__init__.__doc__ = "Fields and their defaults."


def build(folder: Path) -> None:
    """Write the pages, an index and a search that works without a server."""
    from jinja2 import pass_context

    @pass_context
    def to_markdown(context: Any, docstring: str) -> str:
        return to_markdown_with_context(context, as_markdown(docstring))

    names = list(dict.fromkeys(modules()))
    for name in names:
        _prepare(name)
    pdoc.render.configure(docformat="markdown", include_undocumented=False, show_source=False)
    pdoc.render.env.filters["to_markdown"] = to_markdown
    # A function named as the file that holds it makes pdoc want a page of the file.
    unwanted = [one for one in pdoc.extract.walk_specs(names) if one not in names]
    pdoc.pdoc(*names, *(f"!{re.escape(one)}$" for one in unwanted), output_directory=folder)


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "build/docs")
    build(target)
    sys.stdout.write(f"{target}/index.html\n")
