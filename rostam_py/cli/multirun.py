"""``rostam run --multirun``: Hydra's own multirun, with any of its sweepers and launchers.

Every job leaves the usual run folder below the multirun's. ``rostam sweep`` is the better tool where it applies: one
table, resumed where it stopped, a report; this is for Hydra's plugins, for example ``hydra/launcher=ray``.
"""

import contextlib
import io
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from rich.console import Console
from rich.table import Table

from rostam_py.cli.compose import (
    CONFIG_MODULE,
    as_hydra_wants,
    check_overrides,
    explaining,
    plain_overrides,
    user_searchpath,
)
from rostam_py.cli.schema_store import store_schemas
from rostam_py.errors import ConfigError
from rostam_py.units import format_time

_RAY_INIT = "hydra.launcher.ray.init"


def multirun(overrides: list[str], as_json: bool) -> int:
    """Run every combination of the overrides' values as one job of Hydra's launcher. Returns the exit status.

    Raises: ConfigError for anything wrong with any job's configuration, before the first one starts.
    """
    overrides = plain_overrides("run", overrides, allow_lists=True)
    own = [one for one in overrides if not one.lstrip("+~").startswith("hydra")]
    check_overrides("run", own, allow_lists=True)
    folder = _folder(overrides)
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"out is {str(folder)!r}, which holds files already; a multirun takes a folder of its own")
    store_schemas()
    settings = {
        "hydra.sweep.dir": folder.resolve(),
        "hydra.sweep.subdir": "${hydra.job.num}",
        "hydra.output_subdir": "null",
    }
    settings |= {"hydra/job_logging": "none"} | ({"hydra/hydra_logging": "none"} if as_json else {})
    given = {one.partition("=")[0] for one in overrides}
    ours = [f"{key}={value}" for key, value in settings.items() if key not in given]
    theirs = [one for one in overrides if not one.startswith("out=")]
    with _launcher(overrides) as launcher:
        ours += launcher
        with explaining("run", own), _arguments(["--multirun", *user_searchpath(), *ours, *as_hydra_wants(theirs)]):
            _application()
    _print_jobs(folder, as_json)
    return 0


@hydra.main(version_base="1.3", config_path=f"pkg://{CONFIG_MODULE}", config_name="run")
def _application(config: Any) -> None:
    """Run one job in this process, which may be a launcher's worker: its folder says all, so nothing is printed."""
    from rostam_py.cli.run import run

    job = HydraConfig.get()
    with contextlib.redirect_stdout(io.StringIO()):
        run([*job.overrides.task, f"out={job.runtime.output_dir}"], as_json=True)


@contextlib.contextmanager
def _arguments(arguments: list[str]) -> Iterator[None]:
    """Put arguments where Hydra's application looks for them, and let its errors come out as exceptions."""
    argv, full_error = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sys.argv = ["rostam", *arguments]
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    finally:
        sys.argv = argv
        if full_error is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = full_error


@contextlib.contextmanager
def _launcher(overrides: list[str]) -> Iterator[list[str]]:
    """Yield what to add to the overrides for the Ray launcher: its own Ray is this machine's alone, as a sweep's is.

    A cluster of the user's, named by its address, is joined with the user's token.
    Raises: ConfigError where it is asked for and not installed.
    """
    if "hydra/launcher=ray" not in overrides:
        yield []
        return
    try:
        import hydra_plugins.hydra_ray_launcher  # noqa: F401
    except ImportError:
        raise ConfigError(
            "hydra/launcher is 'ray', which is not installed: pip install \"rostam[launcher]\"; rostam sweep"
            " needs no launcher"
        ) from None
    from rostam_py.sweep.local_ray import join_with_token, loopback_only, stopped_after

    addresses = [one.partition("=")[2] for one in overrides if one.lstrip("+").startswith(f"{_RAY_INIT}.address=")]
    if addresses and addresses[-1] not in ("null", "local"):
        join_with_token()
        yield []
        return
    with loopback_only() as folder, stopped_after():
        yield [f"++{_RAY_INIT}.address=local", f"++{_RAY_INIT}._temp_dir={folder}"]


def _folder(overrides: list[str]) -> Path:
    """Return the multirun's folder: ``out``, Hydra's own key for it, or one named by the time of day."""
    given = [one.partition("=")[2] for one in overrides if one.partition("=")[0] in ("out", "hydra.sweep.dir")]
    return Path(given[-1].strip("'\"") if given else time.strftime("runs/multirun-%Y-%m-%d-%H-%M-%S"))


def _print_jobs(folder: Path, as_json: bool) -> None:
    """Print what the jobs left in their folders, in their order."""
    jobs = []
    for path in sorted(folder.glob("*/result.json"), key=lambda path: (len(path.parent.name), path.parent.name)):
        about = json.loads(path.with_name("run.json").read_text(encoding="utf-8"))
        result = json.loads(path.read_text(encoding="utf-8"))
        given = [one for one in about["overrides"] if not one.startswith("out=")]
        jobs.append({"folder": str(path.parent), "overrides": given, "result": result})
    if as_json:
        print(json.dumps(jobs, indent=2))
        return
    table = Table(title=f"{len(jobs)} jobs in {folder}")
    for column in ("job", "overrides", "iteration time"):
        table.add_column(column, justify="right" if column == "iteration time" else "left", overflow="fold")
    for job in jobs:
        seconds = job["result"]["iteration_time_s"]
        table.add_row(Path(job["folder"]).name, " ".join(job["overrides"]), format_time(seconds))
    Console(width=max(110, Console().width)).print(table)
    print("one table for all, resumed where it stopped, with a report: rostam sweep")
