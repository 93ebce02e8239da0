"""1F1B, plain and interleaved: a backward as soon as there is one, then a forward and a backward in turn."""

from rostam_py.errors import DegreeError
from rostam_py.placement.schedule import Schedule, in_turn
from rostam_py.plan.phases import BACKWARD, FORWARD, template_name
from rostam_py.plan.program import Entry, Program, Segment


class OneForwardOneBackward(Schedule):
    """A forward and a backward in turn; interleaved if a device holds several chunks of layers.

    Model: with equal stages and free communication m micro-batches on p stages of v chunks each have a bubble of
        (p - 1) / (m v) of the work. Stage r runs p - r - 1 forwards ahead; interleaved, min(2 (p - r - 1) +
        (v - 1) g, m v) of chunks, a group of g micro-batches through a chunk, then the same ones through the next. g is
        p if it is not given. The first stage holds the activations of min(p, m) micro-batches, interleaved
        1 + (p - 1) / (p v) times those where g is p.
    Source: Narayanan et al. 2021, section 2.2; the order of interleaved micro-batches is Megatron-LM's
        (get_schedule_table and get_pp_rank_microbatches in megatron/core/pipeline_parallel/schedules.py).
    """

    takes_chunks = takes_groups = runs_ahead = True

    @classmethod
    def check_microbatches(
        cls, num_microbatches: int, num_stages: int, num_chunks: int, said: str, group: int | None = None
    ) -> None:
        """Check that interleaved micro-batches are whole groups, or leave one that fills the pipeline.

        Raises: DegreeError.
        """
        if num_chunks == 1:
            return
        if group is None:
            if num_microbatches % num_stages:
                raise DegreeError(
                    f"{said}; with strategy.virtual_stages = {num_chunks} they must be a multiple of"
                    f" strategy.pp = {num_stages}"
                )
            return
        if not num_stages <= group <= num_microbatches:
            raise DegreeError(
                f"{said}; software.rules.microbatch_group_size is {group}; it must be from strategy.pp ="
                f" {num_stages} to {num_microbatches}"
            )
        if 0 < num_microbatches % group < num_stages:
            raise DegreeError(
                f"{said}; with software.rules.microbatch_group_size = {group} a group of"
                f" {num_microbatches % group} is left; it must be 0, or strategy.pp = {num_stages} or more"
            )

    def program(
        self, stage: int, num_stages: int, num_microbatches: int, num_chunks: int, ahead: int = 0,
        group: int | None = None,
    ) -> Program:  # fmt: skip
        """Return what a stage runs.

        Args: num_microbatches: as ``check_microbatches`` takes them. ahead: forwards more in front of the first
            backward than the pipeline needs. group: micro-batches that go through a chunk before the next one.
        """
        if num_chunks == 1:
            return in_turn(min(num_stages - stage - 1 + ahead, num_microbatches), num_microbatches)
        size = num_stages if group is None else group
        warmup = 2 * (num_stages - stage - 1) + (num_chunks - 1) * size + ahead
        return _interleaved(warmup, num_microbatches, num_chunks, size)


def _interleaved(warmup: int, num_microbatches: int, num_chunks: int, group: int) -> Program:
    """Return so many forwards, then backwards and forwards in turn; the last group may be smaller."""
    period, total = group * num_chunks, num_microbatches * num_chunks
    left = num_microbatches % group
    whole = total - left * num_chunks  # of whole groups

    def entry(phase: str, k: int) -> Entry:
        """Return the k-th forward or backward."""
        number, within = divmod(k, period)
        chunk, member = divmod(within, group if k < whole else left)
        microbatch = number * group + member
        is_backward = phase == BACKWARD
        place = num_chunks - 1 - chunk if is_backward else chunk
        return template_name(phase, place, is_last=is_backward and microbatch == num_microbatches - 1), microbatch

    def pairs(begin: int, end: int) -> tuple[Entry, ...]:
        return tuple(one for k in range(begin, end) for one in (entry(FORWARD, warmup + k), entry(BACKWARD, k)))

    warmup = min(warmup, total)
    num_pairs = total - warmup
    # Whole periods of whole groups, backwards without a last micro-batch.
    repeats = max(0, min(whole - warmup, whole if left else whole - period) // period)
    segments = [Segment(tuple(entry(FORWARD, k) for k in range(warmup)))]
    if repeats:
        segments.append(Segment(pairs(0, period), repeats, group))
    rest = pairs(repeats * period, num_pairs) + tuple(entry(BACKWARD, k) for k in range(num_pairs, total))
    return Program((*segments, Segment(rest)))
