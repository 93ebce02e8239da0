"""Kernel: what a compute step runs, with a time, or as an op of given shapes that a cost model prices.

Example:
    Kernel(time="1.2 ms")
    Kernel(op="matmul", shapes=((4096, 4096), (4096, 12288)), dtype="bfloat16")
"""

from dataclasses import dataclass, replace

from rostam_py.costs.families import UNNAMED_OP
from rostam_py.costs.written import OPS, WrittenOp, moved_op, written_op
from rostam_py.errors import ConfigError
from rostam_py.plan.tasks import KernelTime
from rostam_py.tracing.aten_kernels import is_aten_name, kernel_of, runs_no_kernel
from rostam_py.units import check_simulated, parse_time

BANDWIDTH = "bandwidth"  # what an op without a formula may be assumed to be bound by
_MOST_LAUNCHES = 2**16  # of one kernel; each of them takes a host's time


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel of a program.

    time: how long it takes [s or text]; None: as the machine's cost model says of ``op``. name: in timelines, by
    default that under which the program has it. op: one of costs.written.OPS, or an ATen name, where it is priced, else
    any name of its type, by which its time is listed. shapes: of the tensors that it reads. dtype: of them. writes:
    shapes of its results, where an ATen name does not imply them. write_dtype: of these, by default ``dtype``; it
    counts where the time is that of bytes. is_causal: attention of an ATen name has a causal mask. assume: BANDWIDTH
    gives an op without a formula the time of the bytes of ``shapes`` and ``writes``, by default
    the first of ``shapes``. flops: local FLOPs of one with a time. module, role, launches, calls, watts: as those of
    plan.tasks.KernelTime.
    """

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    time: str | float | None = None
    name: str = ""
    op: str = ""
    shapes: tuple[tuple[int, ...], ...] = ()
    dtype: str = "bfloat16"
    writes: tuple[tuple[int, ...], ...] = ()
    write_dtype: str = ""
    is_causal: bool = False
    assume: str = ""
    module: str = ""
    flops: float = 0.0
    role: str = ""
    launches: int = 1
    calls: str = ""
    watts: float = 0.0

    def __post_init__(self) -> None:
        if self.assume not in ("", BANDWIDTH):
            raise ConfigError(f"assume is {self.assume!r}; it must be {BANDWIDTH!r}, or left out")
        if self.time is None:
            _ = self.written  # refuses what has no price
            return
        if self.shapes or self.assume:
            raise ConfigError("time and shapes are both given; a kernel has a time, or an op with shapes")
        check_simulated(parse_time(self.time, "time"), "time")
        for key in ("flops", "watts"):
            if not 0 <= getattr(self, key) < float("inf"):
                raise ConfigError(f"{key} is {getattr(self, key)!r}; it must be a finite number >= 0")
        if not 1 <= self.launches <= _MOST_LAUNCHES:
            raise ConfigError(f"launches is {self.launches!r}; it must be an integer from 1 to {_MOST_LAUNCHES}")

    @property
    def written(self) -> WrittenOp:
        """What a cost model is asked. Raises: ConfigError for an op that has no formula, or shapes that do not fit."""
        if not self.op:
            raise ConfigError("a kernel needs a time, or an op and its shapes; neither is given")
        if self.assume:
            return moved_op(
                self.op, self.shapes, self.writes or self.shapes[:1], self.dtype, write_dtype=self.write_dtype
            )
        if self.op in OPS or not is_aten_name(self.op):
            return written_op(self.op, self.shapes, self.dtype)
        return self._aten

    @property
    def _aten(self) -> WrittenOp:
        if runs_no_kernel(self.op):
            raise ConfigError(f"op is {self.op!r}, which only describes or allocates memory; leave the kernel out")
        found = kernel_of(self.op, self.shapes, self.writes, is_causal=self.is_causal)
        if found is None:
            raise ConfigError(
                f"op is {self.op!r}, of shapes {[list(one) for one in self.shapes]}, for which there is no formula;"
                f" give a time, or assume: {BANDWIDTH}, which takes the time of their bytes"
            )
        if found.written:
            return replace(written_op(found.written, found.reads, self.dtype), calls=found.calls)
        moved = moved_op(
            found.op_type, found.reads, found.writes, self.dtype, write_dtype=self.write_dtype,
            is_backward=found.is_backward,
        )  # fmt: skip
        return replace(moved, calls=found.calls)

    @classmethod
    def of(cls, kernel: KernelTime, key: str) -> "Kernel":
        """Return a plan's kernel, with its time. Args: key: under which a program has it."""
        return cls(
            name="" if kernel.name == key else kernel.name,
            time=float(kernel.duration_s), op=kernel.op_type, module=kernel.module, flops=float(kernel.flops),
            role=kernel.role, launches=kernel.launches, calls=kernel.calls, watts=float(kernel.watts),
        )  # fmt: skip

    def timed(self, key: str) -> KernelTime:
        """Return the kernel as a plan has it. REQUIRES: it has a time. Args: key: under which a program has it."""
        return KernelTime(
            name=self.name or key, module=self.module, op_type=self.op or UNNAMED_OP,
            duration_s=parse_time(self.time or 0.0), flops=self.flops, role=self.role, launches=self.launches,
            calls=self.calls, watts=self.watts,
        )  # fmt: skip
