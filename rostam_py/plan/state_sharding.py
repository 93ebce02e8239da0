"""StateSharding: how ranks that hold the same weights share them, gradients and optimizer state (ZeRO, FSDP).

Legend: P = trained parameters of a device, d = ranks that share the state of one copy, of dp cp that hold the same.

Level 1 shares the optimizer's state, 2 gradients too, 3 weights too (Rajbhandari et al. 2020, section 5). With groups
smaller than dp cp every group holds a whole copy (hybrid sharding), and gradients are summed over the copies as well.
"""

from dataclasses import dataclass

from rostam_py.errors import DegreeError

SHARD_LEVELS = (0, 1, 2, 3)
BUFFERS, PARAMETERS = "buffers", "parameters"
SHARD_LAYOUTS = {
    BUFFERS: "a unit's weights are parts of a buffer, which is gathered, and whose gradients are reduced, in place"
    " (FSDP1, DeepSpeed, Megatron-FSDP)",
    PARAMETERS: "each parameter is cut by itself: kernels copy a unit's weights out of the gathered buffer, its"
    " gradients into the reduced one; ops outside blocks are one unit, which stays whole from forward to backward,"
    " and ranks hold no 16-bit copy of their shares (fully_shard of PyTorch, FSDP2)",
}
GATHERED, GATHERED_EXPERTS = "zero", "zero_experts"  # labels of the groups in which weights are gathered
GATHERED_AGAIN = "zero_again"  # of those in which backward gathers them again, where these are smaller
_SHARDS, _COPIES = "dp_shard", "dp_replicate"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSharding:
    """What of the state is shared, and when the shares move.

    level: 0 (every rank holds all of it) to 3. degree: d. num_copies: whole copies of the state, dp cp / d.
    prefetch: units whose weights are gathered ahead of the one that runs (level 3).
    is_resharded: a unit's weights are dropped behind its forward, and gathered again for its backward (level 3).
    is_gather_overlapped: updated weights are gathered during the next iteration's forward (levels 1 and 2).
    is_reduced_often: shared gradients are reduced behind every micro-batch (levels 2 and 3), else behind the last
        alone: until then each rank adds up whole ones.
    layout: of SHARD_LAYOUTS (level 3).
    reduced, gathered: groups in which the gradients of one copy are reduced, and weights gathered.
    again_degree: ranks among which a second copy of the weights is divided, out of which backward gathers them; 0
        where there is none (level 3).
    """

    level: int = 0
    degree: int = 1
    num_copies: int = 1
    prefetch: int = 1
    is_resharded: bool = True
    is_gather_overlapped: bool = False
    is_reduced_often: bool = True
    layout: str = BUFFERS
    reduced: str = "dp"
    gathered: str = GATHERED
    again_degree: int = 0

    @property
    def reduces_every_microbatch(self) -> bool:
        """Whether gradients are reduced behind every micro-batch: ranks hold their share of them alone."""
        return self.level >= 2 and self.is_reduced_often

    @property
    def shares_weights(self) -> bool:
        """Whether ranks hold their share of the weights alone."""
        return self.level == 3

    @property
    def gathers_once(self) -> bool:
        """Whether weights stay whole from the first micro-batch's forward to the last one's backward."""
        return self.shares_weights and not self.is_resharded and not self.is_reduced_often

    @property
    def copies_units(self) -> bool:
        """Whether units are copied out of what is gathered and into what is reduced."""
        return self.shares_weights and self.layout == PARAMETERS

    @property
    def gathered_again(self) -> str:
        """The groups in which backward gathers weights."""
        return GATHERED_AGAIN if self.again_degree else self.gathered

    @property
    def gathers_updated(self) -> bool:
        """Whether ranks hold all weights, and gather them once their shares are updated."""
        return self.level in (1, 2)

    @property
    def gradient_collective(self) -> tuple[str, str]:
        """(groups, collective) that a gradient bucket runs."""
        if not self.level:
            return self.reduced, "all_reduce"
        return (self.reduced if self.num_copies == 1 else _SHARDS), "reduce_scatter"

    @property
    def copies_group(self) -> str:
        """The groups in which shares of gradients are summed over the copies; "" where there is one copy."""
        return _COPIES if self.level and self.num_copies > 1 else ""

    def describe(self) -> str:
        """Return in words what is shared, e.g. "ZeRO 3: weights, gradients and optimizer state shared by 8 ranks"."""
        shared = ("optimizer state", "gradients and optimizer state", "weights, gradients and optimizer state")
        copies = f", {self.num_copies} copies" if self.num_copies > 1 else ""
        cut = ", each parameter by itself" if self.copies_units else ""
        cut += f", a second copy of the weights shared by {self.again_degree}" if self.again_degree else ""
        return f"ZeRO {self.level}: {shared[self.level - 1]} shared by {self.degree} ranks{copies}{cut}"

    def share(self, count: int) -> int:
        """Return one rank's part of ``count`` elements (or bytes) that are shared; the last ranks' is padded."""
        return -(-count // self.degree) if self.level else count

    def held(self, num_parameters: int, num_shared: int) -> tuple[int, int, int]:
        """Return the parameters of which a device holds (weights, gradients, optimizer state) throughout.

        Args: num_parameters: P. num_shared: a rank's share of them, padding included.
        """
        weights, state = (num_shared if self.level >= least else num_parameters for least in (3, 1))
        return weights, num_shared if self.reduces_every_microbatch else num_parameters, state


def sharding_degree(dp: int, cp: int, level: int, group: int | None) -> int:
    """Return d. Raises: DegreeError unless ``shard_group`` divides the ranks that hold the same weights."""
    if not level:
        return 1
    if group is None:
        return dp * cp
    if dp * cp % group:
        axes = f"strategy.dp = {dp}" if cp == 1 else f"strategy.dp x cp = {dp} x {cp} = {dp * cp}"
        raise DegreeError(f"strategy.shard_group is {group}; it must divide {axes}")
    return group
