"""SimAI's topology text: counts, the ids of switches, then a cable a line.

Line 1 is ``nodes gpus_per_server nvswitches switches links gpu_type``, line 2 the ids of all switches; every further
line ``src dst bandwidth latency error``, as in ``0 8 2880Gbps 0.000025ms 0``. Other ids are accelerators, in order.
Line 2 names NVSwitches first. A node of SimAI is a GPU and its NIC: where it has cables to an NVSwitch and to other
switches, the latter start at a switch of its own, the NIC, without latency: NVLink is the shorter way inside a server.
Source: SimAI's topology files; tests/fabrics/test_topologies.py counts links by hand.
"""

import re

from rostam_py.errors import ConfigError

_MOST = 2**20  # nodes, and cables
_INSIDE = "5 TB/s"  # between a GPU and its NIC: never the least of a way
_RATE = re.compile(r"(\d+(?:\.\d+)?)([KMGT]?)bps")
_TIME = re.compile(r"(\d+(?:\.\d+)?(?:[eE]-?\d+)?)(ns|us|ms|s)")


def read_simai(path: str, lines: list[str]) -> list[tuple[int, str, str, str, str]]:
    """Return the cables of a file as rows. Raises: ConfigError that names the line, its words and what is allowed."""
    where = f"fabric.links, line {{}} of {path!r}"
    words = [(k, line.split()) for k, line in enumerate(lines, 1) if line.strip()]
    if len(words) < 3:
        raise ConfigError(f"{where.format(len(lines))}: a topology has counts, ids of switches, and cables")
    head = words[0][1]
    if len(head) != 6 or not all(one.isdecimal() and len(one) < 8 for one in head[:5]):
        raise ConfigError(
            f"{where.format(words[0][0])}: {' '.join(head)[:80]!r}; it must be nodes, gpus_per_server, nvswitches,"
            " switches, links and gpu_type"
        )
    num_nodes, _, num_nvswitches, num_switches, num_links = map(int, head[:5])
    if max(num_nodes, num_links) > _MOST:
        raise ConfigError(f"{where.format(words[0][0])}: {max(num_nodes, num_links)} nodes or links; at most {_MOST}")
    line, ids = words[1]
    switches = [int(one) for one in ids if one.isdecimal() and int(one) < num_nodes]
    if len({*switches}) != len(ids) or len(ids) != num_nvswitches + num_switches:
        raise ConfigError(
            f"{where.format(line)}: it must name {num_nvswitches + num_switches} different switches, with ids below"
            f" {num_nodes}"
        )
    if len(words) - 2 != num_links:
        raise ConfigError(
            f"{where.format(words[-1][0])}: the file has {len(words) - 2} cables; line 1 says {num_links}"
        )
    is_switch = set(switches)
    names = {node: f"s{k}" for k, node in enumerate(sorted(switches))}
    names |= {node: f"a{k}" for k, node in enumerate(one for one in range(num_nodes) if one not in is_switch)}
    rows = [_cable(where.format(line), line, cable, names) for line, cable in words[2:]]
    return _with_nics(rows, {names[one] for one in switches[:num_nvswitches]}, len(switches))


def _with_nics(
    rows: list[tuple[int, str, str, str, str]], nvswitches: set[str], num_switches: int
) -> list[tuple[int, str, str, str, str]]:
    """Return rows in which accelerators of NVSwitches have their other cables at a NIC."""
    on_nvswitch = {
        end for _, *ends, _, _ in rows for end, other in (ends, ends[::-1]) if end[0] == "a" and other in nvswitches
    }
    nics: dict[str, str] = {}
    found = []
    for line, src, dst, bandwidth, latency in rows:
        moved = []
        for end, other in ((src, dst), (dst, src)):
            if end in on_nvswitch and other[0] == "s" and other not in nvswitches:
                if end not in nics:
                    nics[end] = f"s{num_switches + len(nics)}"
                    found.append((line, end, nics[end], _INSIDE, "0 ns"))
                end = nics[end]
            moved.append(end)
        found.append((line, moved[0], moved[1], bandwidth, latency))
    return found


def _cable(where: str, line: int, words: list[str], names: dict[int, str]) -> tuple[int, str, str, str, str]:
    if len(words) != 5:
        raise ConfigError(f"{where}: {' '.join(words)[:80]!r}; a cable is src, dst, bandwidth, latency and error")
    for one in words[:2]:
        if not one.isdecimal() or len(one) > 7 or int(one) not in names:
            raise ConfigError(f"{where}: {one[:20]!r} is no node; ids are 0 to {len(names) - 1}")
    rate, time = _RATE.fullmatch(words[2]), _TIME.fullmatch(words[3])
    if rate is None or time is None:
        raise ConfigError(f"{where}: {' '.join(words[2:4])[:60]!r}; it must be as in 400Gbps 0.0005ms")
    if words[4].strip("0.") != "":
        raise ConfigError(f"{where}: error is {words[4][:20]!r}; only 0 is read: lost packets are not simulated")
    prefix = rate[2].replace("K", "k")
    return line, names[int(words[0])], names[int(words[1])], f"{rate[1]} {prefix}b/s", f"{float(time[1])!r} {time[2]}"
