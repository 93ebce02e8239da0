"""Drawn jobs: means and medians as asked, streams that do not disturb one another, offered load."""

import numpy as np
import pytest

from rostam_py.errors import ConfigError
from rostam_py.fleet.job_sizes import size_chances
from rostam_py.fleet.queueing.names import SOURCES
from rostam_py.fleet.queueing.sources.source import make_source
from rostam_py.fleet.queueing.sources.targets import TARGETS


def drawn(name, total=2_048, seed=0, **options):
    jobs = make_source(SOURCES, name, options, total, seed).draw()
    return tuple(np.array([getattr(one, key) for one in jobs]) for key in ("submit_s", "accelerators", "work_s"))


@pytest.mark.parametrize("cluster", TARGETS)
def test_targets_are_met(cluster):
    submits, sizes, works = drawn("targets", cluster=cluster, count=20_000)
    target = TARGETS[cluster]
    assert np.median(sizes) == 1
    assert np.median(works) == pytest.approx(target.median_s, abs=1)
    assert sizes.mean() == pytest.approx(target.mean_size, rel=0.02)
    assert works.mean() == pytest.approx(target.mean_s, rel=0.02)
    assert works.max() <= target.longest_s
    assert sizes.max() <= target.largest
    assert submits[0] == 0
    offered = (sizes * works).sum() / submits[-1] / 2_048
    assert offered == pytest.approx(0.8, rel=0.05)


def test_gaps_are_exponential():
    gaps = np.diff(drawn("families", count=20_000)[0])
    assert gaps.std() / gaps.mean() == pytest.approx(1, abs=0.03)
    assert np.quantile(gaps, 0.5) / gaps.mean() == pytest.approx(np.log(2), abs=0.03)


@pytest.mark.parametrize("family", ["n^-2", "mixed"])
def test_sizes_have_the_chances_of_their_family(family):
    sizes = drawn("families", family=family, largest=40, count=50_000)[1]
    chances = size_chances(family, 40, (40,))
    assert np.bincount(sizes, minlength=41)[1:] / 50_000 == pytest.approx(chances, abs=0.01)
    assert set(drawn("families", family=family, largest=40, unit=4, count=500)[1] % 4) == {0}


def test_streams_are_named_and_seeds_are_told_apart():
    one = drawn("families", family="n^-2", count=200)
    other = drawn("families", family="n^-1", count=200)
    assert (one[2] == other[2]).all()
    assert not (one[1] == other[1]).all()
    scale = one[0][1:] / other[0][1:]
    assert scale == pytest.approx(scale[0])  # the same gaps, at another rate
    again, later = drawn("families", family="n^-2", count=200), drawn("families", family="n^-2", count=200, seed=1)
    assert all((mine == theirs).all() for mine, theirs in zip(one, again, strict=True))
    assert not (one[2] == later[2]).all()


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("families", {"hope": 1}, "fleet.draw has no key 'hope' for fleet.jobs=families; it has: count, load"),
        ("families", {"family": "n"}, "fleet.draw.family is 'n'; it must be one of: n^-2"),
        ("families", {"count": 0}, "fleet.draw.count is 0; it must be an integer >= 1"),
        ("families", {"load": 0}, "fleet.draw.load is 0; it must be a number > 0"),
        ("families", {"load": "high"}, "fleet.draw.load is 'high'; it must be a number > 0"),
        ("families", {"largest": 4_000}, "fleet.draw.largest is 4000; the cluster has 2048"),
        ("families", {"mean": "1 s", "median": "2 s"}, "log-normal durations need 0 < median <= mean < longest"),
        ("families", {"mean": "90 s", "median": "1 s", "longest": "100 s"}, "it must be less than 50 s"),
        ("targets", {"cluster": "PAI"}, "fleet.draw.cluster is 'PAI'; it must be one of: Seren, Kalos"),
        ("targets", {"cluster": "Kalos", "largest": 16}, "jobs of Kalos have a mean of 26.77 GPUs"),
        ("targets", [1], "fleet.draw is [1]; it must hold keys with values"),
    ],
)
def test_bad_options_name_key_value_and_what_is_allowed(name, options, said):
    with pytest.raises(ConfigError) as error:
        make_source(SOURCES, name, options, 2_048, 0).draw()
    assert said in str(error.value)
