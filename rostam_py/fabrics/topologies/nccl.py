"""NCCL's topology XML, as NCCL_TOPO_DUMP_FILE writes it: GPUs, NVLinks, PCIe, CPUs and NICs of one NVLink domain.

Model: rates [GB/s of 10^9 bytes, one direction] are those that NCCL plans with, below the signalling rate: an NVLink by
    the GPU's compute capability, a PCIe lane by its generation. All NVSwitches are one switch. A GPU reaches PCIe and
    its CPU's C2C through its own PCIe end, by a cable of 5,000 GB/s and 0 ns, so that NVLink is the shorter way. CPUs
    of a host are joined in pairs. Hosts are joined by NVSwitches alone: what joins NICs is not in the file. Only ports
    have latencies there.
Ignores, as NCCL: GPUs and ports without rank or dev, NVLinks to GPUs that are not in the file, gin and rma.
Source: NCCL 2.29, src/graph/topo.h and topo.cc; tests/fabrics/test_nccl_topology.py counts links by hand.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from xml.parsers import expat

from rostam_py.errors import ConfigError

_MOST = 2**16  # elements
_MOST_DEPTH = 64
_PARTS = {
    "system": {"cpu"},
    "cpu": {"pci", "nic"},
    "pci": {"pci", "gpu", "nic", "pcilink"},
    "gpu": {"nvlink", "c2c"},
    "nic": {"net", "gin", "rma"},
}
_LOCAL = 5000.0  # LOC_BW
_NVLINK = ((100, 40.1), (90, 20.6), (87, 20.0), (86, 12.0), (80, 20.0), (70, 20.0), (60, 18.0))  # from sm on
_OLDER_NVLINK = 20.0
_PCIE_LANE = {2.5: 1.5, 5.0: 3.0, 8.0: 6.0, 16.0: 12.0, 32.0: 24.0, 64.0: 48.0}  # GT/s: Gb/s
_SPEED = re.compile(r"(\d{1,3}(?:\.\d)?) GT/s(?: PCIe)?")
_ARM, _POWER = 6.0, 32.0
_INTEL = ((0xCF, 40.0), (0xB0, 22.0), (0xAD, 40.0), (0x8F, 22.0), (0x55, 10.0))  # family 6, from modelid on
_OLDER_INTEL = 6.0
_AMD = {26: 32.0, 0xBF: 32.0, 25: 24.0, 0xAF: 24.0}  # by familyid: Zen 5, Zen 3 and 4; 16 of others
_OLDER_AMD = 16.0
_UNKNOWN_PORT_MBPS = 10_000  # of a port that says 0 or -1


@dataclass(slots=True)
class _Element:
    tag: str
    given: dict[str, str]
    place: str
    line: int
    parts: list["_Element"] = field(default_factory=list)

    def all(self, tag: str) -> list["_Element"]:
        return [one for one in self.parts if one.tag == tag]

    def text(self, key: str) -> str:
        if key not in self.given:
            raise ConfigError(f"{self.place}: <{self.tag}> has no {key}")
        return self.given[key]

    def integer(self, key: str, least: int, most: int, default: int | None = None) -> int:
        if default is not None and key not in self.given:
            return default
        text = self.text(key)
        value = int(text) if re.fullmatch(r"-?\d{1,15}", text, re.ASCII) else least - 1
        if not least <= value <= most:
            raise ConfigError(
                f"{self.place}: {key} of <{self.tag}> is {text[:40]!r}; it must be an integer from {least} to {most}"
            )
        return value


def read_nccl(path: str, lines: list[str]) -> list[tuple[int, str, str, str, str]]:
    """Return the cables of a file as rows.

    Raises: ConfigError that names the line, the element, its attribute and what is allowed.
    """
    system = _parsed(path, lines)
    found = _Cables()
    cpus: dict[str, list[tuple[str, _Element]]] = {}
    for element in system.parts:
        host = element.given.get("host_hash", "")
        name = found.name("cpu")
        cpus.setdefault(host, []).append((name, element))
        for one in element.parts:
            if one.tag == "pci":
                found.add_pci(one, name, name, host)
            else:
                nic = found.name("nic")
                found.add(one, name, nic, _LOCAL)
                found.add_ports(one, nic)
    if not found.gpus:
        raise ConfigError(
            f"{system.place}: no <gpu> with a rank; NCCL_TOPO_DUMP_FILE writes them, files for NCCL_TOPO_FILE may not"
        )
    found.add_nvlinks()
    found.add_pci_links()
    for group in cpus.values():
        for k, (name, element) in enumerate(group):
            for other, one in group[:k]:
                found.add(element, other, name, min(_between_cpus(element), _between_cpus(one)))
    return found.rows


def _parsed(path: str, lines: list[str]) -> _Element:
    """Return the system element. Entities and document types are refused, so that no text grows as it is read."""
    where = f"fabric.links, line {{}} of {path!r}"
    parser = expat.ParserCreate("utf-8")
    top = _Element("", {}, where.format(1), 1)
    open_elements = [top]
    num_elements = 0

    def start(tag: str, given: dict[str, str]) -> None:
        nonlocal num_elements
        num_elements += 1
        line, parent = parser.CurrentLineNumber, open_elements[-1]
        place = where.format(line)
        if num_elements > _MOST or len(open_elements) > _MOST_DEPTH:
            raise ConfigError(f"{place}: more than {_MOST} elements, or {_MOST_DEPTH} in each other; no more are read")
        allowed = _PARTS.get(parent.tag, set()) if parent is not top else {"system"}
        if tag not in allowed:
            what = f"<{parent.tag}> holds" if parent.tag else "the file holds"
            raise ConfigError(f"{place}: {what} <{tag[:40]}>; allowed: {', '.join(sorted(allowed)) or 'no element'}")
        element = _Element(tag, given, place, line)
        parent.parts.append(element)
        open_elements.append(element)

    def refuse(*declaration: object) -> None:
        raise ConfigError(
            f"{where.format(parser.CurrentLineNumber)}: it declares a document type; NCCL writes none, and none is read"
        )

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda tag: open_elements.pop()
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse("\n".join(lines).encode(), True)
    except expat.ExpatError as error:
        said = expat.errors.messages.get(error.code, str(error))
        raise ConfigError(f"{where.format(error.lineno)}: it is no XML: {said}") from error
    return top.parts[0]


class _Cables:
    """Cables found so far, and what later ones need: GPUs and PCIe elements by host and bus id."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, str, str, str, str]] = []
        self.gpus: dict[tuple[str, str], tuple[str, _Element]] = {}
        self._pci: dict[tuple[str, str], tuple[str, _Element]] = {}
        self._nics: dict[tuple[str, str], str] = {}
        self._counts: Counter[str] = Counter()

    def name(self, kind: str) -> str:
        self._counts[kind] += 1
        return f"{kind}{self._counts[kind] - 1}"

    def add(self, element: _Element, src: str, dst: str, rate: float, latency: str = "") -> None:
        self.rows.append((element.line, src, dst, f"{round(rate, 9)!r} GB/s", latency))

    def add_pci(self, element: _Element, parent: str, cpu: str, host: str) -> None:
        """Add what is at a PCIe address, and below it."""
        key = (host, element.text("busid").lower())
        gpus, nics = element.all("gpu"), element.all("nic")
        if gpus:
            self._add_gpu(element, parent, cpu, key)
        elif nics:
            # Ports of one card are functions of one PCIe device: they share its lanes.
            card = (host, key[1].rpartition(".")[0])
            if card not in self._nics:
                self._nics[card] = self.name("nic")
                self.add(element, parent, self._nics[card], _pcie_rate(element))
            for one in nics:
                self.add_ports(one, self._nics[card])
        elif not element.text("class").startswith(("0x02", "0x03", "0x068000")):
            self._pci[key] = (own, _) = (self.name("pci"), element)
            self.add(element, parent, own, _pcie_rate(element))
            for one in element.all("pci"):
                self.add_pci(one, own, cpu, host)

    def _add_gpu(self, element: _Element, parent: str, cpu: str, key: tuple[str, str]) -> None:
        gpus = element.all("gpu")
        gpu = gpus[0]
        if len(gpus) > 1:
            raise ConfigError(f"{gpus[1].place}: a second <gpu> of one <pci>; a rank for each GPU is read")
        if "rank" not in gpu.given:
            return
        name, own = f"gpu{gpu.integer('rank', 0, _MOST)}", self.name("pci")
        if key in self.gpus or any(name == one for one, _ in self.gpus.values()):
            raise ConfigError(f"{gpu.place}: rank {gpu.text('rank')} or busid {key[1][:20]!r} is a GPU's before it")
        self.gpus[key] = (name, gpu)
        self.add(gpu, name, own, _LOCAL, "0 ns")
        direct = sum(one.integer("bw", 1, 10**7) * one.integer("count", 1, 1000) / 1000 for one in gpu.all("c2c"))
        for one in gpu.all("nvlink"):
            if one.text("tclass") == "0x068001":
                direct += one.integer("count", 1, 1000) * _nvlink_rate(gpu)
        if direct:
            self.add(gpu, own, cpu, direct)
        if not direct or parent != cpu:
            self.add(element, parent, own, _pcie_rate(element))

    def add_ports(self, nic: _Element, name: str) -> None:
        for one in nic.all("net"):
            if "dev" not in one.given or one.given.get("net") == "0":
                continue
            speed = one.integer("speed", -1, 10**9, 0)
            text = one.given.get("latency", "0")
            if not re.fullmatch(r"\d{1,9}(\.\d{1,12})?", text, re.ASCII):
                raise ConfigError(f"{one.place}: latency of <net> is {text[:40]!r}; it must be a number of us, as 1.5")
            rate = (speed if speed > 0 else _UNKNOWN_PORT_MBPS) / 8000
            self.add(one, name, self.name("net"), rate, f"{text} us" if float(text) else "")

    def add_nvlinks(self) -> None:
        """Add a cable to the switch, or for each pair of GPUs, of all their NVLinks."""
        counts: Counter[tuple[str, str]] = Counter()
        places: dict[tuple[str, str], tuple[_Element, float]] = {}
        for (host, _), (name, gpu) in self.gpus.items():
            for link in gpu.all("nvlink"):
                kind, count = link.text("tclass"), link.integer("count", 1, 1000)
                if kind.startswith("0x03"):
                    other = self.gpus.get((host, link.text("target").lower()), ("", gpu))[0]
                else:
                    other = "" if kind == "0x068001" else "nvswitch0"
                if other:
                    counts[name, other] += count
                    places.setdefault((name, other), (link, _nvlink_rate(gpu)))
        if len({host for host, _ in self.gpus}) > 1:
            for name, gpu in self.gpus.values():
                if (name, "nvswitch0") not in counts:
                    raise ConfigError(
                        f"{gpu.place}: {name} has no <nvlink> to a switch (tclass 0x068000), which is what joins hosts:"
                        " the file does not say what joins their NICs; read one host, or hosts that NVLink joins"
                    )
        for (name, other), count in counts.items():
            link, rate = places[name, other]
            if other != "nvswitch0" and counts.get((other, name)) != count:
                raise ConfigError(
                    f"{link.place}: count of <nvlink> from {name} to {other} is {count}, back"
                    f" {counts.get((other, name), 0)}; they must be equal"
                )
            if other == "nvswitch0" or name <= other:
                self.add(link, name, other, count * min(rate, places.get((other, name), (link, rate))[1]))

    def add_pci_links(self) -> None:
        """Add cables between PCIe switches, which NCCL writes as links of both."""
        pairs: set[frozenset[str]] = set()
        for (host, _), (name, element) in self._pci.items():
            for link in element.all("pcilink"):
                other = self._pci.get((host, link.text("target").lower()), (name, element))[0]
                if other != name and frozenset((name, other)) not in pairs:
                    pairs.add(frozenset((name, other)))
                    self.add(link, name, other, _LOCAL)


def _nvlink_rate(gpu: _Element) -> float:
    sm = gpu.integer("sm", 1, 999)
    return next((rate for least, rate in _NVLINK if sm >= least), _OLDER_NVLINK)


def _pcie_rate(element: _Element) -> float:
    """Return the rate of an element's lanes [GB/s]; of a virtual machine's unknown ones 16, at 8 GT/s."""
    width, text = element.integer("link_width", 0, 32) or 16, element.text("link_speed")
    speed = _SPEED.fullmatch(text)
    lane = _PCIE_LANE.get(float(speed[1])) if speed else _PCIE_LANE[8.0] if text[:7] in ("", "Unknown") else None
    if lane is None:
        known = ", ".join(f"{one:g}" for one in _PCIE_LANE)
        raise ConfigError(
            f"{element.place}: link_speed of <pci> is {text[:40]!r}; it must be as in '16.0 GT/s PCIe', of {known}, or"
            " Unknown"
        )
    return width * lane / 8


def _between_cpus(element: _Element) -> float:
    """Return the rate between two CPUs of a host [GB/s]."""
    arch, vendor = element.text("arch"), element.given.get("vendor", "")
    if arch in ("arm64", "ppc64"):
        return _ARM if arch == "arm64" else _POWER
    if arch == "x86_64" and vendor == "GenuineIntel":
        family, model = element.integer("familyid", 0, 999), element.integer("modelid", 0, 9999)
        return next((rate for least, rate in _INTEL if family == 6 and model >= least), _OLDER_INTEL)
    if arch == "x86_64" and vendor == "AuthenticAMD":
        return _AMD.get(element.integer("familyid", 0, 999), _OLDER_AMD)
    raise ConfigError(
        f"{element.place}: arch of <cpu> is {arch[:20]!r}, vendor {vendor[:20]!r}; they must be arm64, ppc64, or"
        " x86_64 with GenuineIntel or AuthenticAMD"
    )
