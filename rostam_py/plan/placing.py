"""Placing: particulars of how a placer puts a strategy on a machine, beyond its degrees.

Example:
    Strategy(mp=16, placer="sip_ml", placing={"quantum": "20 us"})
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rostam_py.checks import check_seed
from rostam_py.errors import ConfigError, UnitError
from rostam_py.field_words import value_in_brackets
from rostam_py.plan.layer_layout import LayerLayout
from rostam_py.plan.table_ids import ID_PROFILES, UNIFORM
from rostam_py.units import check_simulated, parse_size, parse_time

WINDOWS = ("symmetric", "paper")
WEIGHT_SPLITS = ("least_sent", "sliced")
_WHERE = "strategy.placing"


@dataclass(kw_only=True, slots=True)
class Placing:
    """Particulars of a placement.

    replicated_tables: maximum size of a table, optimizer state included, that is replicated on every rank whatever
        tables says.
    table_ids: how often the rows of tables that are not replicated are looked up: uniform, or the measured frequencies
        of a data set such as criteo_1tb (plan/table_ids.py), with which fewer distinct rows are updated.
    quantum: target duration of sip_ml's sub-ops; 10 us in SiP-ML's evaluation (3.2).
    weight_splits: how sip_ml's sub-ops split weight matrices: least_sent, so that a group sends the least (3.2),
        possibly with a copy on every device, and sliced where these copies do not fit in memory; or sliced, one copy in
        each group.
    window: which devices of a group may exchange data where mp exceeds max_circuit_degree: symmetric or paper (MODEL
        D14).
    mapping_seed: seed of the random mapping, 0 to 2^64 - 1.
    layers: number of repeated blocks of each stage, or, with virtual_stages, of each chunk, in the order in which the
        model runs: a list such as [5,9,9,9], or Megatron's layout text such as "E t*2 | (t*2 |)*2 t L". In a list the
        first chunk also has what is in front of the blocks, and the last one what is behind them. If unset, the
        program's own split (software.rules.stage_blocks).
    """

    replicated_tables: Any = field(default="0 B", metadata={"unit": "size"})
    table_ids: str = field(default=UNIFORM, metadata={"choices": ID_PROFILES})
    quantum: Any = field(default="10 us", metadata={"unit": "time"})
    weight_splits: str = field(default="least_sent", metadata={"choices": WEIGHT_SPLITS})
    window: str = field(default="symmetric", metadata={"choices": WINDOWS})
    mapping_seed: int = 0
    layers: Any = field(default=None, metadata={"is_sequence": True})

    def __post_init__(self) -> None:
        for entry in dataclasses.fields(self):
            allowed = tuple(entry.metadata.get("choices", ()))
            value = getattr(self, entry.name)
            if allowed and value not in allowed:
                hint = value_in_brackets(entry.name, value)
                raise ConfigError(f"{_WHERE}.{entry.name} is {value!r}{hint}; it must be one of: {', '.join(allowed)}")
        check_seed(f"{_WHERE}.mapping_seed", self.mapping_seed)
        if parse_time(self.quantum, f"{_WHERE}.quantum") <= 0:
            raise UnitError(f"{_WHERE}.quantum is {self.quantum!r}; it must be > 0")
        check_simulated(parse_time(self.quantum, f"{_WHERE}.quantum"), f"{_WHERE}.quantum")
        layout = self.layout
        if layout is not None and not isinstance(self.layers, str):
            self.layers = list(layout.blocks)

    @classmethod
    def of(cls, given: Any) -> "Placing":
        """Return particulars by key, or as they are.

        Raises: ConfigError for what is neither a mapping nor a Placing, and for unknown keys.
        """
        if isinstance(given, cls):
            return given
        if not isinstance(given, Mapping):
            raise ConfigError(f"{_WHERE} is {given!r}; it must be a mapping, such as {{quantum: 20 us}}")
        for key in given:
            if key not in PLACING_NAMES:
                raise ConfigError(f"unknown key '{_WHERE}.{key}'; {_WHERE} has: {', '.join(PLACING_NAMES)}")
        return cls(**given)

    @property
    def replicated_tables_bytes(self) -> int:
        """``replicated_tables`` [bytes]."""
        return parse_size(self.replicated_tables, f"{_WHERE}.replicated_tables")

    @property
    def layout(self) -> LayerLayout | None:
        """``layers``, as it is cut; None where the program cuts."""
        return None if self.layers is None else LayerLayout.of(self.layers, f"{_WHERE}.layers")


PLACING_NAMES = tuple(entry.name for entry in dataclasses.fields(Placing))
