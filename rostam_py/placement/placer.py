"""Placer: what place(), a search and a sweep ask of a way to place a model; a registered name stands for a class.

Example:
    class Mine(Placer):                                  # in a file of its own, and one line:
        ...                                              # PLACERS.add("mine", "my_package.mine:Mine")
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from rostam_py.fabrics.fabric import Fabric
from rostam_py.graph import OperatorGraph
from rostam_py.placement.axis_costs import AxisCosts
from rostam_py.plan.fusion import PRODUCER
from rostam_py.plan.machine import Machine
from rostam_py.plan.plan import Plan
from rostam_py.plan.searched_axes import NO_FACTS, ModelFacts, Site, Space
from rostam_py.plan.strategy import Strategy


@dataclass(frozen=True, slots=True)
class Estimate:
    """A plan's estimated iteration. compute_s: kernels of the busiest stage alone, a lower bound."""

    iteration_time_s: float
    compute_s: float


class Estimator(Protocol):
    """Estimates of one plan, which may lie on several machines of one size: what they share is computed once."""

    def estimate(self, plan: Plan, fabric: Fabric, costs: AxisCosts) -> Estimate:
        """Return the estimated iteration of the plan on a fabric, with circuits set where it is circuit-switched.

        Args: costs: of the plan's collectives and messages on that fabric.
        """

    def micro_batch_s(self, plan: Plan, costs: AxisCosts | None) -> float:
        """Return the time of one forward and one backward of an unpipelined plan [s], 0 where that has no meaning.

        Args: costs: None to count kernels alone.
        """


@dataclass(frozen=True, slots=True)
class Planned:
    """A strategy that may be placed. seconds: its quick estimate of an iteration."""

    seconds: float
    strategy: Strategy


@dataclass(slots=True)
class Counts:
    """How many strategies a planner saw: all, those that cannot fit in memory, those that cannot be among the best.

    is_over: whether it may look at no more of them; not_tried: how many it left then.
    """

    seen: int = 0
    too_large: int = 0
    too_slow: int = 0
    estimated: int = 0
    not_tried: int = 0
    is_over: Callable[[], bool] = lambda: False


class StrategyPlanner(Protocol):
    """Quick estimates of the strategies of one model on one machine."""

    def plan(self, site: Site, space: Space, keep: int, counts: Counts) -> list[Planned]:
        """Return at least the ``keep`` strategies with the best quick estimates, best first."""


class Placer(ABC):
    """One way to place: a graph, a machine and a strategy make a plan.

    AXES: degrees of a strategy that it knows. INNER_AXES: those that add no devices, since they divide others.
    reads_fabric: its plans depend on the fabric, not on its size alone (and what ``fabric_key`` says of it).
    fits_memory: ``place`` makes its plans fit; of others a search tries smaller micro-batches, then recomputation.
    shards_state: it knows ``Strategy.shard`` (ZeRO). buffers_gradients: it knows ``Strategy.gradient_buffer``.
    runs_programs: training programs run its plans (``software``); plans of others are ideal.
    SEARCHED: axes of SEARCHED_AXES that it knows.
    FUSIONS: values of ``Strategy.fusion`` that it knows, its default first.

    Args:
        strategy: with this placer's name.
        cost, cost_config: a name in COST_MODELS, and its settings.
        shared: filled and used by placers of one graph and cost model, so that equal work is done once.
    """

    AXES: ClassVar[tuple[str, ...]]
    INNER_AXES: ClassVar[tuple[str, ...]] = ()
    reads_fabric: ClassVar[bool] = True
    fits_memory: ClassVar[bool] = True
    shards_state: ClassVar[bool] = False
    buffers_gradients: ClassVar[bool] = False
    runs_programs: ClassVar[bool] = False
    SEARCHED: ClassVar[tuple[str, ...]] = ()
    FUSIONS: ClassVar[tuple[str, ...]] = (PRODUCER,)

    def __init__(
        self, strategy: Strategy, cost: str, cost_config: dict | None, shared: dict[Any, Any] | None = None
    ) -> None:
        self.strategy, self.cost_name, self.cost_config = strategy, cost, dict(cost_config or {})
        self.shared: dict[Any, Any] = {} if shared is None else shared

    @abstractmethod
    def place(self, graph: OperatorGraph, machine: Machine, global_batch: int) -> Plan:
        """Return the plan. Raises: ConfigError for a strategy that does not fit graph, machine or batch."""

    def check(self, machine: Machine) -> None:  # noqa: B027  (most strategies suit every machine)
        """Refuse a strategy that the machine cannot run, whatever the model. Raises: ConfigError."""

    def doubts(self, graph: OperatorGraph) -> list[str]:
        """Return what of the strategy is legal for this model, but hardly what is meant, as warnings."""
        return []

    @abstractmethod
    def candidates(
        self, num_accelerators: int, batch: int, space: Space | None = None, facts: ModelFacts = NO_FACTS
    ) -> Iterator[Strategy]:
        """Yield the strategies on all accelerators that a search considers, all else as in this placer's own.

        Args: space: what is varied, and where it is counted what cannot be; None varies the degrees. facts: of the
            model.
        """

    @abstractmethod
    def estimator(self, plan: Plan) -> Estimator:
        """Return what estimates a plan of this placer."""

    def planner(
        self, graph: OperatorGraph, machine: Machine, routing: str, shared: dict[Any, Any],
        run: Callable[[Strategy], Strategy],
    ) -> StrategyPlanner | None:  # fmt: skip
        """Return what ranks this placer's strategies without placing them; None if nothing does.

        Args: shared: costs of the fabric's routes, filled and used. run: returns a strategy as its program runs it.
        """
        return None

    def fabric_key(self, machine: Machine) -> Hashable:
        """Return what of a fabric the plan depends on, beyond its size and failed accelerators.

        Fabrics with equal keys have equal plans.
        Raises: ConfigError for a strategy that the fabric rules out.
        """
        return id(machine.fabric) if self.reads_fabric else None

    def lower_bound_s(self, graph: OperatorGraph, machine: Machine, global_batch: int) -> float | None:
        """Return what an iteration takes at least [s], if that is found sooner than a plan; None if it is not.

        Raises: ConfigError as ``place``.
        """
        return None
