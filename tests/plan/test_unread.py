"""Keys that are set and change nothing are named in a plan's notes, and no others."""

import pytest

import rostam_py as rostam
from rostam_py.plan import Strategy
from rostam_py.plan.unread import unread_keys


def test_defaults_say_nothing():
    assert unread_keys(Strategy()) == ()
    assert unread_keys(Strategy(placer="sip_ml")) == ()


@pytest.mark.parametrize(
    ("unread", "read"),
    [
        ({"window": "paper"}, {"placer": "sip_ml"}),
        ({"quantum": "20 us"}, {"placer": "sip_ml"}),
        ({"weight_splits": "sliced"}, {"placer": "sip_ml"}),
        ({"cp_algorithm": "ulysses"}, {"cp": 2}),
        ({"asynchronous_tp": False}, {"tp": 2}),
        ({"schedule": "gpipe"}, {"pp": 2}),
        ({"mapping_seed": 3}, {"mapping": "random"}),
        ({"bucket_size": "1 MB", "shard": 3}, {"shard": 2}),
    ],
)
def test_a_key_without_effect_is_named_with_what_it_needs(unread, read):
    key, value = next(iter(unread.items()))
    (note,) = unread_keys(Strategy(**unread))
    assert note.startswith(f"strategy.{key} is {value!r}, which nothing reads: it needs strategy.")
    assert unread_keys(Strategy(**(unread | read))) == ()


def test_plans_carry_it_among_their_notes():
    graph = rostam.trace("gpt_125m", num_layers=1)
    machine = rostam.Machine(fabric=rostam.fabric("electrical_flat", num_accelerators=4), accelerator="a100_80gb")
    plan = rostam.place(graph, machine, global_batch=8, strategy=Strategy(cp_algorithm="ulysses"))
    assert "strategy.cp_algorithm is 'ulysses', which nothing reads: it needs strategy.cp > 1" in plan.notes
