"""A builder of task graphs small enough to draw."""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py import _core

KINDS = {"compute": 0, "collective": 1, "send": 2, "recv": 3}
BUCKETS = ("compute", "launch", "bubble", "host", "x", "y")


class GraphBuilder:
    """Builds a core task graph over electrical_flat: 1 GB/s, so that a byte takes 1,000 ps, and latency alpha."""

    def __init__(self, num_devices, alpha_ps=0, num_slots=3):
        self.core = _core.TaskGraph(["x", "y"])
        self.num_devices = num_devices
        self.slots = np.full((num_devices, num_slots, 3), -1, np.int32)
        self.fabric = rostam.fabric(
            "electrical_flat", num_accelerators=max(2, num_devices), link_bandwidth=1e9, latency=alpha_ps * 1e-12
        )

    def compute(self, duration_ps, deps=()):
        return "compute", -1, 0, -1, -1, 0, duration_ps, deps

    def all_reduce(self, num_bytes, deps=(), slot=0, category=0, algorithm="ring", ranks=None):
        schedule = self.core.add_schedule("all_reduce", algorithm, ranks or self.num_devices)
        return "collective", slot, category, schedule, -1, num_bytes, 0, deps

    def send(self, channel, num_bytes, deps=(), slot=1, category=0):
        return "send", slot, category, -1, channel, num_bytes, 0, deps

    def recv(self, channel, deps=(), slot=1, category=0):
        return "recv", slot, category, -1, channel, 0, 0, deps

    def template(self, *tasks, kernels=None, awaited=(), issues=None, taken_ppm=None, queue=None):
        """kernels: of each task [ps], by default one a compute task. awaited: tasks that their host waits for.

        issues: what each kernel costs its host [ps]. taken_ppm: of each task, the compute that it takes. queue: of each
        task, its stream, order and whether it is a mark; -1 is the default of either.
        """
        columns = [[KINDS[task[0]] if k == 0 else task[k] for task in tasks] for k in range(7)]
        offsets = np.concatenate([[0], np.cumsum([len(task[7]) for task in tasks])])
        launches = {}
        if kernels is not None:
            launches["kernel_offset"] = np.cumsum([0, *map(len, kernels)])
            launches["kernel_ps"] = [one for row in kernels for one in row]
        if issues is not None:
            launches["issue_ps"] = [one for row in issues for one in row]
        if taken_ppm is not None:
            launches["taken_ppm"] = taken_ppm
        if queue is not None:
            launches["queue"] = np.array(queue, np.int32)
        if awaited:
            launches["is_awaited_by_host"] = [k in awaited for k in range(len(tasks))]
        return self.core.add_template(*columns, offsets, [dep for task in tasks for dep in task[7]], **launches)

    def program(self, *entries):
        """entries: templates, or (template, micro-batch)."""
        pairs = [entry if isinstance(entry, tuple) else (entry, 0) for entry in entries]
        return self.core.add_program([t for t, _ in pairs], [m for _, m in pairs])

    def group(self, *devices, slot=0):
        index = self.core.add_group(list(devices))
        for rank, device in enumerate(devices):
            self.slots[device, slot, :2] = index, rank

    def peer(self, device, other, slot=1):
        self.slots[device, slot, 2] = other

    def devices(self, programs, slowdown=None, start_ps=None):
        n = self.num_devices
        self.core.add_devices(
            np.arange(n), programs, np.zeros(n), np.ones(n) if slowdown is None else slowdown,
            np.zeros(n) if start_ps is None else start_ps, self.slots,
        )  # fmt: skip

    def run(self, freeze=True, **options):
        """Run and return the raw result, its breakdown as one dict a device."""
        if freeze:
            self.core.freeze()
        options.setdefault("timeline_devices", list(range(self.num_devices)) if not options.get("fold") else [])
        options.setdefault("fold", False)
        if changes := options.pop("link_events", None):  # (time in ps, link, bytes/s)
            times, links, rates = (list(column) for column in zip(*changes, strict=True))
            parameters = {"time_ps": times, "link": links, "bytes_per_s": rates}
            options["controllers"] = [("link_bandwidth", parameters)]
        options.setdefault("shortcuts", options["fold"])
        routes = _core.make_routes("spray", [(self.fabric.core, options.pop("num_planes", 1))])
        raw = _core.run_session(self.core, routes, **options)
        raw["breakdown"] = [dict(zip(BUCKETS, row, strict=True)) for row in raw["breakdown_ps"].tolist()]
        for row in raw["breakdown"] if not options.get("host_launch_ps") else ():
            assert row.pop("host") == 0
        raw["ends"] = raw["jobs"][0]["iteration_ends_ps"].tolist()
        raw["path"] = raw["jobs"][0]["critical_path"]
        return raw


@pytest.fixture(scope="session")
def graph():
    """Return the builder class."""
    return GraphBuilder


@pytest.fixture
def spans():
    """Return a function: spans(raw, device) -> {(template, micro-batch, task): (start, end)} of the first iteration."""

    def of(raw, device, iteration=0):
        t = raw["timeline"]
        rows = zip(*(t[k].tolist() for k in (
            "device", "iteration", "template", "microbatch", "task", "start_ps", "end_ps")), strict=True)  # fmt: skip
        return {(c, m, k): (s, e) for d, i, c, m, k, s, e in rows if d == device and i == iteration}

    return of
