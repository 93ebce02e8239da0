"""Kept compositions: what Hydra composes, to the letter; whatever is not plain, or wrong, is Hydra's."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from rostam_py.cli import compose
from rostam_py.cli.choices import presets
from rostam_py.cli.kept_composition import clear, composition
from rostam_py.cli.named_machine import written_out
from rostam_py.errors import ConfigError
from rostam_py.machines import MACHINES

PLAIN = [
    ("run", []),
    ("run", ["model=gpt_6_7b", "strategy.check_memory=false", "out=/tmp/x"]),
    ("run", ["fabric=torus", "fabric.dims=[8,8]", "fabric.accelerator_bandwidth=800 Gb/s", "strategy.tp=4", "seed=3"]),
    ("run", ["fabric=electrical_flat", "fabric.num_accelerators=8"]),
    ("run", ["fabric=hx2mesh_8x8", "num_accelerators=1024"]),
    ("run", ["fabric.link_latency=0", "machine.comm_compute_fraction=0.5"]),
    ("run", ["failures.links=5", "failures.seed=1", "report=true", "wandb.enable=true"]),
    ("run", ["global_batch=null", "strategy.precision=bf16_mixed", "strategy.placing.quantum=100 us"]),
    ("run", ["model=path/to/file.py:MyModel", "strategy.mapping=[0,1]", "convergence=none"]),
    ("run", ["out=runs/e5", "cost=constant"]),
    ("search", ["model=transformer_350m", "search.placers=[megatron,sip_ml]", "search.batches=[256,512]"]),
    *(("run", [f"strategy={name}"]) for name in presets("strategy")),
    *(("run", [f"fabric={name}"]) for name in presets("fabric")[::3]),
    ("run", ["experiment=quick", "strategy.tp=2"]),
]
# Left to Hydra: keys that users make up, texts that are no word, words of YAML, bare + and quotes.
OTHERS = [
    ["strategy.algorithms.all_reduce=ring"], ["software.rules.bucket_size=100 MB"], ["out=a b"], ["timeline=yes"],
    ["+model=resnet50"], ["out='x'"],
    ["seed=007"], ["strategy.tp=1_0"], ["model=a,b"], ["fabric.dims=[ 8, 8]"], ["seed=1", "seed=2"],
    ["hydra.verbose=true"],
]  # fmt: skip
WRONG = [
    ["strategy.tp=two"], ["strategy.tq=2"], ["model=resnet51"], ["fabric=tree_65"], ["fabric.link_bandwidth=400"],
    ["strategy.shard=4"], ["seed=-1"], ["fabric=torus", "num_accelerators=0"], ["nothing=1"], ["strategy=4"],
]  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder."""
    monkeypatch.setenv("ROSTAM_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "compositions"


def by_hydra(command: str, overrides: list[str]) -> tuple[object, str]:
    """Return the configuration and YAML as Hydra and OmegaConf alone make them."""
    composed = compose.composed(command, tuple(overrides))
    config = compose._open(command, compose._sized(command, composed))
    return OmegaConf.to_object(config), OmegaConf.to_yaml(composed)


@pytest.mark.parametrize(("command", "overrides"), PLAIN)
def test_a_kept_composition_is_what_hydra_composes(command: str, overrides: list[str]) -> None:
    assert composition(command, overrides) is None
    first = compose.compose_config(command, overrides)
    kept = composition(command, overrides)
    assert kept is not None
    config, text = by_hydra(command, overrides)
    assert kept.config == config == first
    assert repr(kept.config) == repr(config)  # 1 is not 1.0 there
    assert kept.yaml == compose.resolved_yaml(command, overrides) == text


def test_other_values_of_the_same_choices_need_no_hydra() -> None:
    compose.compose_config("run", ["fabric=torus_8x8"])
    overrides = ["fabric=torus_8x8", "strategy.dp=8", "strategy.tp=8", "routing=hash", "model=vit_large", "seed=5"]
    kept = composition("run", overrides)
    assert kept is not None
    assert (kept.config, kept.yaml) == by_hydra("run", overrides)


@pytest.mark.parametrize("overrides", OTHERS)
def test_what_is_not_plain_is_left_to_hydra(overrides: list[str]) -> None:
    compose.compose_config("run", [])
    assert composition("run", overrides) is None


@pytest.mark.parametrize(
    ("command", "overrides"), [*(("run", one) for one in WRONG), ("collective", ["algorithm=rig"])]
)
def test_errors_are_the_same_with_and_without(command: str, overrides: list[str]) -> None:
    def message() -> str:
        with pytest.raises(ConfigError) as caught:
            compose.compose_config(command, overrides)
        return str(caught.value)

    without = message()
    compose.compose_config(command, [])
    compose.compose_config(command, ["fabric=torus", "fabric.dims=[4,4]"])
    assert composition(command, overrides) is None
    assert message() == without


def test_a_changed_preset_is_composed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    preset = tmp_path / "own" / "fabric" / "mine.yaml"
    preset.parent.mkdir(parents=True)
    monkeypatch.setenv("ROSTAM_CONFIGS", str(tmp_path / "own"))
    for count in (4, 16):
        preset.write_text(f"defaults: [electrical_flat, _self_]\nnum_accelerators: {count}\n")
        compose._composed.cache_clear()  # as in another process
        assert composition("run", ["fabric=mine"]) is None
        assert compose.compose_config("run", ["fabric=mine"]).fabric.num_accelerators == count
        kept = composition("run", ["fabric=mine"])
        assert kept is not None
        assert kept.config.fabric.num_accelerators == count


@pytest.mark.parametrize("damage", [b"", b"{}", b"[1", b'{"values": {}, "schemas": {}}'])
def test_a_damaged_composition_is_composed_again(folder: Path, damage: bytes) -> None:
    overrides = ["strategy.tp=4"]
    first = compose.compose_config("run", overrides)
    entry = next(folder.iterdir())
    entry.write_bytes(damage)
    assert composition("run", overrides) is None
    assert compose.compose_config("run", overrides) == first
    assert composition("run", overrides) is not None


def test_clear_deletes_them(folder: Path) -> None:
    compose.compose_config("run", [])
    clear()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("name", list(MACHINES))
def test_named_machines_are_kept(name: str) -> None:
    overrides = [f"machine={name}", "model=resnet50", "timeline=True"]
    first = compose.compose_config("run", overrides)
    kept = composition("run", written_out("run", overrides))
    assert kept is not None
    assert kept.config == first
    assert kept.yaml == by_hydra("run", written_out("run", overrides))[1]
