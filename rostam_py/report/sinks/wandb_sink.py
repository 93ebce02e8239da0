"""The only door to Weights & Biases: a run's folder becomes a run there, a sweep's folder a group of runs.

Where runs go, the first that is given: options.mode; WANDB_MODE; the mode in wandb's own settings file (of
``wandb init --mode`` or ``wandb offline``); else offline. A key alone (``wandb login``) uploads nothing: uploading has
to be asked for by a mode. Offline needs neither key nor network; ``wandb sync`` uploads later, from the same account of
the same machine, as wandb keeps artifacts in its own data folder (WANDB_DATA_DIR) until then.

    print(log_run("runs/mine", WandbOptions(project="machines")))
"""

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rostam_py.errors import ConfigError
from rostam_py.extras import Need, require
from rostam_py.report.run.load import load_run
from rostam_py.report.sinks import wandb_content as content
from rostam_py.report.sinks.wandb_options import OLD_MODES, WandbOptions, check_mode
from rostam_py.report.sweep.load import SweepData, load_sweep

_MAX_NAME = 128


def log_run(folder: str | Path, options: WandbOptions) -> str:
    """Send a run's folder: configuration, figures, curves, tables and the report.

    Returns: where the run is, and how to upload it if it is offline.
    Raises: ConfigError if the folder, the options or wandb's set-up is not usable.
    """
    folder, detail = Path(folder), load_run(folder)
    result = _read_json(folder / "result.json") or detail["result"]
    name = content.run_name(result)
    config = _read_yaml(folder / "config.yaml") | {"resolved": content.result_config(result)}
    config["rostam_version"] = (_read_json(folder / "run.json") or {}).get("rostam_version")
    with _quiet(options) as mode:
        run = _open(options, mode, _place(options, folder), "run", name, config, options.group)
        _log_result(run, result, detail)
        _log_artifact(run, name, folder, ("report.html", "result.json"))
        return _close(run, mode, name)


def log_sweep(folder: str | Path, options: WandbOptions) -> str:
    """Send a sweep's folder: one run of the whole table, and one for each point of a small sweep, in one group.

    Returns: where they are, and how to upload them if they are offline.
    Raises: ConfigError as ``log_run``.
    """
    data = load_sweep(folder)
    return SweepLogger(options, data.manifest, folder).finish(folder)


class SweepLogger:
    """The run of a whole sweep, open while the sweep is: its progress can be watched online.

    Args: manifest: of sweep.json. folder: of the sweep, where offline runs go unless the options say otherwise.
    """

    def __init__(self, options: WandbOptions, manifest: Mapping[str, Any], folder: str | Path = ".") -> None:
        self._options = options
        self._group = options.group or content.sweep_group(manifest)
        self._name = str(manifest.get("title") or "sweep")
        self._place = _place(options, Path(folder))
        with _quiet(options) as mode:
            self._mode = mode
            config = content.sweep_config(manifest)
            self._run = _open(options, mode, self._place, "sweep", self._name, config, self._group)
            self._run.define_metric("progress/*", step_metric="progress/points", summary="none")

    def log_progress(self, done: int, errors: int, best: float | None = None) -> None:
        """Record how many points are done, how many of them failed, and the least objective so far [s]."""
        values = {"progress/points": done, "progress/errors": errors, "progress/best_s": best}
        self._run.log({key: value for key, value in values.items() if value is not None})

    def finish(self, folder: str | Path | None = None) -> str:
        """Add what the sweep's folder holds and close the run; without a folder, close it as cut off.

        Returns: where the runs are, and how to upload them if they are offline.
        """
        if folder is None:
            return _close(self._run, self._mode, self._name, exit_code=1)
        folder, data = Path(folder), load_sweep(folder)
        with _quiet(self._options, self._mode):
            _log_sweep(self._run, data)
            _log_artifact(self._run, self._name, folder, ("report.html", "sweep.json", "points.parquet"))
            said = _close(self._run, self._mode, f"sweep {self._name!r}")
            if 0 < len(data.table) <= self._options.points:
                for row in data.table.iter_rows(named=True):
                    self._log_point(data, row)
                said = f"{said}\n{self._say_points(len(data.table))}"
        return said

    def _log_point(self, data: SweepData, row: Mapping[str, Any]) -> None:
        name, config = content.point_name(data, row), content.point_config(data, row)
        run = _open(self._options, self._mode, self._place, "point", name, config, self._group)
        detail = data.details.get(row["key"])
        if detail is not None:
            _log_result(run, detail["result"], detail)
        run.summary.update(content.point_summary(data, row))
        run.finish(exit_code=0 if row["status"] == "ok" else 1)

    def _say_points(self, count: int) -> str:
        text = f"wandb: {count} runs of its points in the group {self._group!r}"
        if self._mode != "offline":
            return text
        return f"{text}; upload all of them: wandb sync {shlex.quote(str(self._place / 'wandb'))}/offline-run-*"


def resolve_mode(options: WandbOptions) -> str:
    """Return "offline", "online" or "disabled", as the head of this file says.

    Raises: ConfigError for an unknown WANDB_MODE, wandb missing, or online without credentials: nothing ever prompts.
    """
    wandb = _import_wandb()
    mode = options.mode
    if mode is None and os.environ.get("WANDB_MODE"):
        mode = check_mode("WANDB_MODE", os.environ["WANDB_MODE"])  # before wandb, whose own error names no variable
    settings = wandb.setup().settings
    if mode is None:
        # The default of an absent setting is online; only one that a file gives counts.
        is_given = "mode" in settings.model_fields_set
        mode = check_mode("mode of wandb's settings file", settings.mode) if is_given else "offline"
    mode = OLD_MODES.get(mode, mode)
    if mode == "online" and not _has_credentials(settings):
        raise ConfigError(
            "wandb.mode is 'online', but wandb has no key for "
            f"{settings.base_url}; run `wandb login`, set WANDB_API_KEY, or take wandb.mode=offline"
        )
    return mode


def _has_credentials(settings: Any) -> bool:
    """Say whether wandb finds a key without asking: environment, settings file, netrc; nothing is contacted."""
    import netrc

    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE") or settings.api_key:
        return True
    hosts = [urlsplit(str(settings.base_url)).netloc]
    if "base_url" not in settings.model_fields_set:
        hosts.append("api.wandb.ai")  # the default host's other name
    names = [os.environ.get("NETRC"), "~/.netrc", "~/_netrc"]
    path = next((path for name in names if name and (path := Path(name).expanduser()).is_file()), None)
    try:
        return path is not None and any(netrc.netrc(str(path)).authenticators(host) for host in hosts)
    except (netrc.NetrcParseError, OSError):
        return False


def _import_wandb() -> Any:
    require(Need("wandb.enable=true", "wandb"))
    import wandb

    return wandb


@contextmanager
def _quiet(options: WandbOptions, mode: str | None = None) -> Iterator[str]:
    """Run wandb without a word on the console, and offline without a byte on the network; yield the mode.

    wandb's service reports errors to its makers even offline unless WANDB_ERROR_REPORTING says no.
    """
    wishes = {"WANDB_SILENT": "true"}
    if os.environ.get("WANDB_MODE") != "online" and options.mode != "online":
        wishes["WANDB_ERROR_REPORTING"] = "false"
    added = {key: value for key, value in wishes.items() if key not in os.environ}
    os.environ.update(added)
    try:
        errors = _import_wandb().errors
        try:
            yield mode if mode is not None else resolve_mode(options)
        except errors.Error as error:
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ConfigError(f"wandb failed: {first}; wandb.mode=offline keeps results on this machine") from error
    finally:
        for key in added:
            os.environ.pop(key, None)


def _place(options: WandbOptions, folder: Path) -> Path:
    return Path(options.dir or os.environ.get("WANDB_DIR") or folder)


def _open(
    options: WandbOptions, mode: str, place: Path, job_type: str, name: str, config: dict[str, Any], group: str | None
) -> Any:
    """Start a run in addition to any that the user has open."""
    wandb = _import_wandb()
    place.mkdir(parents=True, exist_ok=True)
    # wandb's own word on x_ settings: they may go without notice. Without these two it looks at this machine.
    unlisted = {name: True for name in ("x_disable_stats", "x_disable_machine_info") if _has_setting(wandb, name)}
    settings = wandb.Settings(
        silent=True, console="off", reinit="create_new", disable_git=True, disable_code=True,
        disable_job_creation=True, **unlisted,
    )  # fmt: skip
    return wandb.init(
        project=options.project, entity=options.entity, group=group, job_type=job_type, name=name[:_MAX_NAME],
        tags=[str(tag) for tag in options.tags] or None, config=config, mode=mode, dir=str(place), settings=settings,
    )  # fmt: skip


def _has_setting(wandb: Any, name: str) -> bool:
    return name in wandb.Settings.model_fields


def _close(run: Any, mode: str, name: str, exit_code: int = 0) -> str:
    """End a run; return where it is."""
    where, url = Path(run.dir).parent, run.url
    run.finish(exit_code=exit_code)
    if mode == "disabled":
        return f"wandb: disabled, {name} is not logged"
    if mode == "online":
        return f"wandb: {name} is at {url}"
    return f"wandb: {name} is offline in {where}; upload it: wandb sync {shlex.quote(str(where))}"


def _log_result(run: Any, result: Mapping[str, Any], detail: Mapping[str, Any]) -> None:
    """Put curves, tables and figures of one result into a run."""
    for x, rows in content.result_curves(result, detail).items():
        run.define_metric(x, hidden=True, summary="none")
        for name in rows[0]:
            if name != x:
                run.define_metric(name, step_metric=x, summary="none")
        for row in rows:
            run.log(row)
    tables = content.result_tables(result, detail)
    if tables:
        run.log({name: _table(list(rows[0]), [list(row.values()) for row in rows]) for name, rows in tables.items()})
    run.summary.update(content.result_summary(result))


def _log_sweep(run: Any, data: SweepData) -> None:
    wandb = _import_wandb()
    columns, rows = content.sweep_rows(data)
    found: dict[str, Any] = {"points_table": _table(columns, rows)}
    for chart in content.sweep_charts(data):
        xs, ys = [x for x, _ in chart.lines.values()], [y for _, y in chart.lines.values()]
        found[chart.name] = wandb.plot.line_series(
            xs=xs, ys=ys, keys=list(chart.lines), title=chart.title, xname=chart.x_name
        )
    run.log(found)
    run.summary.update(content.sweep_summary(data))


def _table(columns: list[str], rows: Sequence[list[Any]]) -> Any:
    return _import_wandb().Table(columns=columns, data=list(rows))


def _log_artifact(run: Any, name: str, folder: Path, files: Sequence[str]) -> None:
    """Attach the named files that exist: of type report if the page is among them."""
    paths = [folder / file for file in files if (folder / file).is_file()]
    if not paths:
        return
    kind = "report" if (folder / "report.html") in paths else "result"
    slug = re.sub(r"[^A-Za-z0-9_.-]+", "-", name)[: _MAX_NAME - len(kind) - 1].strip("-")
    artifact = _import_wandb().Artifact(f"{kind}-{slug}", type=kind)
    for path in paths:
        artifact.add_file(str(path))
    run.log_artifact(artifact)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    except ValueError as error:
        raise ConfigError(f"{path} is damaged: {error}") from error


def _read_yaml(path: Path) -> dict[str, Any]:
    """Return the resolved configuration that the command line wrote; {} where there is none."""
    import yaml

    try:
        return (yaml.safe_load(path.read_text(encoding="utf-8")) or {}) if path.is_file() else {}
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is damaged: {error}") from error
