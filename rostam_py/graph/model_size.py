"""ModelSize: what is known of a model before it is traced."""

from dataclasses import dataclass

from rostam_py.graph.operator_graph import OperatorGraph


@dataclass(frozen=True, slots=True)
class ModelSize:
    """A model's trained parameters, each once, and the numerics that it declares, by the names that its graph has."""

    name: str
    num_parameters: int
    default_precision: str
    default_optimizer: str

    @classmethod
    def of(cls, graph: OperatorGraph) -> "ModelSize":
        """Return the size of a traced model."""
        return cls(graph.name, graph.num_parameters, graph.default_precision, graph.default_optimizer)
