"""Shares of replicas that lost servers: against pipelines stepped stage by stage, and by hand."""

import itertools

import pytest

from rostam_py.fleet.goodput.parts import micro_batch_parts


def pipeline_s(stages, micro_batches, of_stage_s):
    """Return when the last of some micro-batches leaves the last stage: each stage takes one at a time, in order."""
    free = [0.0] * stages
    done = 0.0
    for _ in range(micro_batches):
        at = 0.0
        for stage in range(stages):
            free[stage] = at = max(at, free[stage]) + of_stage_s
        done = at
    return done


@pytest.mark.parametrize(("servers", "micro_batches"), [*itertools.product([2, 3, 4, 8], [1, 2, 7, 32])])
def test_a_shorter_pipeline_does_its_share_in_the_time_of_the_whole_one(servers, micro_batches):
    """Each server is a stage; with fewer, each has more layers, and takes longer in proportion."""
    whole_s = pipeline_s(servers, micro_batches, 1.0)
    found = micro_batch_parts(servers, micro_batches, 0.0)
    for left in range(1, servers):
        own = round(found.get(left, 0.0) * micro_batches)
        assert pipeline_s(left, own, servers / left) <= whole_s + 1e-9
        assert own <= micro_batches * left / servers < own + 1


def test_memory_sets_the_fewest_servers():
    assert micro_batch_parts(4, 32, 0.6) == {3: 0.75}
    assert micro_batch_parts(4, 32, 0.75) == {3: 0.75}
    assert micro_batch_parts(4, 32, 0.76) == {}
    assert micro_batch_parts(4, 32, 0.25) == {1: 0.25, 2: 0.5, 3: 0.75}
    assert micro_batch_parts(1, 32, 0.1) == {}
    assert micro_batch_parts(4, 1, 0.1) == {}  # a micro-batch is not cut
