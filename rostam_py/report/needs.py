"""What the package's outputs need of the extras; checked before anything is simulated or drawn."""

from collections.abc import Sequence

from rostam_py.extras import Need
from rostam_py.report.sinks.wandb_options import WandbOptions


def page_needs(what: str, formats: Sequence[str] = (), otherwise: str = "") -> list[Need]:
    """Return what a report needs: packages of the page, and those of the static figures where formats are given."""
    needs = [Need(what, "report", ("plotly", "itables"), otherwise)]
    return [*needs, Need(f"formats=[{','.join(formats)}]", "report", ("matplotlib",))] if formats else needs


def wandb_needs(options: WandbOptions) -> list[Need]:
    """Return what sending results to Weights & Biases needs, nothing where that is not asked for."""
    return [Need("wandb.enable=true", "wandb", otherwise="wandb.enable=false")] if options.enable else []
