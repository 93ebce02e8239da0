"""Bill: accelerator-hours, dollars and energy of a job over weeks, its spares included.

Example:
    Bill(num_accelerators=136, usd_per_hour=2.0, watts=1_100.0).over(86_400.0)   # of a day

Model: spares are paid as the job's own servers are, whether the job runs, waits or restarts. Energy is an upper bound:
all accelerators draw the most that their machine can, all the time.
"""

from dataclasses import dataclass

_HOUR_S, _KWH_J = 3_600.0, 3.6e6


@dataclass(frozen=True, kw_only=True)
class Bill:
    """What an hour costs.

    num_accelerators: of the job and its spares. usd_per_hour: of one accelerator, None where no price was given.
    watts: the most that one accelerator's share of the machine draws [W], None where that is not known.
    """

    num_accelerators: int
    usd_per_hour: float | None = None
    watts: float | None = None

    def over(self, seconds: float | None) -> dict[str, float | None]:
        """Return accelerator_hours, usd and energy_kwh (at most) of a time; None where something is not known.

        Args: seconds: wall time [s]; None for one that never ends.
        """
        hours = None if seconds is None else self.num_accelerators * seconds / _HOUR_S
        return {
            "accelerator_hours": hours,
            "usd": None if hours is None or self.usd_per_hour is None else hours * self.usd_per_hour,
            "energy_kwh": None if hours is None or self.watts is None else hours * _HOUR_S * self.watts / _KWH_J,
        }
