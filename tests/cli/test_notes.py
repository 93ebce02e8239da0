"""Notes of a run: five are printed, a line each; all of them stand in its folder."""

import io

from rich.console import Console

from rostam_py.cli.main import main
from rostam_py.cli.notes import FILE, print_notes

RUN = ["run", "model=gpt_125m", "fabric=fat_tree", "fabric.num_accelerators=8", "strategy.tp=2"]


def printed(notes, width=60):
    out = io.StringIO()
    print_notes(Console(file=out, width=width), notes, "runs/x")
    return out.getvalue().splitlines()


def test_a_run_prints_five_notes_and_keeps_all(tmp_path, capsys):
    assert main([*RUN, f"out={tmp_path / 'run'}"]) == 0
    said = capsys.readouterr().out.splitlines()
    notes = [line for line in said if line.startswith("note: ")]
    kept = (tmp_path / "run" / FILE).read_text().splitlines()
    assert len(notes) == 5 < len(kept)
    assert all(
        note.removeprefix("note: ").removesuffix(" ...") in whole for note, whole in zip(notes, kept, strict=False)
    )
    (pointer,) = [line for line in said if FILE in line]
    assert pointer.startswith(f"{len(kept) - 5} more notes, and these in full: ")
    assert any(note.startswith("calibrated matmul") for note in kept[5:])  # how kernels were looked up comes last


def test_long_notes_are_cut_between_words_and_stand_whole_elsewhere():
    (line, pointer) = printed(["one two three four five six seven eight nine ten eleven twelve"], width=40)
    assert line == "note: one two three four five six ..."
    assert pointer == f"notes in full: runs/x/{FILE}"


def test_short_notes_need_no_pointer():
    assert printed(["a", "b"]) == ["note: a", "note: b"]
    assert printed([]) == []


def test_the_head_of_a_run_has_what_people_compare(tmp_path, capsys):
    assert main([*RUN, f"out={tmp_path / 'run'}"]) == 0
    head = capsys.readouterr().out
    assert "tokens/s" in head
    assert "FLOP/s an accelerator" in head
    assert (
        main(["run", "model=resnet50", "fabric=fat_tree", "fabric.num_accelerators=8", f"out={tmp_path / 'two'}"]) == 0
    )
    head = capsys.readouterr().out
    assert "tokens/s" not in head
    assert "samples/s" in head


def test_a_folder_used_again_holds_nothing_of_the_run_before(tmp_path):
    folder = tmp_path / "run"
    assert main([*RUN, "save_plan=true", "save_task_graph=true", "timeline=true", f"out={folder}"]) == 0
    first = {path.name for path in folder.iterdir()}
    assert {"plan.json.gz", "task_graph.json.gz", "timeline.json"} <= first
    (folder / "mine.txt").write_text("kept")
    assert main([*RUN, "global_batch=64", f"out={folder}"]) == 0
    left = {path.name for path in folder.iterdir()}
    assert first - left == {"plan.json.gz", "task_graph.json.gz", "timeline.json"}
    assert "mine.txt" in left


def test_a_folder_that_holds_no_run_keeps_its_files(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "report.html").write_text("mine")
    assert main([*RUN, f"out={folder}"]) == 0
    assert (folder / "report.html").read_text() == "mine"


def test_a_plan_that_is_run_again_in_its_own_folder_stays(tmp_path):
    folder = tmp_path / "run"
    assert main([*RUN, "save_plan=true", f"out={folder}"]) == 0
    plan = folder / "plan.json.gz"
    assert main(["run", f"plan={plan}", f"out={folder}"]) == 0
    assert plan.exists()
