"""NCCL's topology XML as links of a custom fabric, counted by hand."""

import random
from collections import Counter

import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError, RostamError
from rostam_py.programs import Program, RankGroups, Receive, Role, Send

# Two CPUs; below each a PCIe switch with a GPU and a NIC. Both GPUs have 18 NVLinks to switches.
H100 = """<system version="1">
  <cpu host_hash="0x1" numaid="0" affinity="00ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:16:00.0" class="0x060400" vendor="0x1000" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:18:00.0" class="0x030200" vendor="0x10de" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="90" rank="0" gdr="1">
          <nvlink target="0000:07:00.0" count="10" tclass="0x068000"/>
          <nvlink target="0000:06:00.0" count="8" tclass="0x068000"/>
        </gpu>
      </pci>
      <pci busid="0000:19:00.0" class="0x020000" vendor="0x15b3" link_speed="32.0 GT/s PCIe" link_width="16">
        <nic>
          <net name="mlx5_0" dev="0" speed="400000" port="1" latency="1.500000" guid="0xa8" maxconn="131072" gdr="1"/>
        </nic>
      </pci>
    </pci>
  </cpu>
  <cpu host_hash="0x1" numaid="1" affinity="ff00" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:5a:00.0" class="0x060400" vendor="0x1000" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:5d:00.0" class="0x030200" vendor="0x10de" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="1" sm="90" rank="1" gdr="1">
          <nvlink target="0000:07:00.0" count="10" tclass="0x068000"/>
          <nvlink target="0000:06:00.0" count="8" tclass="0x068000"/>
        </gpu>
      </pci>
      <pci busid="0000:5c:00.0" class="0x020000" vendor="0x15b3" link_speed="32.0 GT/s PCIe" link_width="0">
        <nic>
          <net name="mlx5_1" dev="1" speed="400000" port="1" latency="0.000000" guid="0xa9" maxconn="131072" gdr="1"/>
        </nic>
      </pci>
    </pci>
  </cpu>
</system>
"""
# A direct pair of V100s, a third without NVLinks, all below one CPU.
V100 = """<system version="1">
  <cpu numaid="0" arch="x86_64" vendor="AuthenticAMD" familyid="23" modelid="49">
    <pci busid="0000:0A:00.0" class="0x030200" link_speed="8.0 GT/s PCIe" link_width="16">
      <gpu dev="0" sm="70" rank="0" gdr="0">
        <nvlink target="0000:0b:00.0" count="2" tclass="0x030200"/>
        <nvlink target="0000:ee:00.0" count="1" tclass="0x030200"/>
      </gpu>
    </pci>
    <pci busid="0000:0b:00.0" class="0x030200" link_speed="8.0 GT/s PCIe" link_width="16">
      <gpu dev="1" sm="70" rank="1" gdr="0"><nvlink target="0000:0a:00.0" count="2" tclass="0x030200"/></gpu>
    </pci>
    <pci busid="0000:0c:00.0" class="0x030200" link_speed="8.0 GT/s PCIe" link_width="8">
      <gpu dev="2" sm="70" rank="2" gdr="0"/>
    </pci>
    <nic><net name="eth0" dev="0" speed="-1" port="0" guid="0x0" maxconn="65536" gdr="0"/></nic>
  </cpu>
</system>
"""


def fabric(tmp_path, text, name="topo.xml", **keys):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return rostam.fabric("custom", links=str(path), **keys)


def message_s(fabric, src, dst, size):
    """Return how long one message takes, alone."""
    said = {"channel": "x", "num_bytes": size, "group": "g"}
    roles = {
        "s": Role(ranks=(0,), phases={"iteration": (Send(peer=1, **said),)}),
        "r": Role(ranks=(1,), phases={"iteration": (Receive(peer=-1, **said),)}),
    }
    program = Program(name="m", num_ranks=2, groups={"g": RankGroups()}, roles=roles)
    placed = program.on(rostam.Machine(fabric=fabric, launch_latency="0 us"), accelerators=[src, dst])
    return rostam.simulate(placed).first_iteration_s


def rates(fabric):
    """Return how many links there are of each rate in one direction [GB/s]."""
    return Counter(round(rate / 1e9, 6) for rate in fabric.links["bandwidth_bytes_per_s"].tolist())


def test_servers_links_are_those_of_the_file(tmp_path):
    found = fabric(tmp_path, H100, link_latency="100 ns")
    # For each CPU: CPU - PCIe switch, that - GPU's end, end - GPU, GPU - NVSwitch, PCIe switch - NIC, NIC - port.
    assert (found.num_accelerators, found.num_links) == (2, 2 * 6 + 1)
    # 48 GB/s of lanes to switches, GPUs and NICs; 50 of ports; 22 between Sapphire Rapids.
    assert rates(found) == {370.8: 4, 48: 12, 5000: 4, 50: 4, 22: 2}
    # 18 NVLinks of 20.6 GB/s, by two cables of 100 ns.
    assert message_s(found, 0, 1, 10**6) == pytest.approx(10**6 / 370.8e9 + 2 * 100e-9, rel=1e-9)


def test_a_server_without_nvlinks_sends_over_pcie_and_between_cpus(tmp_path):
    text = "\n".join(line for line in H100.splitlines() if "<nvlink" not in line)
    found = fabric(tmp_path, text, link_latency="100 ns")
    # End of a GPU, switch, CPU, CPU, switch, end of a GPU; 22 GB/s between Sapphire Rapids, below 48 of 16 lanes.
    assert message_s(found, 0, 1, 10**6) == pytest.approx(10**6 / 22e9 + 5 * 100e-9, rel=1e-9)
    one_cpu = text.replace('modelid="143"', 'modelid="207"')
    assert message_s(fabric(tmp_path, one_cpu), 0, 1, 10**6) == pytest.approx(10**6 / 40e9, rel=1e-9)


def test_pairs_without_an_nvlink_take_pcie(tmp_path):
    found = fabric(tmp_path, V100, link_latency="100 ns")
    # Two cables to each GPU and its NVLinks' one; CPU - NIC - port.
    assert (found.num_accelerators, found.num_links) == (3, 3 * 2 + 1 + 2)
    # Lanes of 12 and 6 GB/s, two NVLinks of 20, a port that does not say its rate: 10 Gb/s.
    assert rates(found) == {40: 2, 12: 4, 6: 2, 5000: 8, 1.25: 2}
    assert message_s(found, 0, 1, 10**6) == pytest.approx(10**6 / 40e9 + 100e-9, rel=1e-9)
    # 8 lanes of 6 Gb/s; end, CPU, end.
    assert message_s(found, 0, 2, 10**6) == pytest.approx(10**6 / 6e9 + 2 * 100e-9, rel=1e-9)


def test_c2c_replaces_pcie_to_the_cpu_and_a_dump_needs_no_suffix(tmp_path):
    text = V100.replace('rank="2" gdr="0"/>', 'rank="2" gdr="0"><c2c bw="44712" count="5"/></gpu>')
    found = fabric(tmp_path, text.replace('link_width="16"', 'link_width="32"'), "topo_dump.txt")
    assert found.num_links == 3 * 2 + 1 + 2
    # 32 lanes at the other end carry 24 GB/s.
    assert message_s(found, 0, 2, 10**6) == pytest.approx(10**6 / 24e9, rel=1e-9)


def two_hosts():
    second = (
        H100.split("\n", 1)[1].replace('"0x1"', '"0x2"').replace('rank="1"', 'rank="3"').replace('rank="0"', 'rank="2"')
    )
    return H100.replace("</system>\n", second)


def test_hosts_are_joined_by_nvswitches_alone(tmp_path):
    found = fabric(tmp_path, two_hosts())
    assert (found.num_accelerators, found.num_links) == (4, 2 * (2 * 6 + 1))
    assert message_s(found, 0, 3, 10**6) == pytest.approx(10**6 / 370.8e9, rel=1e-6)
    alone = "\n".join(line for line in two_hosts().splitlines() if "<nvlink" not in line)
    with pytest.raises(ConfigError, match=r"line 5 of .*gpu0 has no <nvlink> to a switch"):
        fabric(tmp_path, alone)


def test_links_between_pcie_switches_are_one_cable(tmp_path):
    text = H100
    for one, other in (("16", "5a"), ("5a", "16")):
        end = text.index(">", text.index(f'busid="0000:{one}:00.0"')) + 1
        text = f'{text[:end]}<pcilink target="0000:{other}:00.0"/>{text[end:]}'
    assert fabric(tmp_path, text).num_links == 2 * 6 + 1 + 1


def test_ports_of_one_card_share_its_lanes(tmp_path):
    card = H100.split("      </pci>\n", 2)[1] + "      </pci>\n"
    assert card.count("<net ") == 1
    second = card.replace("19:00.0", "19:00.1").replace('dev="0"', 'dev="2"')
    assert fabric(tmp_path, H100.replace(card, card + second)).num_links == 2 * 6 + 1 + 1


@pytest.mark.parametrize(("old", "new", "said"), [
    ('count="10"', 'count="ten"', r"line 6 of .*count of <nvlink> is 'ten'"),
    ('sm="90"', 'sm=""', r"line 5 of .*sm of <gpu> is ''"),
    (' sm="90"', "", r"line 5 of .*<gpu> has no sm"),
    ("32.0 GT/s PCIe", "31.0 GT/s PCIe", r"line 3 of .*link_speed of <pci> is '31.0"),
    ('link_width="16"', 'link_width="99"', r"link_width of <pci> is '99'; it must be an integer from 0 to 32"),
    ('speed="400000"', 'speed="fast"', r"line 12 of .*speed of <net> is 'fast'"),
    ('latency="1.5', 'latency="x', r"latency of <net> is 'x"),
    ('rank="1"', 'rank="0"', r"line 20 of .*rank 0"),
    (' rank="', ' old="', None),
    ("<nvlink", "<xgmi", r"<gpu> holds <xgmi>; allowed: c2c, nvlink"),
    ("</system>", "", "it is no XML: no element found"),
    ('arch="x86_64"', 'arch="vax"', r"arch of <cpu> is 'vax'"),
    ("<system", '<!DOCTYPE a [<!ENTITY b "c">]><system', "declares a document type"),
    ("<system", "<graphs><system", "the file holds <graphs>; allowed: system"),
])  # fmt: skip
def test_what_does_not_fit_is_refused_with_its_place(tmp_path, old, new, said):
    assert old in H100
    with pytest.raises(ConfigError, match=said or "no <gpu> with a rank"):
        fabric(tmp_path, H100.replace(old, new, 1 if said else -1))


def test_nvlinks_of_both_ends_must_agree(tmp_path):
    with pytest.raises(ConfigError, match="from gpu0 to gpu1 is 3, back 2"):
        fabric(tmp_path, V100.replace('count="2"', 'count="3"', 1))


def test_depth_and_entities_are_bounded(tmp_path):
    pci = '<pci busid="a" class="0x060400" link_speed="" link_width="1">'
    with pytest.raises(ConfigError, match="64 in each other"):
        fabric(tmp_path, "<system><cpu>" + pci * 100_000)


def mutants(tmp_path, seeds):
    """Build mutants of both files: fabrics whose links all carry bytes, or refused."""
    for seed in seeds:
        chance = random.Random(seed)
        letters = list([H100, V100][seed % 2])
        for _ in range(chance.randint(1, 3)):
            letters[chance.randrange(len(letters))] = chance.choice('0123456789 .,<>/"=ax#\n-&!')
        try:
            found = fabric(tmp_path, "".join(letters))
        except RostamError as error:
            said = str(error)
        else:
            said = ""
            assert min(rates(found)) > 0
        assert said == "" or "fabric" in said


def test_mutants_build_or_are_refused(tmp_path):
    mutants(tmp_path, range(50))


@pytest.mark.slow
def test_many_mutants_build_or_are_refused(tmp_path):
    mutants(tmp_path, range(50, 2050))
