"""A fabric with nothing but accelerators: placement looks at no link."""

from dataclasses import dataclass, field

import pytest


@dataclass
class FlatFabric:
    """Stand-in for rostam_py.fabrics.Fabric."""

    num_accelerators: int
    failed: set[int] = field(default_factory=set)
    name: str = "stand_in"

    @property
    def healthy_accelerators(self):
        """Ids that have not failed."""
        return [a for a in range(self.num_accelerators) if a not in self.failed]


@pytest.fixture
def flat_fabric():
    """Return a maker of fabrics: flat_fabric(8, failed={3})."""
    return lambda count, failed=(): FlatFabric(count, set(failed))
