"""The timeline against a count of every second."""

import random

import pytest

from rostam_py.fleet.queueing.timeline import STATES, Moment, Timeline


def test_integrals_and_series_are_those_of_every_second():
    draw = random.Random(2)
    at, moments = 0, []
    while at < 200_000:
        held, spare = draw.randrange(40), draw.randrange(10)
        free = draw.randrange(100 - held - spare)
        moments.append(Moment(float(at), held, spare, free, draw.choice([0, 0, 5, 60]), draw.randrange(9), 30))
        at += draw.randrange(1, 900)
    found = Timeline(100, moments, 200_000.0)
    by_second = {name: [0] * 200_000 for name in STATES}
    for one, following in zip(moments, [*moments[1:], Moment(200_000.0, 0, 0, 0, 0, 0, 0)], strict=True):
        state = "idle" if not one.next_size else "scattered" if one.free >= one.next_size else "too few"
        down = 100 - one.held - one.spare - one.free
        for second in range(int(one.at_s), int(min(following.at_s, 200_000))):
            for name, value in (("held", one.held), ("spare", one.spare), (state, one.free), ("down", down)):
                by_second[name][second] = value
    for name in STATES:
        assert found.integral(name) == sum(by_second[name])
        assert found.integral(name, 1_234) == sum(by_second[name][:1_234])
    assert sum(found.integral(name) for name in STATES) == 100 * 200_000
    width, names, rows = found.series()
    assert width == 60
    for k in (0, 7, len(rows) - 1):
        part = slice(k * 60, min((k + 1) * 60, 200_000))
        for name in STATES:
            seconds = by_second[name][part]
            assert rows[k][1 + names.index(name)] == pytest.approx(sum(seconds) / len(seconds), abs=1e-6)
