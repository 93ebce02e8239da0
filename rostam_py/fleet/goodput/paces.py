"""Paces: what an iteration takes on fewer replicas, simulated when it is first asked for.

Example:
    paces = EnginePaces(graph, plan, batch="keep")
    paces[7].iteration_s            # 8 replicas less one
"""

from collections.abc import Iterator, Mapping
from typing import Any

from rostam_py.fleet.goodput.long_job import Pace
from rostam_py.graph import OperatorGraph
from rostam_py.plan.plan import Plan
from rostam_py.plan.ranks import accelerators_of_replicas
from rostam_py.simulation.options import SimulationOptions
from rostam_py.simulation.simulate import simulate
from rostam_py.spread.shrinking import shrunk_plan


class EnginePaces(Mapping[int, Pace]):
    """Number of replicas -> Pace, for all numbers below the plan's.

    Model: which replicas are gone does not matter to the time: the last ones are, by an accelerator each. batch: "keep"
        gives each replica that is left more samples, "shrink" as many as before and so a smaller global batch.
        scale: of every time: what a job is expected to take for each second that is simulated.
    Raises: ConfigError, DegreeError on asking for a number that the strategy's layout does not permit.
    """

    def __init__(
        self, graph: OperatorGraph, plan: Plan, *, batch: str = "keep", options: SimulationOptions | None = None,
        cost_config: dict[str, Any] | None = None, scale: float = 1.0,
    ) -> None:  # fmt: skip
        self._graph, self._plan, self._batch = graph, plan, batch
        self._options, self._cost_config, self._scale = options, cost_config, scale
        self._known: dict[int, Pace] = {}

    def __getitem__(self, replicas: int) -> Pace:
        if not 0 < replicas < self._plan.strategy.dp:
            raise KeyError(replicas)
        if replicas not in self._known:
            gone = accelerators_of_replicas(self._plan.strategy, self._plan.machine)[replicas:, 0].tolist()
            fewer = shrunk_plan(self._graph, self._plan, gone, self._batch, self._cost_config)
            seconds = simulate(fewer, options=self._options).iteration_time_s
            self._known[replicas] = Pace(self._scale * seconds, fewer.global_batch / self._plan.global_batch)
        return self._known[replicas]

    def __iter__(self) -> Iterator[int]:
        return iter(range(1, self._plan.strategy.dp))

    def __len__(self) -> int:
        return int(self._plan.strategy.dp) - 1


class PacesOfUnits(Mapping[int, Pace]):
    """Paces of a job whose replicas go in units (layout.py): number of units -> Pace. Args: each: replicas of one."""

    def __init__(self, paces: Mapping[int, Pace], each: int) -> None:
        self._paces, self._each = paces, each

    def __getitem__(self, units: int) -> Pace:
        return self._paces[units * self._each]

    def __iter__(self) -> Iterator[int]:
        return (count // self._each for count in self._paces if count % self._each == 0)

    def __len__(self) -> int:
        return sum(1 for _ in self)
