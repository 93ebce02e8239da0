"""A captured program of one step has some 10,000 rows: it loads, and is made ready, in a few seconds of one core."""

import json
import random
import time

import rostam_py as rostam
from rostam_py.programs import Program

NUM_ROWS, NUM_KERNELS = 10_000, 600
MOST_CPU_S = 8.0  # 1.3 on a quiet core; others share this one


def test_ten_thousand_rows_are_ready_in_a_few_seconds(tmp_path):
    draw = random.Random(0)
    kernels = {
        f"k{k}": {"op": "aten.mm", "shapes": [[draw.randint(64, 8192), 4096], [4096, draw.randint(64, 8192)]]}
        if k % 3 == 0
        else {"op": "aten.add.Tensor", "shapes": [[draw.randint(64, 8192), 4096]] * 2}
        for k in range(NUM_KERNELS)
    }
    steps, last = [], {}
    for k in range(NUM_ROWS):
        stream = draw.choice(["compute"] * 30 + ["copy-in", "gather"])
        if stream == "gather":
            size = draw.choice([436_224_000, 1_050_673_152, 67_108_864])
            step = {"kind": "collective", "collective": "all_gather", "num_bytes": size, "group": "dp"}
        else:
            step = {"kind": "compute", "kernels": [f"k{draw.randrange(NUM_KERNELS)}"]}
        if last and draw.random() < 0.1:
            step["after"] = [draw.choice(list(last.values()))]
        steps.append(step | {"stream": stream, "name": f"row {k}"})
        last[stream] = k
    document = {
        "format": "rostam-program", "version": 2, "name": "large", "num_ranks": 64, "groups": {"dp": {"kind": "dp"}},
        "kernels": kernels, "roles": {"all": {"after": "stream", "steps": steps}},
    }  # fmt: skip
    path = tmp_path / "program.json"
    path.write_text(json.dumps(document))
    machine = rostam.Machine(fabric=rostam.fabric("electrical_cluster", num_accelerators=64), accelerator="h100_80gb")
    begin = time.process_time()
    program = Program.load(path)
    result = rostam.simulate(program.on(machine), min_iterations=1, max_iterations=1)
    assert time.process_time() - begin < MOST_CPU_S
    assert program.num_steps == NUM_ROWS
    assert sum(result.breakdown.values()) > 0
