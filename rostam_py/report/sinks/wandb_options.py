"""Options of Weights & Biases, apart from what sends there: the command line's schema holds them at every call."""

from dataclasses import dataclass

from rostam_py.errors import ConfigError

MODES = ("offline", "online", "disabled")
OLD_MODES = {"dryrun": "offline", "run": "online"}  # what wandb calls them too


@dataclass(kw_only=True, slots=True)
class WandbOptions:
    """Where results go in Weights & Biases.

    enable: send results, the report included, from the command line. project, entity, group, tags: wandb's own
    settings; a sweep's default group is its title and a digest. mode: "offline", "online" or "disabled"; None takes
    WANDB_MODE, then wandb's settings file, then offline. dir: where wandb puts its folder; default WANDB_DIR, then the
    result's folder.
    points: a sweep of at most this many points also gets a run for each of them (0.12 s each).
    """

    enable: bool = False
    project: str = "rostam"
    entity: str | None = None
    group: str | None = None
    mode: str | None = None
    tags: tuple[str, ...] = ()
    dir: str | None = None
    points: int = 50

    def __post_init__(self) -> None:
        if self.mode is not None:
            check_mode("wandb.mode", self.mode)
        if not self.project or set(self.project) & set("/\\#?%:"):
            raise ConfigError(f"wandb.project is {self.project!r}; it must be a name without any of / \\ # ? % :")
        if isinstance(self.points, bool) or not isinstance(self.points, int) or self.points < 0:
            raise ConfigError(f"wandb.points is {self.points!r}; it must be an integer >= 0")
        bad = [tag for tag in self.tags if not 0 < len(str(tag)) <= 64]
        if bad:
            raise ConfigError(f"wandb.tags holds {bad[0]!r}; a tag has 1 to 64 characters")


def check_mode(key: str, mode: str) -> str:
    """Return a mode. Raises: ConfigError, naming ``key``, for an unknown one."""
    if mode not in (*MODES, *OLD_MODES):
        raise ConfigError(f"{key} is {mode!r}; it must be one of: {', '.join(MODES)}")
    return mode
