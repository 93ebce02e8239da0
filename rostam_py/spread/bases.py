"""What an iteration's compute time rests on: kernels measured at about their shape, beyond it, of other kinds, or not.

Example:
    compute_by_basis(simulate(plan))    # {"interpolated": 0.031, "extrapolated": 0.008, ...} [s]
"""

from rostam_py.plan.tasks import KernelTime
from rostam_py.simulation.job_result import JobResult
from rostam_py.spread.changes import kernel_limits

GIVEN = "given, not predicted"


def compute_by_basis(result: JobResult) -> dict[str, float]:
    """Return compute by what its kernels' times rest on, in the cost model's words: mean over devices [s].

    Model: as ``JobResult.compute_by_family``; sums to ``breakdown["compute"]``.
    Returns: nothing where no kernel says what it rests on (cost=constant, a plan from a file).
    """
    known: dict[int, str] = {}  # by identity: repeated blocks share kernels, and the result holds them meanwhile

    def basis_of(kernel: KernelTime) -> str:
        if id(kernel) not in known:
            limits = kernel_limits(kernel)
            known[id(kernel)] = GIVEN if limits is None else limits.basis
        return known[id(kernel)]

    found = result.compute_by(basis_of)
    return {} if set(found) <= {GIVEN} else found
