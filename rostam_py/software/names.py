"""Names of the training programs, for help and completion: importing them loads no program."""

from rostam_py.registry import Registry

AUTO = "auto"
DEFAULT_SOFTWARE = AUTO  # of runs, searches, sweeps, mixes and the Python API: the one place that says so
STACKS = Registry("software")
STACKS.add(AUTO, "rostam_py.software.stacks.auto:Auto")
STACKS.add("ideal", "rostam_py.software.stacks.ideal:Ideal")
STACKS.add("megatron_core", "rostam_py.software.stacks.megatron_core:MegatronCore")
STACKS.add("megatron_bridge", "rostam_py.software.stacks.megatron_bridge:MegatronBridge")
STACKS.add("megatron_lm_2021", "rostam_py.software.stacks.megatron_lm_2021:MegatronLm2021")
STACKS.add("nemo", "rostam_py.software.stacks.nemo:Nemo")
STACKS.add("torchtitan", "rostam_py.software.stacks.torchtitan:Torchtitan")
STACKS.add("pytorch", "rostam_py.software.stacks.pytorch:PyTorch")
STACKS.add("fsdp1", "rostam_py.software.stacks.fsdp1:Fsdp1")
STACKS.add("deepspeed", "rostam_py.software.stacks.deepspeed:DeepSpeed")
STACKS.add("maxtext", "rostam_py.software.stacks.maxtext:MaxText")
STACKS.add("mlperf_images", "rostam_py.software.stacks.mlperf_images:MlperfImages")

# Programs whose launch configurations can be read: the most telling words first.
LAUNCHES = Registry("launch configuration")
LAUNCHES.add("torchtitan", "rostam_py.software.launches.torchtitan:TorchtitanReader")
LAUNCHES.add("llm_foundry", "rostam_py.software.launches.llm_foundry:LlmFoundryReader")
LAUNCHES.add("maxtext", "rostam_py.software.launches.maxtext:MaxTextReader")
LAUNCHES.add("megatron_bridge", "rostam_py.software.launches.megatron_bridge:MegatronBridgeReader")
LAUNCHES.add("megatron_deepspeed", "rostam_py.software.launches.megatron_deepspeed:MegatronDeepSpeedReader")
LAUNCHES.add("megatron_lm", "rostam_py.software.launches.megatron:MegatronReader")
LAUNCHES.add("deepspeed", "rostam_py.software.launches.deepspeed:DeepSpeedReader")
