"""``rostam report DIR``: a sweep's or a run's folder in; report.html, and figures for papers, out."""

import json
from pathlib import Path

from rich.console import Console

from rostam_py.cli.compose import compose_config
from rostam_py.errors import ConfigError
from rostam_py.extras import require
from rostam_py.report.needs import page_needs
from rostam_py.report.sinks.static import check_formats
from rostam_py.units import format_size


def report(arguments: list[str], as_json: bool) -> int:
    """Write the report of a folder and print where it is and how large. Returns the exit status."""
    folder, overrides = _split(arguments)
    config = compose_config("report", overrides)
    check_formats(config.formats)
    require(*page_needs("rostam report", config.formats))
    from rostam_py.report.report import draw_report

    with Console(stderr=True).status(f"drawing {folder}"):
        path, figures = draw_report(folder, out=config.out, formats=config.formats)
    size = path.stat().st_size
    if as_json:
        print(json.dumps({"report": str(path), "num_bytes": size, "figures": [str(one) for one in figures]}, indent=2))
        return 0
    console = Console()
    console.print(f"{path}: {format_size(size)}, works offline", highlight=False, markup=False, soft_wrap=True)
    if figures:
        where = f"{len(figures)} figures in {figures[0].parent}"
        console.print(where, highlight=False, markup=False, soft_wrap=True)
    return 0


def _split(arguments: list[str]) -> tuple[str, list[str]]:
    """Return the folder, which may hold "=" in its name, and the overrides."""
    folders = [one for one in arguments if "=" not in one or Path(one).is_dir()]
    if len(folders) != 1:
        given = ", ".join(folders) or "none"
        raise ConfigError(f"folders given: {given}; give one: rostam report DIR [formats=[pdf,svg]] [out=FILE]")
    return folders[0], [one for one in arguments if one != folders[0]]
