"""Small models of every family, traced at most once per session, when first asked for."""

from collections.abc import Iterator, Mapping

import pytest

from rostam_py.graph import OperatorGraph
from rostam_py.models import (
    cosmoflow,
    deepseek,
    dlrm,
    gpt,
    gpt_oss,
    llama,
    lora,
    mixtral,
    resnet,
    t5,
    transformer,
)  # fmt: skip
from rostam_py.models.spec import ModelSpec
from rostam_py.tracing import trace


@pytest.fixture(scope="session")
def small_specs() -> dict[str, ModelSpec]:
    """A specification of each family that traces in a fraction of a second."""
    tiny_gpt = gpt.Config(num_layers=2, width=64, num_heads=4, sequence_length=32, vocabulary=128)
    tiny_transformer = transformer.Config(
        encoder_layers=2, decoder_layers=2, width=64, feed_forward=128, num_heads=4, vocabulary=128, sequence_length=16
    )
    tiny_llama = llama.Config(
        num_layers=2, width=64, num_heads=4, num_key_heads=2, hidden=128, vocabulary=128, sequence_length=32
    )
    tiny_t5 = t5.Config(
        num_layers=2, width=64, num_heads=4, head_size=32, hidden=128, vocabulary=128, sequence_length=16
    )
    tiny_mixtral = mixtral.Config(
        num_layers=2, width=64, num_heads=4, num_key_heads=2, head_size=16, hidden=32, num_experts=4, per_token=2,
        vocabulary=128, sequence_length=32,
    )  # fmt: skip
    tiny_deepseek = deepseek.Config(
        dense_layers=1, num_layers=2, width=64, num_heads=4, query_latent=32, key_latent=16, head_size=16,
        rotary_size=8, value_size=16, dense_hidden=128, hidden=32, num_experts=8, per_token=2, num_groups=4,
        groups_per_token=2, vocabulary=128, sequence_length=32,
    )  # fmt: skip
    tiny_gpt_oss = gpt_oss.Config(
        num_layers=2, num_experts=4, width=64, num_heads=4, num_key_heads=2, head_size=16, hidden=32, per_token=2,
        window=16, vocabulary=128, sequence_length=128,
    )  # fmt: skip
    tiny_lora = lora.Config(
        num_layers=2, width=64, num_heads=4, num_key_heads=2, hidden=128, vocabulary=128, sequence_length=32, rank=4
    )
    return {
        "gpt_oss": gpt_oss.build("tiny_gpt_oss", tiny_gpt_oss),
        "lora": lora.build("tiny_lora", tiny_lora),
        "mixtral": mixtral.build("tiny_mixtral", tiny_mixtral),
        "deepseek": deepseek.build("tiny_deepseek", tiny_deepseek),
        "t5": t5.build("tiny_t5", tiny_t5),
        "gpt": gpt.build("tiny_gpt", tiny_gpt),
        "llama": llama.build("tiny_llama", tiny_llama),
        "transformer": transformer.build("tiny_transformer", tiny_transformer),
        "resnet": resnet.build("tiny_resnet", (2, 1), image=32),
        "cosmoflow": cosmoflow.build("tiny_cosmoflow", cosmoflow.Config(side=8, filters=(4, 8), hidden=(8, 4))),
        "dlrm": dlrm.build("tiny_dlrm", dlrm.Config(table_rows=(64, 32), hotness=(1, 4))),
    }


class SmallGraphs(Mapping[str, OperatorGraph]):
    """The graphs of specifications."""

    def __init__(self, specs: dict[str, ModelSpec]) -> None:
        self._specs = specs
        self._graphs: dict[str, OperatorGraph] = {}

    def __getitem__(self, name: str) -> OperatorGraph:
        if name not in self._graphs:
            self._graphs[name] = trace(self._specs[name])
        return self._graphs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._specs)

    def __len__(self) -> int:
        return len(self._specs)


@pytest.fixture(scope="session")
def small_graphs(small_specs: dict[str, ModelSpec]) -> Mapping[str, OperatorGraph]:
    """The graph of each small specification."""
    return SmallGraphs(small_specs)
