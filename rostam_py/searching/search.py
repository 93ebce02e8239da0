"""search: the best strategy and batch for one model on one machine."""

from collections.abc import Sequence
from typing import Any

from rostam_py.convergence import Curve, Target
from rostam_py.costs import DEFAULT_COST
from rostam_py.graph import OperatorGraph
from rostam_py.plan import Machine, Strategy
from rostam_py.searching.result import SearchResult
from rostam_py.searching.searcher import Searcher
from rostam_py.simulation.options import takes_options
from rostam_py.software.names import DEFAULT_SOFTWARE
from rostam_py.software.program import Given


@takes_options
def search(
    graph: OperatorGraph,
    machine: Machine,
    *,
    convergence: str | Curve | Target | None = None,
    target: str | None = None,
    batches: Sequence[int] | None = None,
    placers: Sequence[str] | None = None,
    strategies: Sequence[Strategy] | None = None,
    axes: Any = None,
    base: Strategy | None = None,
    max_circuit_degree: int | None = None,
    num_simulated: int = 8,
    extrapolate: bool = False,
    accelerator_usd_per_hour: float | None = None,
    budget: str | float | None = None,
    cost: str = DEFAULT_COST,
    cost_config: dict[str, Any] | None = None,
    software: Given = DEFAULT_SOFTWARE,
    routing: str = "spray",
    fidelity: str = "flow",
    seed: int = 0,
    controllers: Sequence[Any] = (),
) -> SearchResult:
    """Find the strategy and global batch with the least time-to-accuracy, or time per sample without a curve.

    Model: every (dp, tp, pp, micro-batch) and (dp, mp) that uses all working accelerators, divides the batch and fits
        in memory is estimated (``estimate_plan``); the best ``num_simulated`` are simulated and ranked by that, up
        to three times as many while the next could win if its estimate erred as much as those seen. A candidate
        whose compute alone exceeds the best estimates is left out, with that reason. With ``axes`` strategies are too
        many for that: they are pruned by memory and ranked by quick estimates from probes of two and three blocks
        first, and the best 3 ``num_simulated`` of them, at least 16, are placed and estimated.
    Args: convergence: a name in CURVES, a CSV file's, or a Curve. target: an amount of data instead, "1 T tokens", with
        batches. batches: global batches; default the powers of two inside the
        curve's measured range, or its one batch. placers: registered names; default all. strategies: consider
        these only. axes: what is varied: None for the degrees; "all"; a list of names; or a mapping of names to
        values, None for an axis's own (``SEARCHED_AXES``).
        base: precision, optimizer, algorithms and so on of all candidates; its recompute level rises
        where memory needs it.
        max_circuit_degree: refuse plans with more peers an accelerator. extrapolate: allow batches that the curve
        did not measure. accelerator_usd_per_hour: for the dollars of training. budget: wall-clock time, "60 s", after
        which the best so far is returned, with a note of what was not tried; results then depend on how fast this
        machine is. cost, cost_config, software: as ``place``, one program for all candidates;
        routing, fidelity, seed, controllers, options: as ``simulate``.
    Returns: candidates, best first; estimate and simulation of each, and why others were refused.
    Raises: ConfigError where nothing fits, neither batches nor a curve are given, or the curve's samples are not the
        model's.
    Cost: about 0.2 s a plan of 3,500 ops, 5 ms an estimate, and the simulations. ``Searcher`` shares plans between
        machines.
    Source: SiP-ML, section 3.2, step 4; own estimator, tests/searching compares with exhaustive simulation.
    """
    searcher = Searcher(
        graph, base=base, placers=placers, cost=cost, cost_config=cost_config, software=software, routing=routing,
        fidelity=fidelity, seed=seed, controllers=controllers,
    )  # fmt: skip
    return searcher.search(
        machine, convergence=convergence, target=target, batches=batches, strategies=strategies, axes=axes,
        max_circuit_degree=max_circuit_degree, num_simulated=num_simulated, extrapolate=extrapolate,
        accelerator_usd_per_hour=accelerator_usd_per_hour, budget=budget,
    )  # fmt: skip
