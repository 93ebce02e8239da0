"""Programs of pipeline schedules."""

import itertools
import random
from collections import Counter

import pytest

from rostam_py.errors import ConfigError
from rostam_py.placement.schedule import most_in_flight, stage_program
from rostam_py.plan.phases import BACKWARD, FORWARD, WEIGHT, chunk_of, is_last, phase_of
from rostam_py.plan.strategy_names import SCHEDULES


def played(schedule, num_stages, num_microbatches, seconds, chunks=1):
    """Run the programs of all stages with free communication; return when every (phase, stage, micro-batch) ends.

    Stages are virtual ones. A backward also waits for its own forward, a weight gradient for its backward.
    """
    programs = [list(stage_program(schedule, s, num_stages, num_microbatches, chunks)) for s in range(num_stages)]
    done, clock, places = {}, [0] * num_stages, [0] * num_stages
    while any(places[s] < len(program) for s, program in enumerate(programs)):
        progressed = False
        for s, program in enumerate(programs):
            while places[s] < len(program):
                name, m = program[places[s]]
                phase, k = phase_of(name), (chunk_of(name) or 0) * num_stages + s
                needs = {
                    FORWARD: [(FORWARD, k - 1, m)] if k else [],
                    BACKWARD: [(FORWARD, k, m)] + [(BACKWARD, k + 1, m)] * (k < num_stages * chunks - 1),
                    WEIGHT: [(BACKWARD, k, m)],
                }[phase]
                if not all(one in done for one in needs):
                    break
                start = max([clock[s], *(done[one] for one in needs)])
                clock[s] = done[phase, k, m] = start + seconds[phase]
                places[s] += 1
                progressed = True
        assert progressed, "the programs deadlock"
    return done


def makespan(schedule, num_stages, num_microbatches, forward, backward, weight=0, chunks=1):
    """Return when the last program ends."""
    seconds = {FORWARD: forward, BACKWARD: backward, WEIGHT: weight}
    return max(played(schedule, num_stages, num_microbatches, seconds, chunks).values())


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
        assert peak == most_in_flight(program)


def test_one_f_one_b_holds_stages_left_and_gpipe_holds_all():
    assert [most_in_flight(stage_program("1f1b", s, 4, 8)) for s in range(4)] == [4, 3, 2, 1]
    assert [most_in_flight(stage_program("gpipe", s, 4, 8)) for s in range(4)] == [8, 8, 8, 8]


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
    with pytest.raises(ConfigError, match="1f1b, dual_pipe_v, gpipe, zb_h1, zb_v"):
        stage_program("zigzag", 0, 2, 2)


@pytest.mark.parametrize("chunks", [1, 2, 3])
@pytest.mark.parametrize("num_stages", [2, 4, 8])
@pytest.mark.parametrize("groups", [1, 2, 5])
def test_interleaving_divides_the_bubble_by_the_chunks(num_stages, chunks, groups):
    # (p - 1) / (m v) of the work, whatever a chunk's forward and backward take.
    num_microbatches = groups * num_stages
    for forward, backward in ((10, 20), (7, 7), (9, 4)):
        work = num_microbatches * chunks * (forward + backward)
        bubble = makespan("1f1b", num_stages, num_microbatches, forward, backward, chunks=chunks) - work
        assert bubble * num_microbatches * chunks == (num_stages - 1) * work


@pytest.mark.parametrize("num_stages", [2, 4, 8])
@pytest.mark.parametrize("more", [0, 1, 9])
def test_zero_bubble_h1_leaves_f_plus_b_less_w_on_every_stage_but_one(num_stages, more):
    num_microbatches = 2 * num_stages + more
    for forward, backward, weight in ((10, 10, 10), (10, 12, 8), (3, 4, 2)):  # exact as long as W <= B
        bubble = makespan("zb_h1", num_stages, num_microbatches, forward, backward, weight)
        bubble -= num_microbatches * (forward + backward + weight)
        assert bubble == (num_stages - 1) * (forward + backward - weight)


def test_zero_bubble_h1_of_four_stages_is_the_published_figure():
    # Qi et al. 2023, figure 2: the last stage puts three weight gradients off, the first one none.
    def letters(stage):
        return "".join(name[0] for name, _ in stage_program("zb_h1", stage, 4, 8))

    assert letters(0) == "fff" + "fbw" * 5 + "bw" * 3
    assert letters(3) == "fb" * 3 + "fbw" * 5 + "www"


def test_a_group_of_micro_batches_goes_through_a_chunk_then_through_the_next():
    # p = 2, v = 2, m = 4, first stage: warm-up of 2 (2 - 1) + (2 - 1) 2 = 4 forwards, as Megatron-LM orders them.
    program = stage_program("1f1b", 0, 2, 4, 2)
    forwards = [(chunk_of(name), m) for name, m in program if phase_of(name) == FORWARD]
    backwards = [(chunk_of(name), m) for name, m in program if phase_of(name) == BACKWARD]
    assert forwards == [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3), (1, 2), (1, 3)]
    assert backwards == [(1, 0), (1, 1), (0, 0), (0, 1), (1, 2), (1, 3), (0, 2), (0, 3)]
    order = "".join(name[0] for name, _ in program)
    assert order == "ffff" + "fb" * 4 + "bbbb"
    assert [one for one in program if is_last(one[0])] == [("backward_last.1", 3), ("backward_last.0", 3)]


@pytest.mark.parametrize("chunks", [2, 3])
@pytest.mark.parametrize(("num_stages", "groups"), [(2, 1), (2, 4), (4, 1), (4, 2), (8, 3)])
def test_interleaved_stages_hold_the_warm_up_and_one_more(num_stages, groups, chunks):
    num_microbatches = groups * num_stages
    held = []
    for stage in range(num_stages):
        warmup = min(2 * (num_stages - stage - 1) + (chunks - 1) * num_stages, num_microbatches * chunks)
        program = stage_program("1f1b", stage, num_stages, num_microbatches, chunks)
        held.append(most_in_flight(program))
        assert held[-1] == min(warmup + 1, num_microbatches * chunks)
    if groups > 1:  # Korthikanti et al. 2022: 1 + (p - 1) / (p v) times what p micro-batches keep
        assert held[0] / chunks == pytest.approx(num_stages * (1 + (num_stages - 1) / (num_stages * chunks)))


def test_most_of_a_program_is_that_of_a_walk_through_every_entry():
    random.seed(3)
    for _ in range(200):
        num_stages, chunks = random.randint(2, 5), random.randint(1, 3)
        num_microbatches = num_stages * random.randint(1, 6)
        schedule = random.choice(["1f1b", "zb_h1", "gpipe"]) if chunks == 1 else "1f1b"
        program = stage_program(schedule, random.randrange(num_stages), num_stages, num_microbatches, chunks)
        sizes = {name: (random.randint(0, 9), random.randint(-9, 9)) for name in program.counts()}
        level = most = 0
        for name, _ in program:
            for change in sizes[name]:
                level += change
                most = max(most, level)
        assert program.peak(sizes) == most


def test_random_programs_run_everything_once_and_end():
    random.seed(5)
    for _ in range(150):
        num_stages, chunks = random.randint(2, 6), random.randint(1, 4)
        num_microbatches = num_stages * random.randint(1, 4) if chunks > 1 else random.randint(1, 20)
        one_chunk = [name for name in SCHEDULES if not SCHEDULES.get(name).is_v]
        schedule = "1f1b" if chunks > 1 else random.choice(one_chunk)
        seconds = {phase: random.randint(1, 9) for phase in (FORWARD, BACKWARD, WEIGHT)}
        done = played(schedule, num_stages, num_microbatches, seconds, chunks)
        phases = 3 if SCHEDULES.get(schedule).splits_backward else 2
        assert len(done) == phases * num_stages * chunks * num_microbatches


@pytest.mark.parametrize("chunks", [2, 4])
def test_an_interleaved_program_of_many_micro_batches_is_a_few_segments(chunks):
    program = stage_program("1f1b", 1, 4, 2**40, chunks)
    assert len(program.segments) == 3
    assert sum(len(segment.entries) for segment in program.segments) < 8 * 4 * chunks
    assert len(program) == 2 * chunks * 2**40
    assert most_in_flight(program) == 2 * 2 + (chunks - 1) * 4 + 1


def test_zero_bubble_without_a_pipeline_is_1f1b():
    assert stage_program("zb_h1", 0, 1, 4) == stage_program("1f1b", 0, 1, 4)
    assert stage_program("zb_h1", 0, 2, 4) != stage_program("1f1b", 0, 2, 4)
