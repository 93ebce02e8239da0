"""``rostam check``: whether packets of a routing can block each other for good, or cables differ from a plan."""

import json
from typing import Any

from rostam_py.cli.compose import compose_config
from rostam_py.cli.schema import CheckConfig, name_of
from rostam_py.errors import ConfigError
from rostam_py.fabrics.cabling import check_cabling, planned_cables, write_cabling
from rostam_py.fabrics.dependencies import check_dependencies
from rostam_py.fabrics.fabric import Fabric
from rostam_py.fabrics.failures import RandomFailures
from rostam_py.fabrics.forwarding import count_disjoint_paths
from rostam_py.fabrics.routings import layers_of

_FOUND = 1  # exit status: a cycle, no path at all, or a cable that is not as planned


def check(overrides: list[str], as_json: bool) -> int:
    """Run the check that is asked for. Returns the exit status: 1 if it finds anything."""
    config: CheckConfig = compose_config("check", overrides)
    fabric = Fabric(name_of("fabric", config.fabric), config.fabric)
    if config.cables is None and config.write_cables is None:
        return _dependencies(config, config.failures.applied_to(fabric), as_json)
    if config.failures != RandomFailures():
        raise ConfigError("cables are compared with those of the fabric without failures: leave failures out")
    if config.cables is not None and config.write_cables is not None:
        raise ConfigError(
            f"cables is {config.cables!r} and write_cables {config.write_cables!r}; give one, to compare or to write"
        )
    return _write(config.write_cables, fabric, as_json) if config.cables is None else _cables(config, fabric, as_json)


def _dependencies(config: CheckConfig, fabric: Fabric, as_json: bool) -> int:
    found = check_dependencies(fabric, config.routing, virtual_channels=config.virtual_channels)
    about: dict[str, Any] = {
        "fabric": fabric.describe(),
        "routing": config.routing,
        "virtual_channels": config.virtual_channels,
    }
    title = f"routing {config.routing} on {fabric.describe()}"
    if config.virtual_channels != "routing":
        title += f", virtual channels: {config.virtual_channels}"
    text = f"{title}\n{found}"
    if layers := layers_of(config.routing):
        disjoint = count_disjoint_paths(fabric, layers)
        about["layers"], text = disjoint.to_dict(), f"{text}\n{disjoint}"
    _print(about | found.to_dict(), text, as_json)
    return 0 if found.is_deadlock_free and found.num_pairs else _FOUND


def _cables(config: CheckConfig, fabric: Fabric, as_json: bool) -> int:
    found = check_cabling(fabric, str(config.cables))
    about = {"fabric": fabric.describe(), "cables": config.cables}
    _print(about | found.to_dict(), f"{config.cables} against a plane of {fabric.describe()}\n{found}", as_json)
    return 0 if found.is_right else _FOUND


def _write(path: Any, fabric: Fabric, as_json: bool) -> int:
    write_cabling(fabric, path, key="write_cables")
    count = len(planned_cables(fabric))
    said = f"{count:,} cables of a plane of {fabric.describe()} written to {path}"
    _print({"fabric": fabric.describe(), "write_cables": path, "num_cables": count}, said, as_json)
    return 0


def _print(document: dict[str, Any], text: str, as_json: bool) -> None:
    print(json.dumps(document, indent=2) if as_json else text)
