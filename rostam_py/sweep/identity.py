"""Identity of a point: a hash of everything that its result depends on.

Equal keys mean equal results: resolved settings (a list of links among them), the code that computes, torch's version,
and the contents of the files that settings name (cost tables, a user's model, graph or convergence curve).
"""

import functools
import hashlib
import json
from collections.abc import Mapping

from rostam_py import __version__
from rostam_py.convergence import is_curve_file
from rostam_py.digests import code_digest, file_digest, installed_version
from rostam_py.graph.storage import is_graph_file
from rostam_py.spec.model_names import GIVEN
from rostam_py.spec.settings import Settings

# Packages that decide numbers; the rest only asks for and shows them.
_COMPUTING = (
    "graph", "tracing", "costs", "fabrics", "convergence", "collectives", "plan", "placement", "simulation",
    "searching", "fleet", "spec", "models",
)  # fmt: skip
_COMPUTING_FILES = ("sweep/evaluate.py", "sweep/columns.py", "_core*")


@functools.cache
def code_version() -> str:
    """Return rostam's version and a digest of the code that computes, "0.1.0+1f2e3d4c5b6a".

    A store filled by other code is never read as if it were this one's.
    """
    return f"{__version__}+{code_digest(_COMPUTING, _COMPUTING_FILES)}"


def point_key(settings: Settings, graph_digests: Mapping[str, str] | None = None) -> str:
    """Return the key of complete settings, 64 hexadecimal digits.

    Args: graph_digests: {model: digest} of graphs that the caller brings.
    """
    files = [file_digest(name) for name in _files_of(settings)]
    models = [settings["model"]] if "model" in settings else [job["model"] for job in settings["jobs"]]
    graphs = [(graph_digests or {}).get(model) for model in models]
    code = [code_version(), installed_version("torch")]
    document = {"settings": settings, "code": code, "files": files, "graphs": graphs}
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _files_of(settings: Settings) -> list[str]:
    models = [settings["model"]] if "model" in settings else [job["model"] for job in settings["jobs"]]
    own = [model for model in models if not model.startswith(GIVEN)]
    named = [model if is_graph_file(model) else model.rpartition(":")[0] for model in own]
    table = settings["cost"].get("table")  # a list of links is among the settings themselves
    curve = settings.get("convergence")
    points = [curve] if curve is not None and is_curve_file(curve) else []
    return [name for name in [*named, *points, table] if isinstance(name, str) and name]
