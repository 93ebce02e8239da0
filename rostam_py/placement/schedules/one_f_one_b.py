"""1F1B, plain and interleaved: a backward as soon as there is one, then a forward and a backward in turn."""

from rostam_py.errors import DegreeError
from rostam_py.placement.schedule import Schedule, in_turn
from rostam_py.plan.phases import BACKWARD, FORWARD, template_name
from rostam_py.plan.program import Entry, Program, Segment


class OneForwardOneBackward(Schedule):
    """A forward and a backward in turn; interleaved if a device holds several chunks of layers.

    Model: with equal stages and free communication m micro-batches on p stages of v chunks each have a bubble of
        (p - 1) / (m v) of the work. Stage r runs p - r - 1 forwards ahead; interleaved, min(2 (p - r - 1) +
        (v - 1) p, m v) of chunks, p micro-batches through a chunk, then the same ones through the next. The first
        stage holds the activations of min(p, m) micro-batches, interleaved 1 + (p - 1) / (p v) times those.
    Source: Narayanan et al. 2021, section 2.2; the order of interleaved micro-batches is Megatron-LM's.
    """

    takes_chunks = runs_ahead = True

    @classmethod
    def check_microbatches(cls, num_microbatches: int, num_stages: int, num_chunks: int, said: str) -> None:
        """Check that interleaved micro-batches are whole groups of as many as there are stages. Raises: DegreeError."""
        if num_chunks > 1 and num_microbatches % num_stages:
            raise DegreeError(
                f"{said}; with strategy.virtual_stages = {num_chunks} they must be a multiple of"
                f" strategy.pp = {num_stages}"
            )

    def program(self, stage: int, num_stages: int, num_microbatches: int, num_chunks: int, ahead: int = 0) -> Program:
        """Return what a stage runs.

        Args: num_microbatches: a multiple of num_stages if there are several chunks. ahead: forwards more in front of
            the first backward than the pipeline needs.
        """
        if num_chunks == 1:
            return in_turn(min(num_stages - stage - 1 + ahead, num_microbatches), num_microbatches)
        return _interleaved(stage, num_stages, num_microbatches, num_chunks, ahead)


def _interleaved(stage: int, num_stages: int, num_microbatches: int, num_chunks: int, ahead: int) -> Program:
    period, total = num_stages * num_chunks, num_microbatches * num_chunks

    def entry(phase: str, k: int) -> Entry:
        """Return the k-th forward or backward."""
        group, within = divmod(k, period)
        chunk, member = divmod(within, num_stages)
        microbatch = group * num_stages + member
        is_backward = phase == BACKWARD
        number = num_chunks - 1 - chunk if is_backward else chunk
        return template_name(phase, number, is_last=is_backward and microbatch == num_microbatches - 1), microbatch

    def pairs(begin: int, end: int) -> tuple[Entry, ...]:
        return tuple(one for k in range(begin, end) for one in (entry(FORWARD, warmup + k), entry(BACKWARD, k)))

    warmup = min(2 * (num_stages - stage - 1) + (num_chunks - 1) * num_stages + ahead, total)
    num_pairs = total - warmup
    repeats = min(num_pairs, total - period) // period  # whole periods without a last micro-batch
    segments = [Segment(tuple(entry(FORWARD, k) for k in range(warmup)))]
    if repeats:
        segments.append(Segment(pairs(0, period), repeats, num_stages))
    rest = pairs(repeats * period, num_pairs) + tuple(entry(BACKWARD, k) for k in range(num_pairs, total))
    return Program((*segments, Segment(rest)))
