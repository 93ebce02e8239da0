"""What a composed configuration simulates, as a point of a sweep has it."""

import dataclasses
from typing import Any

from rostam_py.cli.choices import WITH_SCHEMAS
from rostam_py.cli.schema import RunConfig, name_of
from rostam_py.spec.keys import IterationKeys, SearchKeys, keys_of
from rostam_py.spec.settings import Settings, complete_settings


def point_settings(mode: str, config: IterationKeys | SearchKeys) -> Settings:
    """Return what a composed configuration simulates, complete and checked, as a point of a sweep has it."""
    known = [entry for entry in keys_of(mode).values() if hasattr(config, entry.name)]
    given = {entry.name: _plain(getattr(config, entry.name), entry) for entry in known}
    for group in WITH_SCHEMAS:
        given[group] = {"name": name_of(group, getattr(config, group)), **given[group]}
    return complete_settings({"mode": mode, **given})


def _plain(value: Any, entry: Any) -> Any:
    """Return the fields of a section that a point has of it; other values as they are."""
    if not dataclasses.is_dataclass(value):
        return value
    schema = entry.default_factory if dataclasses.is_dataclass(entry.default_factory) else value
    return {inner.name: getattr(value, inner.name) for inner in dataclasses.fields(schema)}


def chosen_names(config: RunConfig) -> dict[str, str]:
    """Return the registered names behind the groups whose keys stand in the configuration without one."""
    return {group: name_of(group, getattr(config, group)) for group in WITH_SCHEMAS}
