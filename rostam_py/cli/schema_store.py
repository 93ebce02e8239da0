"""Hydra's ConfigStore filled from the registries: every command's schema, and a choice for each fabric, cost
model and software.

Entries become nodes of Hydra when they are first composed: a run chooses one fabric, and pays for no other schema.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from hydra.core.config_store import ConfigNode, ConfigStore
from omegaconf import OmegaConf

from rostam_py.cli.choices import DEFAULT_STRATEGY, WITH_SCHEMAS, default_choices, registered, schema_in
from rostam_py.cli.schema import COMMAND_SCHEMAS, groups_of
from rostam_py.spec.keys import StrategyKeys


class SchemaNode(ConfigNode):
    """An entry of the store. Args: schema: returns the dataclass, whose module may be imported only then.

    The store reads ``node`` of a shallow copy, and copies that deeply: what is made once has to outlive the copy.
    """

    def __init__(self, name: str, schema: Callable[[], Any], group: str | None = None) -> None:
        self.name, self.group, self.package, self.provider = f"{name}.yaml", group, None, None
        self._make = cache(lambda: OmegaConf.structured(schema()))

    def __getattr__(self, name: str) -> Any:
        if name != "node":
            raise AttributeError(name)
        return self._make()


class PrimaryNode(ConfigNode):
    """The primary configuration of a command: its schema, the default choice of each of its groups, no experiment."""

    def __init__(self, command: str, groups: list[str]) -> None:
        chosen = [{group: choice} for group, choice in default_choices().items() if group in groups]
        last: list[Any] = [{"experiment": None}] if "experiment" in groups else []  # its keys go before the command's
        node = OmegaConf.create({"defaults": [f"{command}_schema", *chosen, "_self_", *last]})
        super().__init__(f"{command}.yaml", node, None, None, None)


def store_schemas() -> None:
    """Fill Hydra's ConfigStore; what stands there stays."""
    nodes: list[ConfigNode] = [
        # Commands with groups have a primary configuration above their schema, which chooses of each.
        SchemaNode(f"{command}_schema" if groups_of(schema) else command, partial(COMMAND_SCHEMAS.get, command))
        for command, schema in COMMAND_SCHEMAS.items()
    ]
    nodes += [
        SchemaNode(name, partial(schema_in, group, name), group) for group in WITH_SCHEMAS for name in registered(group)
    ]
    nodes.append(SchemaNode(DEFAULT_STRATEGY, lambda: StrategyKeys, "strategy"))
    nodes += [
        PrimaryNode(command, groups_of(schema)) for command, schema in COMMAND_SCHEMAS.items() if groups_of(schema)
    ]
    repo = ConfigStore.instance().repo
    for node in nodes:
        folder = repo if node.group is None else repo.setdefault(node.group, {})
        folder.setdefault(node.name, node)
