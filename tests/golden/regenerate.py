"""Record what the golden cases give: ``python tests/golden/regenerate.py``; the commit that changes them says why.

    regenerate.py               write all files
    regenerate.py plans         write one of them
    regenerate.py --whole TEXT  print the cases with TEXT in their names in full, to compare two builds by diff

Times are whole picoseconds and runs are byte-identical on one build, so results are compared for equality.
"""

import json
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER))

from golden_cases import CASES  # noqa: E402  (found by the line above)
from golden_runs import as_recorded, run_case  # noqa: E402


def as_text(results: dict[str, dict[str, Any]]) -> str:
    """Return the JSON text of one file: one line for each quantity of a case."""
    cases = []
    for name, result in results.items():
        lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in result.items()]
        cases.append(f" {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(cases) + "\n}\n"


def write(kinds: list[str]) -> None:
    """Run and record the cases of these kinds."""
    known = {case.kind for case in CASES}
    if not known.issuperset(kinds):
        raise SystemExit(f"kinds are {', '.join(sorted(known))}; asked for: {' '.join(kinds)}\n\n{__doc__}")
    for kind in kinds:
        results = {case.name: as_recorded(run_case(case)) for case in CASES if case.kind == kind}
        (FOLDER / f"{kind}.json").write_text(as_text(results), encoding="utf-8")


if __name__ == "__main__":
    if "--whole" in sys.argv:
        text = sys.argv[sys.argv.index("--whole") + 1]
        for case in CASES:
            if text in case.name:
                sys.stdout.write(as_text({f"{case.kind}: {case.name}": run_case(case)}))
    else:
        write(sys.argv[1:] or list(dict.fromkeys(case.kind for case in CASES)))
