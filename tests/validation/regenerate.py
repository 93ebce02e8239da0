"""Renew the tables of docs/validation.md and README.md, and the bounds of the shipped tables, from results.

    rostam validate out=runs/all && python tests/validation/regenerate.py runs/all
    python tests/validation/regenerate.py runs/v1 runs/v2      # tables of several folders; others stay as they are

A bound is what is reached and a margin: 1.2 x the mean absolute error, 1.15 x the worst. The commit says what moved.
"""

import json
import math
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
DATA = ROOT / "rostam_py" / "validation" / "data"
FILES = {path.stem.partition("-")[2]: path for path in sorted(DATA.glob("*.yaml"))}
SHOWN = 0.005  # of an iteration
ALL = {  # a validation's figures of all rows -> what README calls them
    "simulated": "simulated",
    "expected_without_row": "expected, each row without itself",
    "expected_without_source": "expected, each row without its whole source",
}
_PARTS = (
    "row", "measured", "predicted", "error", "matrix products", "attention", "memory-bound", "optimizer",
    "exposed communication", "bubble", "host",
)  # fmt: skip


def main(folders):
    """Renew what the results in the folders say."""
    tables, judged = {}, {}
    for folder in folders:
        document = json.loads((Path(folder) / "validation.json").read_text(encoding="utf-8"))
        found = {table["name"]: table for table in document["tables"]}
        tables |= found
        judged = document["all"] if set(FILES) <= set(found) else judged
    tables = {name: tables[name] for name in FILES if name in tables}
    for name, table in tables.items():
        _set_bounds(FILES[name], table["summary"])
    docs = ROOT / "docs" / "validation.md"
    _renew(docs, "errors", _head("table", "is", "of", "rows", "mean absolute", "mean signed", "worst", "not modelled"),
           [line for table in tables.values() for line in _error_lines(table)], tables)  # fmt: skip
    parts = [line for table in tables.values() for row in table["rows"] for line in _part_lines(table["name"], row)]
    _renew(docs, "parts", _head(*_PARTS), parts, tables)
    collectives = [line for table in tables.values() for row in table["rows"] for line in _collective_lines(row)]
    _renew(docs, "collectives", _head("row", "measured", "predicted", "error", "algorithm"), collectives, {})
    _renew(docs, "left", _head("table", "row", "why"),
           [f"| {name} | {one['name']} | {one['reason']} |" for name, table in tables.items()
            for one in (*table["not_modelled"], *table["failed"])], tables)  # fmt: skip
    _renew(docs, "steps", _head("table", "published steps", "rows", "mean absolute error", "worst"),
           [line for table in tables.values() for line in _short_lines(table)], tables)  # fmt: skip
    if judged:  # of all rows together, which only a folder of all tables knows
        head = _head(
            "iteration time", "rows", "mean absolute error", "mean signed error", "within 10%", "inside their 80% range"
        )
        _renew(ROOT / "README.md", "all", head, [_all_line(ALL[name], one) for name, one in judged.items()], {})


def _head(*columns):
    return [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]


def _renew(path, tag, head, lines, tables):
    """Put lines between two marks; those of tables that were not run stay."""
    text = path.read_text(encoding="utf-8")
    begin, end = f"<!-- {tag} -->", f"<!-- /{tag} -->"
    old = text[text.index(begin) + len(begin) : text.index(end)].strip().splitlines()[2:]
    new = {line.split("|")[1].strip().split(" ")[0] for line in lines} | set(tables)
    kept = [line for line in old if line.split("|")[1].strip().split(" ")[0] not in new]
    places = {name: place for place, name in enumerate(FILES)}
    body = sorted((*kept, *lines), key=lambda line: places.get(line.split("|")[1].strip().split(" ")[0], -1))
    text = text[: text.index(begin)] + "\n".join([begin, *head, *body, ""]) + text[text.index(end) :]
    path.write_text(text, encoding="utf-8")


def _error_lines(table):
    left = len(table["not_modelled"])
    if not table["summary"]:
        return [f"| {table['name']} | | | 0 | | | | {left} |"]
    return [
        f"| {table['name']} | {table['is']} | {measures} | {one['num_rows']} | {one['mean_absolute']:.1f}% |"
        f" {one['mean_signed']:+.1f}% | {one['worst']:+.1f}% | {left} |"
        for measures, one in table["summary"].items()
    ]


def _short_lines(table):
    one = table["summary"].get("time")
    if one is None or table["is"] != "predicted":
        return []
    errors = f"{one['mean_absolute']:.1f}% | {one['worst']:+.1f}%"
    return [f"| {table['name']} | {table['title']} | {one['num_rows']} | {errors} |"]


def _all_line(words, one):
    covered = "" if one["coverage"] is None else f"{one['coverage']:.0%}"
    errors = f"{one['mean']:.1f}% | {one['signed']:+.1f}% | {one['near']:.0%}"
    return f"| {words} | {one['num_jobs']} | {errors} | {covered} |".replace("|  |", "| |")


def _part_lines(table, row):
    time, total = row["compared"].get("time"), row["iteration_s"]
    families = dict(row["compute_by_family_s"])
    if time is None or not families:
        return []
    products = families.pop("matmul", 0) + families.pop("convolution", 0)
    attention, optimizer = families.pop("attention", 0), families.pop("optimizer", 0)
    shares = [_share(one / total) for one in (products, attention, sum(families.values()), optimizer)]
    exposed = row["exposed_s"].items()
    shares.append(", ".join(f"{kind} {_share(one / total)}" for kind, one in exposed if one / total >= SHOWN))
    shares += [_share(row[part] / total) for part in ("bubble_s", "host_s")]
    times = f"{_time(time['measured'])} | {_time(time['predicted'])} | {time['error']:+.1f}%"
    return [f"| {table} {row['name']} | {times} | {' | '.join(shares)} |"]


def _collective_lines(row):
    time = row["compared"].get("time")
    if time is None or row["compute_by_family_s"]:
        return []
    times = f"{_time(time['measured'])} | {_time(time['predicted'])} | {time['error']:+.1f}%"
    return [f"| {row['name']} | {times} | {row['chosen']} |"]


def _share(value):
    return f"{value:.0%}" if value >= SHOWN else ""


def _time(seconds):
    return f"{seconds:.4g} s" if seconds >= 1 else f"{1e3 * seconds:.4g} ms"


def _set_bounds(path, summary):
    bounds = {
        measures: {"mean": math.ceil(2.4 * one["mean_absolute"]) / 2, "worst": math.ceil(1.15 * abs(one["worst"]))}
        for measures, one in summary.items()
    }
    said = ", ".join(f"{what}: {{mean: {one['mean']:g}, worst: {one['worst']}}}" for what, one in bounds.items())
    text = path.read_text(encoding="utf-8")
    path.write_text(re.sub(r"^bounds: .*$", f"bounds: {{{said}}}", text, flags=re.MULTILINE), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
