import pytest

from rostam_py.costs import ACCELERATORS, get_accelerator
from rostam_py.errors import ConfigError, UnknownNameError

EXPECTED = (
    "v100_32gb",
    "a100_40gb",
    "a100_80gb",
    "h100_80gb",
    "h100_96gb",
    "h200_141gb",
    "b200_180gb",
    "b300_288gb",
    "gb200_186gb",
    "gb300_288gb",
    "tpu_v4_32gb",
    "cpu_local",
)


def test_registered_accelerators_are_the_named_ones():
    assert tuple(ACCELERATORS) == EXPECTED


@pytest.mark.parametrize("name", EXPECTED)
def test_every_figure_has_a_source(name):
    accelerator = get_accelerator(name)
    figures = {"memory_bytes", "memory_bandwidth_bytes_per_s"}
    figures |= {f"peak_flops_per_s.{kind}" for kind in accelerator.peak_flops_per_s}
    figures |= {"multiprocessors"} if accelerator.multiprocessors else set()
    figures |= {"watts"} if accelerator.watts else set()
    figures |= {"host_bandwidth_bytes_per_s"} if accelerator.host_bandwidth_bytes_per_s else set()
    more = ("transposes_fp8", "short_fp8_sums", "cache_bandwidth_bytes_per_s")
    figures |= {name for name in more if getattr(accelerator, name)}
    figures |= {"host_slowdown"} if accelerator.host_slowdown != 1 else set()
    assert set(accelerator.sources) == figures
    assert all(len(source) > 10 for source in accelerator.sources.values())


@pytest.mark.parametrize("name", [name for name in EXPECTED if name.endswith("gb")])
def test_memory_is_as_many_gigabytes_as_the_name_says(name):
    # Vendors' names are of 10^9 or of 2^30 bytes; what the driver says lies between.
    gigabytes = int(name.removesuffix("gb").rpartition("_")[2])
    assert gigabytes * 10**9 <= get_accelerator(name).memory_bytes <= gigabytes * 2**30


@pytest.mark.parametrize("name", EXPECTED)
def test_narrower_types_are_never_slower(name):
    peaks = get_accelerator(name).peak_flops_per_s
    ordered = [peaks[kind] for kind in ("fp32", "tf32", "bf16") if kind in peaks]
    assert ordered == sorted(ordered)


def test_unknown_accelerator_lists_the_known_ones():
    with pytest.raises(UnknownNameError, match=r"did you mean 'a100_80gb'.*v100_32gb.*b200_180gb"):
        get_accelerator("a100_80g")


def test_missing_peak_names_what_there_is():
    with pytest.raises(ConfigError, match=r"v100_32gb has no bf16 peak, which strategy\.precision asks.*: fp32, fp16"):
        get_accelerator("v100_32gb").peak("bf16")


def test_override_changes_only_what_it_names_and_says_so():
    base = get_accelerator("h100_80gb")
    fast = base.with_overrides("h100_fast", memory_bandwidth_bytes_per_s=9e12, peak_flops_per_s={"bf16": 2e15})
    assert (fast.name, fast.memory_bandwidth_bytes_per_s, fast.peak("bf16")) == ("h100_fast", 9e12, 2e15)
    assert fast.peak("fp32") == base.peak("fp32")
    assert fast.memory_bytes == base.memory_bytes
    assert "hypothetical" in fast.sources["peak_flops_per_s.bf16"]
    assert base.peak("bf16") == 989.4e12


@pytest.mark.parametrize("change", [{"memory": 1}, {"memory_bytes": 0}, {"peak_flops_per_s": {"fp16": -1.0}}])
def test_bad_override_is_refused(change):
    with pytest.raises(ConfigError):
        get_accelerator("h100_80gb").with_overrides("mine", **change)


def test_override_cannot_take_a_real_name():
    with pytest.raises(ConfigError, match="belongs to a real accelerator"):
        get_accelerator("h100_80gb").with_overrides("a100_80gb")


@pytest.mark.parametrize(
    ("given", "name"),
    [("h100", "h100_80gb"), ("H100", "h100_80gb"), ("h100-80gb", "h100_80gb"), ("a100", "a100_80gb"),
     ("v100", "v100_32gb"), ("h200", "h200_141gb"), ("b200", "b200_180gb"), ("gb200", "gb200_186gb"),
     ("tpu_v4", "tpu_v4_32gb"), ("h100_96gb", "h100_96gb")],
)  # fmt: skip
def test_a_family_is_its_usual_part(given, name):
    assert get_accelerator(given).name == name
