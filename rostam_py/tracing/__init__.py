"""Tracing: PyTorch modules to OperatorGraphs. torch is loaded when something is traced."""

from rostam_py.tracing.cache import CacheEntry, TraceCache
from rostam_py.tracing.custom import register_module, register_op
from rostam_py.tracing.front import trace

__all__ = ["CacheEntry", "TraceCache", "register_module", "register_op", "trace"]
