"""hammingmesh: boards of accelerators joined by switched row and column networks."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from rostam_py.errors import ConfigError
from rostam_py.fabrics.bill import BillOfMaterials
from rostam_py.fabrics.blocks import CompactOrder, compact_orders
from rostam_py.fabrics.config import check_dims, check_integer
from rostam_py.fabrics.reducing import ReducingFabricConfig
from rostam_py.fabrics.sizes import near_equal, whole_boards
from rostam_py.fabrics.torus import hamiltonian_cycle, ring_distances
from rostam_py.units import parse_time

if TYPE_CHECKING:
    from rostam_py.fabrics.layout import Layout

# In the order of the core's numbers; "auto" is resolved here.
WIRINGS = ("wrap", "board_row", "accelerator_row", "tree")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """One dimension with its wiring resolved: rows of boards along x, or columns along y.

    length: accelerators of a board along it. boards: boards along it. lines: accelerator lines of the whole mesh
    that run along it. wiring: one of ``WIRINGS``. num_networks: separate networks. leaf_boards: boards whose two
    ends join one leaf switch. num_leaves, leaf_up, num_spines, spine_up, num_cores: of one network; a single switch is
    one leaf. On three levels spines are the switches of pods, which have spine_up cables each to the cores above them.
    """

    length: int
    boards: int
    lines: int
    wiring: str
    num_networks: int = 0
    leaf_boards: int = 1
    num_leaves: int = 0
    leaf_up: int = 0
    num_spines: int = 0
    spine_up: int = 0
    num_cores: int = 0

    @property
    def num_levels(self) -> int:
        """Levels of switches of a network: 0 to 3."""
        return sum(count > 0 for count in (self.num_leaves, self.num_spines, self.num_cores))

    @property
    def num_switches(self) -> int:
        """Switches of all networks, in one plane."""
        return self.num_networks * (self.num_leaves + self.num_spines + self.num_cores)

    @property
    def num_end_cables(self) -> int:
        """Cables to accelerators, in one plane: two a board and line, or one that wraps a board of two or more."""
        return self.lines * (2 * self.boards if self.wiring != "wrap" else int(self.length > 1))

    @property
    def num_tree_cables(self) -> int:
        """Cables between switches, in one plane."""
        return self.num_networks * (self.num_leaves * self.leaf_up + self.num_spines * self.spine_up)

    @property
    def ports(self) -> int:
        """Links that an accelerator would have along it if every line were a ring."""
        return 0 if self.wiring == "wrap" and self.length == 1 else 2


@dataclass(kw_only=True, slots=True)
class HammingMeshConfig(ReducingFabricConfig):
    """A HammingMesh: x by y boards of a by b accelerators that forward, four ports each in a plane (E, W, N, S).

    Model: a board is a mesh of traces. The W and E ends of its accelerator rows go to the switched networks of its
        row of boards, the N and S ends of its columns to those of its column of boards. A dimension is wired
        ``board_row``: all links of one row of boards in one switch (2 b x <= radix ports; by columns 2 a y);
        ``accelerator_row``: the 2 x links of one accelerator row in one switch; ``tree``: a fat tree for the 2 x links
        of each accelerator row, whose leaves hold whole boards, of two levels where these join all leaves (at most
        radix), else of three: pods of at most radix / 2 leaves, which have a link to each of as many switches as they
        have uplinks; those have as many links up as down, to cores that every pod reaches, at most radix pods; or
        ``wrap``: a single board's two ends are joined by a cable, as on a torus, since a switch would join nothing
        else (a board of one accelerator has no ports there). ``auto`` takes wrap for a single board, else the first of
        the three that fits, each dimension on its own. Routes are all minimal paths, also over the switches of one's
        own board.
        Accelerators are numbered row-major within a board, boards row-major (MODEL C11).
    Args:
        board: (a, b): accelerators along a board's row and along its column; (1, 1) is the paper's Hx1Mesh.
        boards: (x, y): boards along a row and along a column.
        wiring: "auto", "board_row", "accelerator_row", "tree" or "wrap", or two of them for rows and columns.
        taper: uplinks over downlinks of a tree's leaf, 0 < taper <= 1, or two of them for rows and columns; 1 is
            nonblocking. Results note where rows or columns have no tree of several leaves, and so no taper.
        radix: ports of a switch; 64 as in the paper's price list.
        link_latency: latency of every cable; 20 ns in the paper. board_latency: latency of every trace; 1 ns in the
            paper.
        switch_latency: latency of every switch or accelerator that a path goes through; 40 ns, the paper's buffer
            latency.
    Source: HammingMesh, sections III (wirings, tapering), IV-C (routing), appendices C (counts) and F (latencies).
        The paper states the port count of board_row for square boards, 2 a x; its diameter is for trees of any number
        of levels, and the three levels here are those of its large fat tree (appendix C). Two tapers: own.
    """

    board: Any  # Any lets text such as 2x2 through to the check below, whose error says what to write
    boards: Any
    wiring: Any = "auto"
    taper: Any = 1.0
    radix: int = 64
    board_latency: Any = field(default="1 ns", metadata={"unit": "time"})
    switch_latency: Any = field(default="40 ns", metadata={"unit": "time"})

    def __post_init__(self) -> None:
        self.board = _check_pair("fabric.board", self.board)
        self.boards = _check_pair("fabric.boards", self.boards)
        count = math.prod(self.board) * math.prod(self.boards)
        check_integer(f"the accelerators of board {list(self.board)} and boards {list(self.boards)}", count, 2)
        self.radix = check_integer("fabric.radix", self.radix, 4)
        self.taper = _check_taper(self.taper)
        self.wiring = _check_wiring(self.wiring)
        _ = self.dimensions
        ReducingFabricConfig.__post_init__(self)

    @classmethod
    def example(cls) -> Self:
        """Return 2 x 2 boards of 2 x 2."""
        return cls(board=(2, 2), boards=(2, 2))

    @classmethod
    def resized(cls, parameters: Mapping[str, Any], num_accelerators: int) -> dict[str, Any]:
        """Return parameters with ``boards`` as near to a square as whole numbers allow, x >= y; the board is kept.

        Raises: ConfigError for a number that whole boards do not make up.
        """
        board = _check_pair("fabric.board", parameters.get("board") or (1, 1))
        boards = near_equal(whole_boards(board, num_accelerators), 2)
        return {**parameters, "boards": boards}

    def draw(self, fabric: Any, level: int) -> "Layout":
        """Draw framed boards, row switches to the left and column switches above."""
        from rostam_py.fabrics.layout_lanes import LaneSwitches, draw_boards

        rows, columns = self.dimensions
        (a, b), (x, y) = self.board, self.boards
        switches = [
            LaneSwitches(
                one.num_networks, 1 if one.wiring == "board_row" else lines, one.num_leaves, one.num_spines,
                one.num_cores,
            )
            for one, lines in ((rows, b), (columns, a))
        ]  # fmt: skip
        return draw_boards(fabric, level, ((a, b), (x, y)), *switches)

    @property
    def dimensions(self) -> tuple[Dimension, Dimension]:
        """Rows (along x) and columns (along y) with their wirings resolved.

        Raises: ConfigError for a wiring that needs more ports than its switches have.
        """
        (a, b), (x, y) = self.board, self.boards
        rows, columns = (self.wiring, self.wiring) if isinstance(self.wiring, str) else self.wiring
        of_rows, of_columns = self._tapers
        return (
            self._wire("rows", rows, Dimension(length=a, boards=x, lines=b * y, wiring=""), (b, y), of_rows),
            self._wire("columns", columns, Dimension(length=b, boards=y, lines=a * x, wiring=""), (a, x), of_columns),
        )

    @property
    def _tapers(self) -> tuple[float, float]:
        """Of rows and of columns."""
        return self.taper if isinstance(self.taper, tuple) else (self.taper, self.taper)

    @property
    def ports_per_plane(self) -> int:
        """Links that an accelerator has in one plane: two a dimension."""
        return sum(dimension.ports for dimension in self.dimensions)

    def unread_keys(self) -> tuple[str, ...]:
        """Return a note for a taper that rows or columns do not have, and for parameters of switches
        that do not reduce."""
        flat = [
            f"{what} of {one.boards} board{'s' if one.boards > 1 else ''} ({one.wiring})"
            for what, one, taper in zip(("rows", "columns"), self.dimensions, self._tapers, strict=True)
            if one.num_leaves <= 1 and taper != 1
        ]
        unread = ReducingFabricConfig.unread_keys(self)
        if not flat:
            return unread
        return (
            *unread,
            f"fabric.taper is {self.taper}, which {' and '.join(flat)} do not read: it is of trees with several leaves "
            "(fabric.wiring=tree, more boards, or a smaller fabric.radix)",
        )

    def core_parameters(self) -> dict[str, Any]:
        """Return the core's plain arguments in SI units."""
        rows, columns = self.dimensions
        return {
            "board": self.board,
            "boards": self.boards,
            "wiring": [WIRINGS.index(dimension.wiring) for dimension in (rows, columns)],
            "leaf_boards": [rows.leaf_boards, columns.leaf_boards],
            "leaf_up": [rows.leaf_up, columns.leaf_up],
            "num_spines": [0 if one.num_levels == 3 else one.num_spines for one in (rows, columns)],
            "levels": [max(2, one.num_levels) for one in (rows, columns)],
            "radix": self.radix,
            "link_bandwidth_bytes_per_s": self.link_bandwidth_bytes_per_s,
            "link_latency_s": parse_time(self.link_latency, "fabric.link_latency"),
            "board_latency_s": parse_time(self.board_latency, "fabric.board_latency"),
            "switch_latency_s": parse_time(self.switch_latency, "fabric.switch_latency"),
        }

    def grid(self) -> np.ndarray:
        """Return the accelerators of the virtual 2D torus, shape (rows, columns) = (b y, a x)."""
        (a, b), (x, y) = self.board, self.boards
        numbered = np.arange(a * b * x * y).reshape(y, x, b, a)
        return numbered.transpose(0, 2, 1, 3).reshape(b * y, a * x)

    def ring_order(self) -> list[int]:
        """Return all accelerators on a Hamiltonian cycle of the virtual torus.

        Neighbours are one trace apart, or one crossing of a row or column network at the ends of their boards.
        """
        grid = self.grid()
        return [int(grid[cell]) for cell in hamiltonian_cycle(grid.shape)]

    def compact_orders(self, degrees: Sequence[int], num_blocks: int) -> list[CompactOrder]:
        """Return the orders in boxes of least mean distance on the virtual torus, boards within boxes or around them.

        Model: a crossing of a row or column network counts two hops, whatever its levels.
        """
        rows, columns = self.dimensions
        return compact_orders(self.grid(), [_distances(columns), _distances(rows)], degrees, num_blocks)

    def bill_of_materials(self) -> BillOfMaterials:
        """Price all planes: rows and wraps in copper, columns and cables between switches active optical."""
        rows, columns = self.dimensions
        wraps = columns.num_end_cables if columns.wiring == "wrap" else 0
        copper = rows.num_end_cables + wraps
        optical = columns.num_end_cables - wraps + rows.num_tree_cables + columns.num_tree_cables
        switches = rows.num_switches + columns.num_switches
        parts = self.parts_per_link
        return BillOfMaterials(parts * switches, {"DAC": parts * copper, "AoC": parts * optical})

    def _wire(self, what: str, wiring: str, bare: Dimension, across: tuple[int, int], taper: float) -> Dimension:
        """Resolve one dimension; ``across``: a board's lines, and boards, in the other dimension."""
        boards = bare.boards
        ports = {"board_row": 2 * across[0] * boards, "accelerator_row": 2 * boards}
        if wiring == "auto":
            fitting = [name for name, needed in ports.items() if needed <= self.radix]
            wiring = "wrap" if boards == 1 else [*fitting, "tree"][0]
        if wiring == "wrap":
            if boards > 1:
                raise ConfigError(f"fabric.wiring is 'wrap' for {what} of {boards} boards; it joins the ends of one")
            return replace(bare, wiring=wiring)
        if wiring == "tree":
            return self._grow_tree(what, replace(bare, wiring=wiring, num_networks=bare.lines), taper)
        if ports[wiring] > self.radix:
            raise ConfigError(
                f"fabric.wiring is {wiring!r} for {what} of {boards} boards, which has {ports[wiring]} links a "
                f"switch; fabric.radix is {self.radix}, enough for {self.radix * boards // ports[wiring]} boards"
            )
        networks = bare.lines if wiring == "accelerator_row" else across[1]
        return replace(bare, wiring=wiring, num_networks=networks, leaf_boards=boards, num_leaves=1)

    def _grow_tree(self, what: str, flat: Dimension, taper: float) -> Dimension:
        """Return ``flat`` with the fewest leaves that hold its boards in equal parts, and the switches they need."""
        most = max(d for d in range(1, self.radix // 2) if 2 * d + math.ceil(2 * d * taper) <= self.radix)
        num_leaves = -(-flat.boards // most)
        leaf_boards = -(-flat.boards // num_leaves)
        num_leaves = -(-flat.boards // leaf_boards)
        up = math.ceil(2 * leaf_boards * taper) if num_leaves > 1 else 0
        leaves = replace(flat, leaf_boards=leaf_boards, num_leaves=num_leaves, leaf_up=up)
        if num_leaves <= self.radix:
            return replace(leaves, num_spines=-(-num_leaves * up // self.radix))
        num_pods = -(-num_leaves // (self.radix // 2))
        if num_pods > self.radix:
            limit = most * (self.radix // 2) * self.radix
            raise ConfigError(
                f"fabric.boards has {what} of {flat.boards} boards; trees of three levels of fabric.radix {self.radix} "
                f"join at most {limit} at fabric.taper {taper}"
            )
        pod_leaves = -(-num_leaves // num_pods)
        cores = -(-num_pods * pod_leaves // self.radix)  # above each of the switches of a pod
        return replace(leaves, num_spines=num_pods * up, spine_up=pod_leaves, num_cores=up * cores)


def _distances(dimension: Dimension) -> np.ndarray:
    """Return the hops between all places along a dimension, int array (places, places)."""
    if dimension.wiring == "wrap":
        return ring_distances(dimension.length)
    board, place = np.divmod(np.arange(dimension.boards * dimension.length), dimension.length)
    to_edge = np.minimum(place, dimension.length - 1 - place)
    crossing = np.add.outer(to_edge, to_edge) + 2
    on_board = np.abs(np.subtract.outer(place, place))
    return np.where(np.equal.outer(board, board), np.minimum(on_board, crossing), crossing)


def _check_pair(key: str, values: Any) -> tuple[int, ...]:
    """Return two integers >= 1."""
    pair = check_dims(key, values, 1, "size")
    if len(pair) != 2:
        raise ConfigError(f"{key} is {list(pair)}; it needs two sizes, along x and along y")
    return pair


def _check_wiring(value: Any) -> str | tuple[str, str]:
    """Return one wiring for both dimensions, or one for each."""
    allowed = ("auto", "board_row", "accelerator_row", "tree", "wrap")
    parts = (value,) if isinstance(value, str) or not hasattr(value, "__iter__") else tuple(value)
    if any(part not in allowed for part in parts) or len(parts) not in (1, 2):
        raise ConfigError(f"fabric.wiring is {value!r}; allowed: {', '.join(allowed)}, or two of them: rows, columns")
    return parts[0] if len(parts) == 1 else parts


def _check_taper(value: Any) -> float | tuple[float, float]:
    """Return one taper for both dimensions, or one for each."""
    is_pair = hasattr(value, "__iter__") and not isinstance(value, str)
    tapers = tuple(value) if is_pair else (value,)
    for one in tapers:
        if isinstance(one, bool) or not isinstance(one, int | float) or not 0 < one <= 1:
            break
    else:
        if not is_pair or len(tapers) == 2:
            return tapers if is_pair else value
    raise ConfigError(f"fabric.taper is {value!r}; it must be a number > 0 and <= 1, or two of them: rows, columns")
