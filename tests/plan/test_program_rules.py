"""Rules of programs and particulars of placing, inside a strategy."""

import dataclasses

import pytest

from rostam_py.errors import ConfigError, DegreeError, UnitError
from rostam_py.plan import Strategy
from rostam_py.plan.placing import PLACING_NAMES
from rostam_py.plan.program_rules import RULE_NAMES, ProgramRules
from rostam_py.plan.strategy import default_settings
from rostam_py.plan.strategy_names import MOVED


def test_a_strategy_has_at_most_thirty_fields_and_no_rule_among_them():
    own = {entry.name for entry in dataclasses.fields(Strategy)}
    assert len(own) <= 30
    assert not own & {*RULE_NAMES, *PLACING_NAMES}
    assert set(default_settings()) == (own - {"rules", "placing"}) | {*RULE_NAMES, *PLACING_NAMES}


@pytest.mark.parametrize("key", sorted(MOVED))
def test_moved_keys_are_refused_with_their_new_names(key):
    with pytest.raises(ConfigError, match=rf"^strategy\.{key} is {MOVED[key].replace('.', '[.]')} now"):
        Strategy(**{key: 1})


def test_keys_by_their_own_names_are_those_inside():
    flat = Strategy.of(tp=2, tp_overlap=True, sequence_parallel=True, quantum="5 us")
    assert flat == Strategy(tp=2, sequence_parallel=True, rules={"tp_overlap": True}, placing={"quantum": "5 us"})
    assert flat.changed() == {"tp": 2, "sequence_parallel": True, "tp_overlap": True, "quantum": "5 us"}
    said = "Strategy(tp=2, sequence_parallel=True, rules={'tp_overlap': True}, placing={'quantum': '5 us'})"
    assert repr(flat) == said
    assert flat.with_keys(tp_overlap=False).rules.is_ideal
    assert flat.rules.tp_overlap, "a changed strategy is another one"


@pytest.mark.parametrize(
    ("rules", "error", "said"),
    [
        ({"fusion": "all"}, ConfigError, r"^software\.rules\.fusion is 'all'; it must be one of: auto, pointwise"),
        ({"overlap_p2p": 1}, ConfigError, r"^software\.rules\.overlap_p2p is 1; it must be true or false"),
        ({"servers_per_token": 0}, DegreeError, r"^software\.rules\.servers_per_token is 0"),
        ({"bucket_size": "0 B"}, UnitError, r"^software\.rules\.bucket_size is '0 B'; it must be > 0"),
        ({"tp": 2}, ConfigError, r"^software\.rules\.tp is not a rule"),
        ({"fusoin": "auto"}, ConfigError, r"^software\.rules\.fusoin is not a rule .*did you mean 'fusion'"),
        ("fused", ConfigError, r"^software\.rules is 'fused'; it must be a mapping"),
    ],
)
def test_rules_that_make_no_sense_are_refused(rules, error, said):
    with pytest.raises(error, match=said):
        Strategy(rules=rules)


def test_a_key_is_given_once():
    with pytest.raises(ConfigError, match=r"Strategy\.of got rules and fusion, which is inside it"):
        Strategy.of(fusion="auto", rules={"tp_overlap": True})


@pytest.mark.parametrize("placing", [{"speed": 1}, 5])
def test_particulars_that_make_no_sense_are_refused(placing):
    with pytest.raises(ConfigError, match=r"strategy\.placing"):
        Strategy(placing=placing)


def test_rules_are_keys_of_a_cache():
    assert len({ProgramRules(), ProgramRules(fusion="none"), ProgramRules(fusion="none")}) == 2
