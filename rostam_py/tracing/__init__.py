"""Tracing: PyTorch modules to OperatorGraphs. Importing this package loads torch on first use only."""

from typing import TYPE_CHECKING, Any

from rostam_py.tracing.custom import register_module, register_op

if TYPE_CHECKING:
    from rostam_py.tracing.tracer import trace

__all__ = ["register_module", "register_op", "trace"]


def __getattr__(name: str) -> Any:
    if name == "trace":
        from rostam_py.tracing.tracer import trace

        return trace
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
