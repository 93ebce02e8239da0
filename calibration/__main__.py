"""``python -m calibration [tables | links | judge] [--out DIR]``."""

import argparse
from pathlib import Path

from calibration import library, links, power, recipes, sustained
from calibration.distil import distil, sources, table_path
from calibration.judge import shipped, table
from calibration.published import MEASURED
from rostam_py.costs.kernel_table import TABLES
from rostam_py.costs.power import POWER
from rostam_py.costs.recipes import MULTIPLES
from rostam_py.costs.sustained import RATES

MISSING = f"calibration needs {library.REQUIREMENT} (82 MB), the optional extra: pip install 'rostam[calibration]'"


def main() -> None:
    """Write the tables, or print the errors on held-out halves that they state."""
    parser = argparse.ArgumentParser(prog="python -m calibration", description=__doc__)
    parser.add_argument("what", nargs="?", choices=("tables", "links", "judge"), default="tables")
    parser.add_argument("--out", type=Path, default=TABLES, help="folder of the tables")
    given = parser.parse_args()
    if given.what == "judge":
        print("\n".join([*links.table(), *table(shipped())]))
        return
    data = None if given.what == "links" else library.data_folder()
    if data is not None:
        library.write_collectives(data, MEASURED / library.COLLECTIVES)
    for one in links.fit_all():
        print(links.write(one), flush=True)
    if given.what == "links":
        return
    if data is None:
        parser.exit(2, f"{MISSING}\n")
    found = sources(data)
    given.out.mkdir(parents=True, exist_ok=True)
    print(sustained.write(given.out / RATES.name), flush=True)
    print(power.write(given.out / POWER.name), flush=True)
    for accelerator in dict.fromkeys(one.accelerator for one, _ in found):
        path = table_path(accelerator, given.out)
        distil(accelerator, found).save(path)
        print(f"{path}: {path.stat().st_size / 1000:.0f} kB", flush=True)
    print(recipes.write(given.out / MULTIPLES.name), flush=True)


main()
