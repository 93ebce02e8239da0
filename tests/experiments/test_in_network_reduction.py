"""Switches that reduce: the study's figures agree with the forms, and its trainings with hand counts."""

import pytest

import rostam_py as rostam


@pytest.fixture(scope="module")
def module(load_experiment):
    return load_experiment("in_network_reduction")


def test_figures_agree_with_the_forms_but_for_crossings_alone(module):
    figures = [*module.gains(), *module.small(), *module.rates()]
    assert [one.name for one in figures if not one.is_met] == [
        "push, 1 KiB, 16 accelerators: gain over the ring, crossings alone"
    ]
    # p - 1 crossings: 2 (p-1) L over 2 L.
    assert float(next(one for one in figures if not one.is_met).ours[:-1]) == pytest.approx(15, rel=0.01)


def test_one_shot_exposes_what_layers_hide(module):
    data = rostam.Strategy.of(dp=16, precision="fp16_mixed")
    one_shot, layers = (data.with_keys(bucket_size=module.BUCKETS[way]) for way in ("in one shot", "layer by layer"))
    # 25.6 M gradients of two bytes: 2 (p-1)/p of them over a ring against once by push, nothing of it hidden.
    num_bytes = 25_557_032 * 2
    saved = module.step_s("resnet50", one_shot, 512, "ring") - module.step_s("resnet50", one_shot, 512, "push")
    expected = (2 * 15 / 16 - 1) * num_bytes / module.RATE + (2 * 15 - 2) * module.CROSSING_S
    assert saved == pytest.approx(expected, rel=0.05)
    kernels = module.step_s("resnet50", layers, 512, "push", frees_kernels=False)
    assert module.step_s("resnet50", layers, 512, "push") < kernels < module.step_s("resnet50", layers, 512, "ring")
