"""OpenStrategy: keys that need a degree are legal before a search has chosen any, and hold where it has."""

from dataclasses import replace

import pytest

from rostam_py.errors import ConfigError
from rostam_py.plan.open_strategy import OpenStrategy, split_wanted, with_wanted
from rostam_py.plan.searched_axes import Site, Space, settled
from rostam_py.plan.strategy import Strategy

# Keys that a Strategy without degrees refuses, a degree that allows them, and one that does not.
NEEDY = [
    ({"sequence_parallel": True}, {"tp": 2}, {"tp": 1}),
    ({"virtual_stages": 2}, {"pp": 2}, {"pp": 1}),
    ({"tp_overlap": True, "sequence_parallel": True}, {"tp": 2}, {"tp": 1}),
    ({"ep_overlap": True}, {"ep": 2}, {"ep": 1}),
    ({"servers_per_token": 2}, {"ep": 4}, {"ep": 1}),
    ({"servers_per_token": 2, "dispatcher": "deepep"}, {"ep": 4}, {"ep": 1}),
]
# Keys that are legal without degrees, a degree that allows them, and one that does not.
SHY = [
    ({"offload_blocks": 2}, {"pp": 1}, {"pp": 2}),
    ({"convolution_norms": "both", "precision": "bf16_mixed"}, {"tp": 1}, {"tp": 2}),
]


def axes_of(degrees):
    """The axes that a search fixes; dp follows from 8 accelerators."""
    return {"tp": [1], "pp": [1], "cp": [1], "ep": [1]} | {name: [value] for name, value in degrees.items()}


def candidates(given, degrees):
    base = OpenStrategy.of(**given)
    space = Space.of(base, axes_of(degrees))
    space.varied.pop("recompute", None)
    return list(space.strategies(settled(base)[0], Site(8, 16)))


@pytest.mark.parametrize(("given", "allows", "forbids"), [*NEEDY, *SHY], ids=str)
def test_a_key_holds_for_the_candidates_that_allow_it(given, allows, forbids):
    found = candidates(given, allows)
    assert found
    assert all(one.value(key) == value for one in found for key, value in given.items())


@pytest.mark.parametrize(("given", "allows", "forbids"), NEEDY, ids=str)
def test_candidates_that_do_not_allow_it_are_searched_without(given, allows, forbids):
    found = candidates(given, forbids)
    assert found
    assert all(one.value(key) != value for one in found for key, value in given.items())


@pytest.mark.parametrize(("given", "allows", "forbids"), SHY, ids=str)
def test_what_is_legal_without_degrees_leaves_out_candidates_that_exclude_it(given, allows, forbids):
    assert candidates(given, forbids) == []


@pytest.mark.parametrize("given", [one for one, _, _ in NEEDY], ids=str)
def test_a_run_still_refuses_it(given):
    with pytest.raises(ConfigError):
        Strategy.of(**given)
    assert OpenStrategy.of(**given).tp == 1  # the degrees that make it legal are not its own


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sequence_parallel": True, "schedule": "zb_h1"}, "strategy.schedule=zb_h1 runs weight gradients"),
        ({"sequence_parallel": "perhaps"}, "strategy.sequence_parallel is 'perhaps'"),
        ({"virtual_stages": 0}, "strategy.virtual_stages is 0"),
        ({"ep_overlap": True, "shard": 3}, "strategy.shard is 3"),
        ({"dispatcher": "pigeon"}, "software.rules.dispatcher is 'pigeon'"),
        ({"precision": "int3"}, "int3"),
    ],
)
def test_what_no_degree_makes_legal_is_refused_by_what_is_wrong(given, words):
    with pytest.raises(ConfigError, match=words):
        OpenStrategy.of(**given)


def test_what_holds_for_no_candidate_is_named():
    base = OpenStrategy.of(sequence_parallel=True, ep_overlap=True)
    space = Space.of(base, {"tp": [1]})
    found = list(space.strategies(settled(base)[0], Site(8, 16)))
    assert space.idle_keys(found) == ["sequence_parallel", "ep_overlap"]
    assert space.idle_keys([*found, replace(found[0], tp=2, dp=4, sequence_parallel=True)]) == ["ep_overlap"]


def test_layers_hold_for_the_pipelines_that_have_as_many_chunks():
    base = OpenStrategy.of(layers=[5, 9, 9, 9, 9])
    settled, wanted = split_wanted(base, {"pp": 1, "virtual_stages": 1})
    assert settled.placing.layers is None
    assert with_wanted(settled.with_keys(pp=5), wanted).placing.layers == [5, 9, 9, 9, 9]
    assert with_wanted(settled.with_keys(pp=4), wanted).placing.layers is None
