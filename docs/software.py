"""Write a page for each program that trains, from the registry and the shipped tables: ``python docs/software.py``.

A page holds what the program is, its flags, where they are from, how long its published jobs took against what is
simulated, and, of each table of published rows that judges it, how open details are filled.
tests/docs/test_software.py checks that the pages are today's.
"""

import dataclasses
import statistics
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "software"
NOTE = "<!-- written by docs/software.py: change rostam_py/software/stacks or rostam_py/validation/data -->"


def pages() -> dict[str, str]:
    """Return the text of every page, by file name."""
    from rostam_py.software.names import STACKS

    found = {f"{name}.md": _page(name, STACKS.get(name)) for name in STACKS}
    return {"README.md": _index({name: STACKS.get(name) for name in STACKS}), **found}


def _index(stacks: dict[str, Any]) -> str:
    rows = [f"| [{name}]({name}.md) | {_first(stack)} |" for name, stack in stacks.items()]
    lines = [
        "# Programs that train", "", NOTE, "",
        "A run names the program that trains by `software=NAME` and sets its flags by `software.FLAG=VALUE`. One habit",
        "is held by hand with `software.rules.RULE=VALUE`. What the numbers mean: [the model](../model/README.md), B33",
        "and B34.", "", "| software | what |", "| --- | --- |", *rows, "",
    ]  # fmt: skip
    return "\n".join(lines)


def _page(name: str, stack: Any) -> str:
    lines = [f"# {name}", "", NOTE, "", _first(stack), ""]
    flags = _flags(stack)
    if flags:
        lines += ["## Flags", "", "| flag | default | meaning |", "| --- | --- | --- |", *flags, ""]
    lines += ["## Sources", "", f"{stack.SOURCES}.", ""]
    measured = _measured(name)
    if measured:
        lines += ["## Published jobs", "", "How many times as long as simulated iterations took.", ""]
        lines += [
            "| release | accelerator | models | jobs | median | least | most |",
            *["|" + " --- |" * 7],
            *measured,
            "",
        ]
    for table in _tables(name):
        lines += [f"## Rows of {table.name}", "", f"{table.title}. Source: {table.source}.", "", table.rule, ""]
    return "\n".join(lines)


def _first(stack: Any) -> str:
    return str((stack.__doc__ or "").strip().splitlines()[0])


def _flags(stack: Any) -> list[str]:
    from rostam_py.cli.usage import meanings

    what = meanings(stack)
    return [
        f"| `{one.name}` | {_default(one)} | {' '.join(what.get(one.name, '').split())} |"
        for one in dataclasses.fields(stack)
        if one.name not in ("rules", "ratios")
    ]


def _default(entry: "dataclasses.Field[Any]") -> str:
    value = entry.default if entry.default is not dataclasses.MISSING else "[]"
    return {True: "true", False: "false", None: "null"}.get(value, str(value)) if _is_word(value) else str(value)


def _is_word(value: Any) -> bool:
    return value is None or isinstance(value, bool)


def _measured(name: str) -> list[str]:
    from rostam_py.software.ratios import Ratios

    return [
        f"| {release or '-'} | {accelerator} | {'mixtures of experts' if has_experts else 'dense'} | {len(ratios)} |"
        f" {statistics.median(ratios):.2f} | {min(ratios):.2f} | {max(ratios):.2f} |"
        for release, accelerator, has_experts, ratios in Ratios.shipped().groups_of(name)
    ]


def _tables(name: str) -> list[Any]:
    from rostam_py.validation.tables import select

    return [
        table
        for table in select()
        if any((row.keys.get("software") or {}).get("name") == name for row in table.rows if not row.why_not)
    ]


def main(folder: Path = FOLDER) -> None:
    """Write the pages."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
