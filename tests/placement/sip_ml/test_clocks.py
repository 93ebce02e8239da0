"""Clocks: starts and ends of parts on two devices, by hand."""

from rostam_py.placement.sip_ml.clocks import Clocks
from rostam_py.placement.sip_ml.sub_op_nodes import Node, Read


def test_parts_wait_for_their_device_and_for_what_they_read():
    # Two parts of 3 s on devices 0 and 1, then two of 2 s: one behind its own part, one behind both and the other's 2 s
    nodes = [Node(3.0, 2), Node(2.0, 2, reads=(Read(0, "aligned", 1.0),)), Node(1.0, 1, reads=(Read(1, "all", 1.0),))]
    clocks = Clocks(nodes, 2)
    clocks.retime([[0, 1], [0, 0], [1]])
    assert clocks.starts == [[0.0, 0.0], [3.0, 5.0], [7.0]]
    assert clocks.free_s == [7.0, 8.0]
    assert clocks.makespan_s == 8.0


def test_parts_without_duration_wait_for_no_device():
    clocks = Clocks([Node(3.0, 1), Node(0.0, 1)], 1)
    clocks.retime([[0], [0]])
    assert clocks.starts == [[0.0], [0.0]]


def test_clocks_that_run_again_begin_anew():
    clocks = Clocks([Node(3.0, 2)], 2)
    for devices, makespan in (([[0, 0]], 6.0), ([[0, 1]], 3.0)):
        clocks.retime(devices)
        assert clocks.makespan_s == makespan
