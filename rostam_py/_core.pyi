"""
C++ core of rostam: fabrics, routing, flow engine, collectives, sessions.
"""
from __future__ import annotations
import collections.abc
import numpy
import numpy.typing
import typing
__all__: list[str] = ['EngineTraits', 'Fabric', 'PacketOptions', 'PathChoice', 'RouteTable', 'Schedule', 'TableOptions', 'TableResult', 'TableTrees', 'TaskGraph', 'Transfer', 'adaptive_rates', 'all_to_all_loads', 'assigner_names', 'assigner_summary', 'buffer_parts_names', 'candidate_paths', 'channel_dependencies', 'channel_schemes', 'closed_form_names', 'collective_time_ps', 'controller_names', 'controller_summary', 'count_disjoint', 'distribution_names', 'draw_factors', 'draw_parts', 'engine_names', 'engine_traits', 'estimators', 'fabric_names', 'forwarding_tables', 'hamiltonian_cycles', 'headroom', 'is_by_name_only', 'is_pipelined', 'link_loads', 'make_circuit_fabric', 'make_fabric', 'make_routes', 'models_bandwidth', 'needs_2d_grid', 'needs_grid', 'pack_trees', 'pair_chunks', 'parse_routing', 'reduces_in_switches', 'region_costs', 'relay_loads', 'require_memory', 'route_costs', 'routing_names', 'routing_summary', 'run_flows', 'run_session', 'schedule_names', 'set_ocs_circuits', 'set_ring_in_turn', 'set_ring_wavelengths', 'spare_channel_names', 'switching_modes', 'takes_direct_links', 'takes_trees', 'uses_servers', 'virtual_layers', 'walk_tables', 'works_in_pieces']
class Fabric:
    """
    Accelerators, switches and directed links of one plane, frozen once built.
    """
    def accelerators_on(self, boards: collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex]) -> list[int]:
        """
        Ids of the accelerators of these boards.
        """
    def closed_form_distance(self, vertex: typing.SupportsInt | typing.SupportsIndex, accelerator: typing.SupportsInt | typing.SupportsIndex) -> int:
        """
        Hops by the distance function; -1 where only search is left.
        """
    def cut_off(self) -> list[int]:
        """
        Working accelerators that failures have cut off from the others.
        """
    def diameter(self) -> int:
        """
        Longest shortest path between working accelerators, in links.
        """
    def first_alike(self) -> list[int]:
        """
        For every accelerator the first that is as far from all others, -1 where it has failed.
        """
    def healthy_accelerators(self) -> list[int]:
        """
        Ids of the accelerators that work.
        """
    def link_columns(self) -> dict:
        """
        Directed links as a dict of arrays, one entry per link.
        """
    def search_distances(self, accelerator: typing.SupportsInt | typing.SupportsIndex) -> numpy.typing.NDArray[numpy.int32]:
        """
        Hops from every vertex to `accelerator` by breadth-first search; 2^30 where there is no path.
        """
    def with_factors(self, bandwidth: collections.abc.Iterable[typing.SupportsFloat | typing.SupportsIndex], latency: collections.abc.Iterable[typing.SupportsFloat | typing.SupportsIndex], forward_latency: typing.SupportsFloat | typing.SupportsIndex) -> Fabric:
        """
        The same fabric with each link's bandwidth multiplied, and its latency divided, by a factor of its own.
        """
    def with_failures(self, switches: collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex], links: collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex], accelerators: collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex]) -> Fabric:
        """
        The same fabric with these switches, cables and accelerators failed in addition.
        """
    def working_parts(self, kind: str, scope: str) -> list[int]:
        """
        Ids of working 'switches', 'links', 'accelerators' or 'boards'; links of 'network', 'host' or 'all' cables.
        """
    @property
    def accelerators_forward(self) -> bool:
        """
        True if paths may go through accelerators.
        """
    @property
    def failed_accelerators(self) -> list[int]:
        """
        Sorted ids.
        """
    @property
    def failed_links(self) -> list[int]:
        """
        Sorted cable ids.
        """
    @property
    def failed_switches(self) -> list[int]:
        """
        Sorted ids from 0.
        """
    @property
    def name(self) -> str:
        """
        Registered name.
        """
    @property
    def num_accelerators(self) -> int:
        """
        Accelerators, failed ones included.
        """
    @property
    def num_boards(self) -> int:
        """
        Boards, failed ones included; 0 without boards.
        """
    @property
    def num_cables(self) -> int:
        """
        Cables of this plane outside servers, failed ones included.
        """
    @property
    def num_directed_links(self) -> int:
        """
        Entries of link_columns.
        """
    @property
    def num_switches(self) -> int:
        """
        Switches, failed ones included.
        """
    @property
    def num_vertices(self) -> int:
        """
        Accelerators, switches, then NICs and switches inside servers.
        """
class RouteTable:
    """
    Routes of accelerator pairs over engine links (links or bundles) of all planes.
    """
    def lanes(self, src: typing.SupportsInt | typing.SupportsIndex, dst: typing.SupportsInt | typing.SupportsIndex, message_hash: typing.SupportsInt | typing.SupportsIndex = 0, num_bytes: typing.SupportsInt | typing.SupportsIndex = 0) -> list:
        """
        Return (first link, end, latency in ps, planes, bytes/s, bytes of num_bytes) per class of planes that differ.
        """
    def route(self, src: typing.SupportsInt | typing.SupportsIndex, dst: typing.SupportsInt | typing.SupportsIndex, message_hash: typing.SupportsInt | typing.SupportsIndex = 0) -> tuple:
        """
        Return (engine links, share of the message on each, latency in ps) of a message.
        """
    def set_route(self, src: typing.SupportsInt | typing.SupportsIndex, dst: typing.SupportsInt | typing.SupportsIndex, message_hash: typing.SupportsInt | typing.SupportsIndex, links: collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex], shares: collections.abc.Iterable[typing.SupportsFloat | typing.SupportsIndex], latency_ps: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        Messages of the channel take these links from now on.
        """
    def steps(self, src: typing.SupportsInt | typing.SupportsIndex, dst: typing.SupportsInt | typing.SupportsIndex, message_hash: typing.SupportsInt | typing.SupportsIndex = 0) -> tuple:
        """
        Return ([(vertex, phase, first hop, end)], [(engine link, node, virtual channel)]) that packets may walk, by level.
        """
    def unset_route(self, src: typing.SupportsInt | typing.SupportsIndex, dst: typing.SupportsInt | typing.SupportsIndex, message_hash: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        Back to the policy's route.
        """
    @property
    def capacities(self) -> numpy.typing.NDArray[numpy.float64]:
        """
        Capacity of every engine link [bytes/s].
        """
    @property
    def classes(self) -> list[int]:
        """
        Class of every engine link.
        """
    @property
    def is_adaptive(self) -> bool:
        """
        True if engines divide messages over their paths: routes' shares are a first guess.
        """
    @property
    def is_hash_free(self) -> bool:
        """
        True if routes depend on the pair alone.
        """
    @property
    def knows_trees(self) -> bool:
        """
        True if transfers may be trees, which switches add up or copy along.
        """
    @property
    def members(self) -> list[list[int]]:
        """
        The fabric links behind every engine link, numbered on from one class of planes to the next.
        """
    @property
    def notes(self) -> list[str]:
        """
        What a reader should know of the routing on this fabric, in sentences.
        """
    @property
    def of_link(self) -> numpy.typing.NDArray[numpy.int32]:
        """
        The engine link of every fabric link, numbered on from one class of planes to the next.
        """
    @property
    def version(self) -> int:
        """
        Counts changes of routes.
        """
class EngineTraits:
    """
    What sessions and shortcuts may rely on.
    """
    @property
    def can_adapt(self) -> bool:
        """
        It divides messages over the paths of their routes, as routing adaptive asks for.
        """
    @property
    def can_fold(self) -> bool:
        """
        Folded systems may run on it.
        """
    @property
    def exact_when_alone(self) -> bool:
        """
        A transfer alone on its links runs at their rate, so that shortcuts may compute it.
        """
    @property
    def summary(self) -> str:
        """
        One line, for lists.
        """
    @property
    def tells_shares(self) -> bool:
        """
        Tells what a transfer puts on each link of its route, unless it divides the transfer itself.
        """
    @property
    def walks_packets(self) -> bool:
        """
        Messages go as packets, over links that are not bundled.
        """
class PacketOptions:
    """
    How messages are cut, and what switches are like.
    """
    def __init__(self, *, packet_bytes: typing.SupportsInt | typing.SupportsIndex = 8192, flit_bytes: typing.SupportsInt | typing.SupportsIndex = 256, buffer_bytes: typing.SupportsInt | typing.SupportsIndex = 32000000, num_vcs: typing.SupportsInt | typing.SupportsIndex = 0, crossbar_speedup: typing.SupportsInt | typing.SupportsIndex = 2, buffer_latency_ps: typing.SupportsInt | typing.SupportsIndex = -1, spare_vcs: str = 'output', buffer_parts: str = 'routing', skip: bool = False) -> None:
        """
        num_vcs 0: as many as the routing takes. buffer_latency_ps below 0: the fabric's own.
        """
    @property
    def buffer_bytes(self) -> int:
        """
        Of a port.
        """
    @property
    def crossbar_speedup(self) -> int:
        """
        Outputs fed by a port at once.
        """
    @property
    def flit_bytes(self) -> int:
        """
        What a switch waits for.
        """
    @property
    def packet_bytes(self) -> int:
        """
        The most of a message in one packet.
        """
class TableTrees:
    """
    Trees of switches that add up, one for each owner.
    """
    def __init__(self, *, num_members: typing.SupportsInt | typing.SupportsIndex, num_vertices: typing.SupportsInt | typing.SupportsIndex, links: collections.abc.Iterable[tuple[typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex, typing.SupportsFloat | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex]], home: collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex], parent: collections.abc.Iterable[collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex]]) -> None:
        """
        links: (src, dst, link back, bytes/s, latency and passage in ps). home: of each owner. parent: of each
        owner the link of every vertex towards home, or -1.
        """
class TableOptions:
    """
    How an all-reduce goes through tables.
    """
    def __init__(self, *, is_pull: bool, packets_per_owner: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
    @property
    def draws_victims(self) -> bool:
        """
        In place of the least recently used.
        """
    @draws_victims.setter
    def draws_victims(self, arg0: bool) -> None:
        ...
    @property
    def entries(self) -> int:
        """
        Of each switch's table.
        """
    @entries.setter
    def entries(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
    @property
    def injection(self) -> float:
        """
        Share of their rate at which members send.
        """
    @injection.setter
    def injection(self, arg0: typing.SupportsFloat | typing.SupportsIndex) -> None:
        ...
    @property
    def memory_ps(self) -> int:
        """
        An access to memory.
        """
    @memory_ps.setter
    def memory_ps(self, arg1: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
    @property
    def most_skew_ps(self) -> int:
        """
        Of the members' starts.
        """
    @most_skew_ps.setter
    def most_skew_ps(self, arg1: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
    @property
    def packet_bytes(self) -> int:
        """
        On a link.
        """
    @packet_bytes.setter
    def packet_bytes(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
    @property
    def packets_per_wave(self) -> int:
        """
        Of an owner.
        """
    @packets_per_wave.setter
    def packets_per_wave(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
    @property
    def request_bytes(self) -> int:
        """
        On a link, of a pull.
        """
    @request_bytes.setter
    def request_bytes(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
    @property
    def seed(self) -> int:
        """
        Of operands, starts and victims.
        """
    @seed.setter
    def seed(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
    @property
    def speedup(self) -> float:
        """
        Rate inside a switch over its ports'.
        """
    @speedup.setter
    def speedup(self, arg0: typing.SupportsFloat | typing.SupportsIndex) -> None:
        ...
    @property
    def waves(self) -> int:
        """
        Under way at most.
        """
    @waves.setter
    def waves(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
class TableResult:
    """
    What a walk through tables took.
    """
    @property
    def link_bytes(self) -> list[int]:
        """
        That each link carried.
        """
    @property
    def most_entries(self) -> int:
        """
        That a table held at once.
        """
    @property
    def num_evicted(self) -> int:
        """
        Entries evicted.
        """
    @property
    def num_passed(self) -> int:
        """
        Requests without an entry at a switch between.
        """
    @property
    def time_ps(self) -> int:
        """
        Until the last sum is there.
        """
class Transfer:
    """
    Chunks that one rank sends to a peer in one step.
    """
    @property
    def joins_last(self) -> bool:
        ...
    @property
    def num_chunks(self) -> int:
        ...
    @property
    def peer(self) -> int:
        ...
    @property
    def reduces(self) -> bool:
        ...
    @property
    def source_chunk(self) -> int:
        ...
    @property
    def target_chunk(self) -> int:
        ...
class Schedule:
    """
    A collective algorithm as a generator of transfers.
    """
    def __init__(self, collective: str, algorithm: str, num_ranks: typing.SupportsInt | typing.SupportsIndex, group_size: typing.SupportsInt | typing.SupportsIndex | collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex] = 1, grid: collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex] = [], num_pieces: typing.SupportsInt | typing.SupportsIndex = 1, rings: collections.abc.Iterable[collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex]] = [], trees: collections.abc.Iterable[collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex]] = [], parts: collections.abc.Iterable[collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex]] = []) -> None:
        """
        group_size: ranks of every server, or of each. grid: its sides, row-major, none without one. num_pieces: of the buffer, of hierarchical. rings: orders of a server's ranks, the channels of a ring. trees: of spanning_trees, each its parents and then its stages. parts: of an all_to_all, the chunks that each rank has for each. Throws ConfigError for an unknown pair or what does not fit the ranks.
        """
    def distinct_steps(self) -> list:
        """
        (steps alike, senders, receivers, chunks of each message) of every distinct step.
        """
    def messages_of(self, step: typing.SupportsInt | typing.SupportsIndex) -> tuple:
        """
        (1, senders, receivers, chunks of each message) of one step.
        """
    def num_receives(self, rank: typing.SupportsInt | typing.SupportsIndex, step: typing.SupportsInt | typing.SupportsIndex) -> int:
        ...
    def region_transfers(self, rank: typing.SupportsInt | typing.SupportsIndex, step: typing.SupportsInt | typing.SupportsIndex) -> list[tuple[str, list[int], int]]:
        """
        (pull, push, reduce or multicast; ranks of the region; chunks that they send together) of what a rank owns.
        """
    def sends(self, rank: typing.SupportsInt | typing.SupportsIndex, step: typing.SupportsInt | typing.SupportsIndex) -> list[Transfer]:
        """
        What `rank` sends in `step`.
        """
    @property
    def has_ordered_arrivals(self) -> bool:
        ...
    @property
    def is_in_place(self) -> bool:
        ...
    @property
    def is_synchronous(self) -> bool:
        ...
    @property
    def lead(self) -> int:
        """
        Steps that a rank may be ahead of the messages it awaits.
        """
    @property
    def loads_as_messages(self) -> bool:
        """
        Whether messages load links as what they stand for does: not those of pull, push and multicast.
        """
    @property
    def num_chunks(self) -> int:
        ...
    @property
    def num_ranks(self) -> int:
        ...
    @property
    def num_steps(self) -> int:
        ...
    @property
    def total_chunks_received(self) -> int:
        """
        Closed form of the chunks all ranks receive.
        """
    @property
    def total_chunks_sent(self) -> int:
        """
        Closed form of the chunks all ranks send.
        """
class PathChoice:
    """
    Pairs of accelerators that each take one of their single paths.
    """
    def __init__(self, routes: RouteTable, src: collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex], dst: collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex], job: collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex]) -> None:
        ...
    def assign(self, assigner: str, seed: typing.SupportsInt | typing.SupportsIndex = 0, planned: collections.abc.Iterable[collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex]] = []) -> list[int]:
        """
        Return the path of each pair, by its place among candidate_paths.
        """
    def links(self, of_anybody: bool = False) -> list[list[list[int]]]:
        """
        Engine links of every path of each pair that not all of its paths take; or that not all of somebody's do.
        """
    def shares(self, chosen: collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex]) -> dict:
        """
        Return the max-min fair rate of each pair, the least of each job [bytes/s], and the most paths on a link.
        """
class TaskGraph:
    """
    Templates, programs, groups and devices of a simulation.
    """
    def __init__(self, categories: collections.abc.Iterable[str], num_jobs: typing.SupportsInt | typing.SupportsIndex = 1) -> None:
        ...
    def add_devices(self, accelerator: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], program: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], job: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], slowdown: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], start_ps: typing.Annotated[numpy.typing.ArrayLike, numpy.int64], slots: typing.Annotated[numpy.typing.ArrayLike, numpy.int32]) -> None:
        """
        slots: (devices, slots, 3) with group, rank and peer device, -1 where unused.
        """
    def add_group(self, devices: collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex]) -> int:
        """
        Devices of a process group in rank order. Returns the group's index.
        """
    def add_program(self, template: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], microbatch: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], stride: typing.Annotated[numpy.typing.ArrayLike, numpy.int32] = ..., block_offset: typing.Annotated[numpy.typing.ArrayLike, numpy.int64] = ..., count: typing.Annotated[numpy.typing.ArrayLike, numpy.int64] = ...) -> int:
        """
        A list of (template, micro-batch), or blocks of them that repeat: entries block_offset[b] to
        block_offset[b + 1] run count[b] times, each with stride more in its micro-batch every time.
        Returns the program's index.
        """
    def add_protocol(self, wire_overhead: typing.SupportsFloat | typing.SupportsIndex, server_hop_ps: typing.SupportsInt | typing.SupportsIndex, network_hop_ps: typing.SupportsInt | typing.SupportsIndex, server_rate: typing.SupportsFloat | typing.SupportsIndex, region_rate: typing.SupportsFloat | typing.SupportsIndex = ...) -> int:
        """
        How messages of communication tasks go; server_rate, and region_rate of transfers through switches that
        reduce, in bytes/s. Returns the protocol's index.
        """
    def add_schedule(self, collective: str, algorithm: str, num_ranks: typing.SupportsInt | typing.SupportsIndex, group_size: typing.SupportsInt | typing.SupportsIndex | collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex] = 1, grid: collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex] = [], num_pieces: typing.SupportsInt | typing.SupportsIndex = 1, rings: collections.abc.Iterable[collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex]] = [], trees: collections.abc.Iterable[collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex]] = [], parts: collections.abc.Iterable[collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex]] = []) -> int:
        """
        Returns the schedule's index; arguments as those of Schedule.
        """
    def add_template(self, kind: typing.Annotated[numpy.typing.ArrayLike, numpy.int8], slot: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], category: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], schedule: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], channel: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], num_bytes: typing.Annotated[numpy.typing.ArrayLike, numpy.int64], duration_ps: typing.Annotated[numpy.typing.ArrayLike, numpy.int64], dep_offset: typing.Annotated[numpy.typing.ArrayLike, numpy.int64], dep: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], kernel_offset: typing.Annotated[numpy.typing.ArrayLike, numpy.int64] = ..., kernel_ps: typing.Annotated[numpy.typing.ArrayLike, numpy.int64] = ..., is_awaited_by_host: typing.Annotated[numpy.typing.ArrayLike, numpy.bool] = ..., protocol: typing.Annotated[numpy.typing.ArrayLike, numpy.int32] = ..., variation: typing.Annotated[numpy.typing.ArrayLike, numpy.float64] = ..., origin: typing.Annotated[numpy.typing.ArrayLike, numpy.int32] = ..., issue_ps: typing.Annotated[numpy.typing.ArrayLike, numpy.int64] = ..., taken_ppm: typing.Annotated[numpy.typing.ArrayLike, numpy.int32] = ..., queue: typing.Annotated[numpy.typing.ArrayLike, numpy.int32] = ...) -> int:
        """
        One entry for each task; dependencies in CSR form, as are the kernels of compute tasks: one kernel each
        without them. duration_ps: of compute, and the start-up of collectives and sends. protocol: of add_protocol,
        -1 for none. variation: of a compute task, its standard deviation as a share of one kernel's. origin:
        (tasks, 3) of a template that interleaves others: template, task there, micro-batches ahead. issue_ps: what
        each kernel costs its host, host_launch_ps without it. taken_ppm: of a collective, the millionths of a
        device's compute that it takes. queue: (tasks, 3) with the stream (-1: that of the slot), the
        communicator's order (-1: none), and 1 for a mark, which runs nothing and which nothing launches. Returns the
        template's index.
        """
    def freeze(self) -> None:
        """
        Checks and derives; nothing may be added after it.
        """
    @property
    def server_size(self) -> int:
        """
        Consecutive accelerators of a server, within which messages pay a protocol's server hop; 0: none.
        """
    @server_size.setter
    def server_size(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
def adaptive_rates(routes: RouteTable, src: collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex], dst: collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex], rate_caps: collections.abc.Iterable[typing.SupportsFloat | typing.SupportsIndex] = []) -> tuple:
    """
    Return (rate of each flow, load of every engine link) [bytes/s] of flows divided over minimal paths: max-min fair rates, of the divisions the least sum of squared loads. A cap of 0 is none.
    """
def all_to_all_loads(routes: RouteTable, members: collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex], num_bytes: typing.SupportsFloat | typing.SupportsIndex) -> numpy.typing.NDArray[numpy.float64]:
    """
    Bytes on every engine link when each member spreads num_bytes over all others.
    """
def assigner_names() -> list[str]:
    """
    Names of the registered assigners.
    """
def assigner_summary(name: str) -> str:
    """
    What an assigner does, in one line.
    """
def buffer_parts_names() -> list[str]:
    """
    How virtual channels may part buffers.
    """
def candidate_paths(routes: RouteTable, src: typing.SupportsInt | typing.SupportsIndex, dst: typing.SupportsInt | typing.SupportsIndex) -> list:
    """
    Return (engine links, latency in ps) of each single path of a pair, in the order of the vertices that they go through.
    """
def channel_dependencies(routes: RouteTable, members: collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex], scheme: str) -> list:
    """
    Per class of planes: counts of virtual channels and their dependencies, and a cycle [(link, channel)].
    """
def channel_schemes() -> list[str]:
    """
    Names of the ways to number virtual channels.
    """
def closed_form_names() -> list[str]:
    """
    'collective/algorithm' of every closed form.
    """
def collective_time_ps(collective: str, algorithm: str, num_bytes: typing.SupportsInt | typing.SupportsIndex, num_ranks: typing.SupportsInt | typing.SupportsIndex, alpha_s: typing.SupportsFloat | typing.SupportsIndex, bandwidth_bytes_per_s: typing.SupportsFloat | typing.SupportsIndex, grid: collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex] = [], num_pieces: typing.SupportsInt | typing.SupportsIndex = 1) -> int:
    """
    Closed-form time of a collective [ps] (MODEL A5).
    """
def controller_names() -> list[str]:
    """
    Names of the registered controllers.
    """
def controller_summary(name: str) -> str:
    """
    One line for lists.
    """
def count_disjoint(fabric: Fabric, num_layers: typing.SupportsInt | typing.SupportsIndex, most: typing.SupportsInt | typing.SupportsIndex) -> list[int]:
    """
    Pairs of switches by the most paths of layers without a common cable, 0 to `most` or more.
    """
def distribution_names() -> list[str]:
    """
    Names of the distributions of factors.
    """
def draw_factors(distribution: str, deviation: typing.SupportsFloat | typing.SupportsIndex, seed: typing.SupportsInt | typing.SupportsIndex, stream: str, count: typing.SupportsInt | typing.SupportsIndex) -> numpy.typing.NDArray[numpy.float64]:
    """
    Factors of mean 1 and the given relative standard deviation: the first `count` of a named stream of a seed.
    """
def draw_parts(num_parts: typing.SupportsInt | typing.SupportsIndex, count: typing.SupportsInt | typing.SupportsIndex, seed: typing.SupportsInt | typing.SupportsIndex) -> list[int]:
    """
    Positions of `count` parts, each at most once, drawn with `seed`.
    """
def engine_names() -> list[str]:
    """
    Names of the registered engines (fidelities).
    """
def engine_traits(fidelity: str) -> EngineTraits:
    """
    Traits of a registered engine.
    """
def estimators() -> list[tuple[str, str]]:
    """
    What decisions on circuits know of traffic: (name, one line) of each.
    """
def fabric_names() -> list[str]:
    """
    Names of the registered fabrics.
    """
def forwarding_tables(fabric: Fabric, num_layers: typing.SupportsInt | typing.SupportsIndex) -> numpy.typing.NDArray[numpy.int32]:
    """
    Next switch by (layer, switch, destination), -1 where there is none.
    """
def hamiltonian_cycles(rows: typing.SupportsInt | typing.SupportsIndex, columns: typing.SupportsInt | typing.SupportsIndex) -> tuple[numpy.typing.NDArray[numpy.int32], numpy.typing.NDArray[numpy.int32]]:
    """
    Ranks along two edge-disjoint Hamiltonian cycles of the torus.
    """
def headroom(routes: RouteTable, loads: collections.abc.Iterable[typing.SupportsFloat | typing.SupportsIndex]) -> float:
    """
    Largest factor by which loads (as rates) may grow until the first link is full.
    """
def is_by_name_only(collective: str, algorithm: str) -> bool:
    """
    True for algorithms that a default choice does not take.
    """
def is_pipelined(collective: str, algorithm: str) -> bool:
    """
    True for algorithms whose pieces of the buffer go one behind the other through all of their steps.
    """
def link_loads(routes: RouteTable, src: collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex], dst: collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex], num_bytes: collections.abc.Iterable[typing.SupportsFloat | typing.SupportsIndex]) -> numpy.typing.NDArray[numpy.float64]:
    """
    Bytes that the flows put on every engine link of one plane of each class; num_bytes of the mean plane.
    """
def make_circuit_fabric(name: str, num_accelerators: typing.SupportsInt | typing.SupportsIndex, src: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], dst: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], bandwidth_bytes_per_s: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], latency_s: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], is_relay_enabled: bool = False) -> Fabric:
    """
    The routable fabric of circuits: one directed link a connected pair.
    """
def make_fabric(name: str, parameters: collections.abc.Mapping[str, typing.Annotated[numpy.typing.ArrayLike, numpy.float64]]) -> Fabric:
    """
    Build the fabric `name` from plain arguments: {name: number or array}, in SI units.
    """
def make_routes(name: str, planes: collections.abc.Iterable[tuple[Fabric, typing.SupportsInt | typing.SupportsIndex]], message_overhead_s: typing.SupportsFloat | typing.SupportsIndex = 0.0, enable_bundling: bool = True) -> RouteTable:
    """
    Routes by the routing `name` over planes: [(fabric, number of planes like it)]; kept alive.
    """
def models_bandwidth(collective: str, algorithm: str) -> bool:
    """
    True for models of bandwidth, whose transfers carry no data to follow.
    """
def needs_2d_grid(collective: str, algorithm: str) -> bool:
    """
    True for algorithms that run on a grid of two sides only.
    """
def needs_grid(collective: str, algorithm: str) -> bool:
    """
    True for algorithms that run on a grid of ranks.
    """
def pack_trees(num_ranks: typing.SupportsInt | typing.SupportsIndex, ways: collections.abc.Iterable[tuple[typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex, collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex], collections.abc.Iterable[typing.SupportsFloat | typing.SupportsIndex]]], capacity: collections.abc.Iterable[typing.SupportsFloat | typing.SupportsIndex], most_trees: typing.SupportsInt | typing.SupportsIndex) -> list[list[int]] | None:
    """
    Spanning trees of every rank, as Schedule takes them, that load the fullest link little. ways: of every
    pair (src, dst, links, shares); capacity: of each link, any unit. None where some rank reaches not all.
    """
def pair_chunks(schedule: Schedule) -> tuple:
    """
    Chunks that one run of a schedule sends, as arrays (src rank, dst rank, chunks).
    """
def parse_routing(text: str) -> tuple[str, int]:
    """
    Return (registered name, number it takes, 0 for none) of a routing such as layers:8.
    """
def reduces_in_switches(collective: str, algorithm: str) -> bool:
    """
    True for algorithms whose data switches add up or copy on their way.
    """
def region_costs(routes: RouteTable, schedule: Schedule, groups: collections.abc.Iterable[collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex]]) -> tuple:
    """
    (latency [ps] of every step, chunks on every engine link in all steps) of a schedule that switches serve,
    all groups of accelerators at once.
    """
def relay_loads(num_accelerators: typing.SupportsInt | typing.SupportsIndex, src: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], dst: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], num_bytes: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], joined_src: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], joined_dst: typing.Annotated[numpy.typing.ArrayLike, numpy.int32]) -> numpy.typing.NDArray[numpy.float64]:
    """
    Bytes over each pair of accelerators with circuits where every demand takes the fewest of them, in equal parts; empty if no chain serves one.
    """
def require_memory(bytes: typing.SupportsFloat | typing.SupportsIndex, what: str, advice: str) -> None:
    """
    ConfigError 'WHAT need about X GB, but Y GB are available; ADVICE' where the bytes are more than that.
    """
def route_costs(routes: RouteTable, src: collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex], dst: collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex], num_bytes: collections.abc.Iterable[typing.SupportsFloat | typing.SupportsIndex]) -> tuple:
    """
    (latency [ps], seconds that the busiest link of the route needs) of every flow, all sent at once.
    """
def routing_names() -> list[str]:
    """
    Names of the registered routings.
    """
def routing_summary(name: str) -> str:
    """
    What a routing does, in one line.
    """
def run_flows(routes: RouteTable, num_accelerators: typing.SupportsInt | typing.SupportsIndex, src: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], dst: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], num_bytes: typing.Annotated[numpy.typing.ArrayLike, numpy.int64], start_ps: typing.Annotated[numpy.typing.ArrayLike, numpy.int64], rate_cap: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], stop_ps: typing.Annotated[numpy.typing.ArrayLike, numpy.int64], *, seed: typing.SupportsInt | typing.SupportsIndex = 0, park: bool = False, tolerance: typing.SupportsFloat | typing.SupportsIndex = 0.0, packets: PacketOptions = ..., controllers: collections.abc.Iterable[tuple[str, collections.abc.Mapping[str, collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex] | collections.abc.Iterable[typing.SupportsFloat | typing.SupportsIndex] | str]]] = [], reroutes: collections.abc.Iterable[tuple[typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex]] = [], fidelity: str = 'flow') -> dict:
    """
    Runs given flows without the GIL; returns when each was sent and delivered. stop_ps < 0: never cut off.
    """
def run_session(graph: TaskGraph, routes: RouteTable, *, launch_latency_ps: typing.SupportsInt | typing.SupportsIndex = 0, host_launch_ps: typing.SupportsInt | typing.SupportsIndex = 0, min_collective_ps: typing.SupportsInt | typing.SupportsIndex = 0, comm_compute_fraction: typing.SupportsFloat | typing.SupportsIndex = 0.0, min_iterations: typing.SupportsInt | typing.SupportsIndex = 1, max_iterations: typing.SupportsInt | typing.SupportsIndex = 1, steady_tolerance: typing.SupportsFloat | typing.SupportsIndex = 0.001, averages: bool = True, seed: typing.SupportsInt | typing.SupportsIndex = 0, fold: bool = True, shortcuts: bool = True, park: bool = False, tolerance: typing.SupportsFloat | typing.SupportsIndex = 0.0, packets: PacketOptions = ..., watch_stalls: bool = False, fidelity: str = 'flow', controllers: collections.abc.Iterable[tuple[str, collections.abc.Mapping[str, collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex] | collections.abc.Iterable[typing.SupportsFloat | typing.SupportsIndex] | str]]] = [], timeline_devices: collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex] = [], kernel_deviation: typing.SupportsFloat | typing.SupportsIndex = 0.0, distribution: str = 'lognormal', kernel_stream: str = 'kernels') -> dict:
    """
    Runs a frozen task graph over a system's links without the GIL and returns arrays.
    """
def schedule_names() -> list[tuple[str, str]]:
    """
    All (collective, algorithm) pairs.
    """
def set_ocs_circuits(num_accelerators: typing.SupportsInt | typing.SupportsIndex, src: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], dst: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], num_bytes: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], num_ocs: typing.SupportsInt | typing.SupportsIndex, is_symmetric: bool = False, is_duplex: bool = False, can_relay: bool = False, may_leave_out: bool = False) -> dict:
    """
    Circuits of `num_ocs` optical switches for a demand: pairs, their counts, and the switch of each circuit.
    """
def set_ring_in_turn(num_accelerators: typing.SupportsInt | typing.SupportsIndex, src: collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex], dst: collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex], num_bytes: collections.abc.Iterable[collections.abc.Iterable[typing.SupportsFloat | typing.SupportsIndex]], num_wavelengths: typing.SupportsInt | typing.SupportsIndex, reach: typing.SupportsInt | typing.SupportsIndex, seed: typing.SupportsInt | typing.SupportsIndex = 0, keeps_idle: bool = True, is_listed: bool = False) -> dict:
    """
    Settings of a ring for one demand (a row of num_bytes) of the same pairs, ordered by (src, dst), after another: how many circuits change each time (where those of before that it leaves alone are kept) and, listed, turn, pair and channel (fibre x W + wavelength) of each circuit, planned and with those kept.
    """
def set_ring_wavelengths(num_accelerators: typing.SupportsInt | typing.SupportsIndex, src: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], dst: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], num_bytes: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], num_wavelengths: typing.SupportsInt | typing.SupportsIndex, reach: typing.SupportsInt | typing.SupportsIndex, cut_segments: collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex] = [], seed: typing.SupportsInt | typing.SupportsIndex = 0, may_leave_out: bool = False, held: collections.abc.Iterable[typing.Annotated[collections.abc.Iterable[typing.SupportsInt | typing.SupportsIndex], "FixedSize(3)"]] = []) -> dict:
    """
    Wavelengths of a ring's two fibres for a demand: hops and count of each pair, fibre and wavelength of each circuit. held: pair, fibre and wavelength of circuits that pairs have now, ascending.
    """
def spare_channel_names() -> list[str]:
    """
    What may tell packets on spare virtual channels apart.
    """
def switching_modes() -> list[tuple[str, str]]:
    """
    When circuits are set anew: (name, one line) of each.
    """
def takes_direct_links(collective: str, algorithm: str) -> bool:
    """
    True for algorithms that a default choice takes where direct links join the ranks only.
    """
def takes_trees(collective: str, algorithm: str) -> bool:
    """
    True for algorithms that run along spanning trees, which are given.
    """
def uses_servers(collective: str, algorithm: str) -> bool:
    """
    True for algorithms that use the NICs of all ranks of a server.
    """
def virtual_layers(fabric: Fabric) -> int:
    """
    Virtual layers that dfsssp gives the paths of a plane.
    """
def walk_tables(trees: TableTrees, options: TableOptions) -> TableResult:
    """
    An all-reduce through reduction tables, packet by packet, its integers added up and checked.
    """
def works_in_pieces(collective: str, algorithm: str) -> bool:
    """
    True for algorithms that take the buffer in pieces through phases inside and between groups.
    """
