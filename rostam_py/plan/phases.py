"""Names of a stage's templates: which phase of a micro-batch they are, and of which chunk of layers.

Example:
    template_name("backward", 2, is_last=True)          # "backward_last.2"
    phase_of("backward_last.2"), chunk_of("backward_last.2"), is_last("backward_last.2")    # "backward", 2, True

The last micro-batch's variant also reduces gradients; the first one's, where there is one, gathers weights. A device
with one chunk has names without a number.
"""

FORWARD = "forward"
BACKWARD = "backward"  # of a schedule that splits it: the gradients of inputs alone
WEIGHT = "weight"  # the gradients of weights, where a schedule runs them apart
FULL = "full_backward"  # both, of a schedule that splits the backwards of some micro-batches alone
PHASES = (FORWARD, BACKWARD, WEIGHT, FULL)
BACKWARDS = (BACKWARD, FULL)  # what gives back what a forward keeps, and sends gradients to the stage before
_LAST, _FIRST = "_last", "_first"


def template_name(phase: str, chunk: int | None = None, *, is_first: bool = False, is_last: bool = False) -> str:
    """Return a template's name. Args: chunk: of the device, None if it holds one alone."""
    name = phase + (_FIRST if is_first else _LAST if is_last else "")
    return name if chunk is None else f"{name}.{chunk}"


def phase_of(name: str) -> str:
    """Return the phase of a template; its name where it is none of these."""
    phase = name.partition(".")[0].removesuffix(_LAST).removesuffix(_FIRST)
    return phase if phase in PHASES else name


def chunk_of(name: str) -> int | None:
    """Return the chunk of a template, None for a device with one."""
    number = name.partition(".")[2]
    return int(number) if phase_of(name) in PHASES and number.isdigit() else None


def is_last(name: str) -> bool:
    """Return whether a template is the last micro-batch's variant."""
    return phase_of(name) in PHASES and name.partition(".")[0].endswith(_LAST)


def is_first(name: str) -> bool:
    """Return whether a template is the first micro-batch's variant."""
    return phase_of(name) in PHASES and name.partition(".")[0].endswith(_FIRST)
