"""Captured programs against the same programs on real processes: kind, group, bytes and order of all they send."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rostam_py.capturing.front import DEFAULT_GPU, _records, _request, run_host
from tests.capturing.captured import SCRIPTS

WORLD = 4
PROGRAMS = ("ddp", "fsdp2", "tp", "fsdp2_tp", "one_f_one_b", "interleaved")


@pytest.fixture(scope="module")
def real(tmp_path_factory) -> list[dict]:
    """What each of four processes sends, by program: one spawn for all."""
    folder = tmp_path_factory.mktemp("real")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = Path(__file__).with_name("real_run.py")
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(port), str(folder / f"{rank}.json")],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        for rank in range(WORLD)
    ]  # fmt: skip
    assert [one.wait(timeout=300) for one in processes] == [0] * WORLD
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(WORLD)]


@pytest.fixture(scope="module")
def captured(tmp_path_factory) -> dict[str, list[list]]:
    """What each captured rank sends, by program: one import of torch for all."""
    requests = {}
    for name in PROGRAMS:
        requests[name] = _request(
            ["python", str(SCRIPTS / "small.py"), name], str(tmp_path_factory.mktemp(name)), world=WORLD, step=None,
            ranks=range(WORLD), gpu=DEFAULT_GPU, stub=(), splits="balanced",
        )  # fmt: skip
    run_host(list(requests.values()))
    return {name: [sent(record) for record in _records(request)] for name, request in requests.items()}


def sent(record) -> list[list]:
    """Return [kind, ranks of the group or the peer, bytes] of all that a rank sends and receives, in order."""
    return [
        [
            one["kind"],
            sorted(record.groups[one["group"]].ranks) if one["peer"] is None else one["peer"],
            one["num_bytes"],
        ]
        for one in record.communicated(record.rows)
    ]


@pytest.mark.always
@pytest.mark.parametrize("name", PROGRAMS)
def test_captured_programs_send_what_real_ones_do(name, real, captured):
    assert all(len(one) > 1 for one in captured[name])
    for rank in range(WORLD):
        assert captured[name][rank] == real[rank][name], f"rank {rank}"
