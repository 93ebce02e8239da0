"""Options of a sweep: where it runs and what it keeps."""

from dataclasses import dataclass, field

from rostam_py.errors import ConfigError
from rostam_py.extras import Need

# Backend -> the packages of the extra "sweep" that it needs.
BACKEND_PACKAGES = {"ray": ("ray",), "process": ("loky",), "inline": ()}
BACKENDS = tuple(BACKEND_PACKAGES)
DEFAULT_DETAILS = 6  # at most, one per fabric
# The column of an axis fidelity: a point's time over that of the same point with the axis' first engine, less 1.
OVER_FIRST = "over_first_fidelity"


@dataclass(kw_only=True, slots=True)
class SweepOptions:
    """How a sweep runs; nothing here changes a result.

    workers: number of workers; null takes all CPUs. backend: ray, process (a pool on this machine, starts at once) or
    inline (in this process). address: address of a running Ray cluster, auto for the one on this machine; null starts
    Ray here. retries: number of times that a point may lose its worker. store: folder of finished points that several
    sweeps share; null keeps them with the sweep. details: number of points whose traffic, links and critical path the
    report draws, the most stressed one of each fabric first; null takes one per fabric, at most 6, and none with
    report=false. title: title of table and report. trace_cache: take models' graphs from the trace cache (rostam cache)
    if their sources are unchanged.
    """

    workers: int | None = None
    backend: str = field(default="ray", metadata={"choices": BACKENDS})
    address: str | None = None
    retries: int = 2
    store: str | None = None
    details: int | None = None
    title: str | None = None
    trace_cache: bool = True

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise ConfigError(f"sweep.backend is {self.backend!r}; it must be one of: {', '.join(BACKENDS)}")
        if self.workers is not None and self.workers < 1:
            raise ConfigError(f"sweep.workers is {self.workers}; it must be >= 1, or null for all CPUs")
        if self.address is not None and self.backend != "ray":
            raise ConfigError(f"sweep.address is {self.address!r}, but sweep.backend={self.backend} runs here; use ray")
        for key in ("retries", "details"):
            if (getattr(self, key) or 0) < 0:
                raise ConfigError(f"sweep.{key} is {getattr(self, key)}; it must be >= 0")

    def needs(self) -> list[Need]:
        """Return what the backend needs of the extras."""
        packages = BACKEND_PACKAGES[self.backend]
        if not packages:
            return []
        without = " or ".join(f"sweep.backend={name}" for name, needed in BACKEND_PACKAGES.items() if not needed)
        return [Need(f"sweep.backend={self.backend}", "sweep", packages, without)]
