"""``rostam profile`` and the cost models' keys on the command line: what is refused before any work."""

import pytest

from rostam_py.cli.compose import compose_config
from rostam_py.cli.main import main
from rostam_py.errors import ConfigError


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "rostam profile needs MODEL"),
        (["resnet50", "gpt_125m"], "names 2 models: resnet50, gpt_125m"),
        (["resnet50", "threads=-1"], "threads is -1"),
        (["resnet50", "optimizer=adamw"], "unknown optimizer 'adamw' (did you mean 'adam'?); choices: adagrad, adam"),
        (["resnet50", "precision=fp8"], "unknown precision 'fp8' (did you mean 'fp8_mixed'?); choices: bf16_mixed"),
        (["resnet50", "batches=[]"], "batches is []"),
    ],
)
def test_what_cannot_be_profiled_is_refused_before_the_trace(arguments, said, capsys, monkeypatch):
    monkeypatch.setattr("rostam_py.tracing.trace", lambda *_: pytest.fail("traced"))
    assert main(["profile", *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["cost=roofline", "cost.ramp_time=5.0"], "cost.ramp_time is '5.0', a number without a unit"),
        (["cost.min_kernel_time=2"], "cost.min_kernel_time is '2', a number without a unit"),
        (["cost=roofline", "cost.compute_efficiency=0.5"], "for example cost.compute_efficiency.matmul=0.8"),
        (["cost=constant", "cost.forward_s=10"], None),
        (["cost=constant", "cost.forward_s=10 ms"], None),
        (["cost=roofline", "cost.ramp_time=0", "cost.compute_efficiency.matmul=0.5"], None),
    ],
)
def test_times_of_a_cost_model_need_a_unit_unless_their_name_has_it(overrides, said):
    if said is None:
        compose_config("run", overrides)
        return
    with pytest.raises(ConfigError, match=said):
        compose_config("run", overrides)
