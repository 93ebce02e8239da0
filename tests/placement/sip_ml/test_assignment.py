"""Assignment: what moves together, what that takes of the memory, and who is out of range."""

import pytest

from rostam_py.placement.sip_ml.assignment import Assignment
from rostam_py.placement.sip_ml.sub_op_nodes import Node, Read
from rostam_py.placement.sip_ml.window import make_window


def placed_on(nodes, devices, num_devices=8):
    """Return an assignment of one part per node, on eight devices that reach one neighbour to either side."""
    found = Assignment(nodes, num_devices, make_window(num_devices, 4), 100.0)
    for index, (node, device) in enumerate(zip(nodes, devices, strict=True)):
        found.begin()
        found.put(index, 0, found.unit(index, node, 0), device)
    return found


def test_sub_ops_of_a_shard_move_together_and_take_its_memory_once():
    nodes = [Node(1.0, 1, shard=0, memory_bytes=6.0), Node(1.0, 1, shard=0, memory_bytes=2.0), Node(1.0, 1)]
    found = placed_on(nodes, [3, 3, 5])
    assert (found.units, found.memory[3]) == ([[0], [0], [1]], 8.0)
    found.shift(0, 4)
    assert (found.devices, found.memory[3], found.memory[4]) == ([[4], [4], [5]], 0.0, 8.0)
    found.rearrange([1, 2])
    assert (found.devices, found.fullest(), found.memory[1]) == ([[1], [1], [2]], 1, 8.0)


@pytest.mark.parametrize(("device", "out"), [(2, 0), (3, 0), (1, 0), (5, 1)])
def test_a_reader_outside_the_window_is_out_of_range(device, out):
    found = placed_on([Node(1.0, 1), Node(1.0, 1, reads=(Read(0, "aligned", 1.0),))], [2, device])
    assert found.num_out_of_range() == out
    assert bool(found.mask(1, 0) >> device & 1) != bool(out)
