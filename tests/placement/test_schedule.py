"""GPipe and 1F1B programs."""

import itertools
from collections import Counter

import pytest

from rostam_py.errors import ConfigError
from rostam_py.placement.schedule import microbatches_in_flight, stage_program


def makespan(schedule, num_stages, num_microbatches, forward, backward):
    """Run the programs of all stages with free communication and return when the last one ends."""
    programs = [list(stage_program(schedule, s, num_stages, num_microbatches)) for s in range(num_stages)]
    done, clock = {}, [0] * num_stages
    while any(programs):
        progressed = False
        for s, program in enumerate(programs):
            if not program:
                continue
            name, m = program[0]
            phase = "forward" if name == "forward" else "backward"
            needs = (phase, s - 1, m) if phase == "forward" else (phase, s + 1, m)
            if 0 <= needs[1] < num_stages and needs not in done:
                continue
            start = max(clock[s], done.get(needs, 0))
            clock[s] = done[phase, s, m] = start + (forward if phase == "forward" else backward)
            program.pop(0)
            progressed = True
        assert progressed, "the programs deadlock"
    return max(clock)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("num_stages", "num_microbatches"), [(1, 5), (2, 2), (4, 8), (4, 3), (8, 1), (3, 16)])
def test_bubble_is_stages_less_one_over_microbatches_of_the_work(schedule, num_stages, num_microbatches):
    work = num_microbatches * (10 + 20)
    bubble = makespan(schedule, num_stages, num_microbatches, 10, 20) - work
    assert bubble * num_microbatches == (num_stages - 1) * work


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("num_stages", "num_microbatches"), [(1, 5), (4, 8), (4, 3), (8, 1)])
def test_every_microbatch_runs_once_each_way_and_holds_at_most_the_stated_number(
    schedule, num_stages, num_microbatches
):
    for stage in range(num_stages):
        program = stage_program(schedule, stage, num_stages, num_microbatches)
        assert [m for name, m in program if name == "forward"] == list(range(num_microbatches))
        assert [m for name, m in program if name != "forward"] == list(range(num_microbatches))
        assert [m for name, m in program if name == "backward_last"] == [num_microbatches - 1]
        held = peak = 0
        for name, _ in program:
            held += 1 if name == "forward" else -1
            peak = max(peak, held)
        assert peak == microbatches_in_flight(schedule, stage, num_stages, num_microbatches)


def test_one_f_one_b_holds_stages_left_and_gpipe_holds_all():
    assert [microbatches_in_flight("1f1b", s, 4, 8) for s in range(4)] == [4, 3, 2, 1]
    assert [microbatches_in_flight("gpipe", s, 4, 8) for s in range(4)] == [8, 8, 8, 8]


def test_first_stage_of_1f1b_alternates_after_its_warmup():
    assert list(stage_program("1f1b", 0, 2, 3)) == [
        ("forward", 0), ("forward", 1), ("backward", 0), ("forward", 2), ("backward", 1), ("backward_last", 2),
    ]  # fmt: skip


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_programs_are_those_written_out_one_micro_batch_after_the_other(schedule):
    for num_stages in range(1, 6):
        for stage in range(num_stages):
            for num_microbatches in range(1, 9):
                program = stage_program(schedule, stage, num_stages, num_microbatches)
                written = written_out(schedule, stage, num_stages, num_microbatches)
                assert list(program) == written
                assert len(program) == len(written)
                assert program.counts() == Counter(name for name, _ in written)


def written_out(schedule, stage, num_stages, num_microbatches):
    """Forwards ahead of the first backward, then a backward after each forward as long as there are any."""
    ahead = num_stages - stage - 1 if schedule == "1f1b" else num_microbatches if num_stages > 1 else 0
    ahead = min(ahead, num_microbatches)
    forwards = [("forward", m) for m in range(num_microbatches)]
    backwards = [("backward", m) for m in range(num_microbatches - 1)] + [("backward_last", num_microbatches - 1)]
    pairs = itertools.zip_longest(forwards[ahead:], backwards)
    return forwards[:ahead] + [one for pair in pairs for one in pair if one is not None]


def test_a_program_of_two_to_the_sixty_micro_batches_is_a_few_segments():
    program = stage_program("1f1b", 0, 4, 2**60)
    assert len(program.segments) == 4
    assert program.counts() == {"forward": 2**60, "backward": 2**60 - 1, "backward_last": 1}
    assert list(itertools.islice(program, 5))[3:] == [("forward", 3), ("backward", 0)]


def test_unknown_schedule_lists_the_known_ones():
    with pytest.raises(ConfigError, match="1f1b, gpipe"):
        stage_program("zigzag", 0, 2, 2)
