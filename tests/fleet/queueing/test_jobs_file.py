"""Jobs of CSV files: columns as published traces name them; errors name file, line, column and value."""

import pytest

from rostam_py.errors import ConfigError
from rostam_py.fleet.queueing.jobs_file import read_jobs


def written(tmp_path, text):
    path = tmp_path / "jobs.csv"
    path.write_text(text)
    return path


def test_columns_of_philly_and_tiresias_are_read(tmp_path):
    found = read_jobs(written(tmp_path, "# a trace\nsubmit_s,duration_s,gpus\n5,10,8\n\n1.5,0,1\n"))
    assert [(one.submit_s, one.work_s, one.accelerators, one.name) for one in found.jobs] == [
        (5, 10, 8, "1"), (1.5, 0, 1, "2"),
    ]  # fmt: skip
    found = read_jobs(
        written(tmp_path, "job_id,num_gpu,submit_time,iterations,model_name,duration\n7,2,0,606,vgg,164\n")
    )
    assert found.unread == ("model_name",)
    assert (found.jobs[0].name, found.jobs[0].work_s, found.jobs[0].iterations) == ("7", 164, None)


def test_models_settings_and_stated_durations_are_kept(tmp_path):
    text = (
        "submit_s,accelerators,model,iterations,duration_s,strategy.tp,global_batch,stated_s\n"
        "0,8,gpt_125m,100,,2,64,\n1,1,,,5,,,90\n"
    )
    first, second = read_jobs(written(tmp_path, text)).jobs
    assert (first.model, first.iterations, first.settings) == (
        "gpt_125m",
        100,
        {"strategy.tp": "2", "global_batch": 64},
    )
    assert (second.work_s, second.stated_s, second.settings) == (5, 90, {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("submit_s,gpus,duration_s\n", "the file has no row"),
        ("", "the file has no row"),
        ("submit_s,gpus,duration_s\n0,1,NaN\n", "line 2: duration_s is 'NaN'; it must be a number from 0 to 1e+11"),
        (
            "# c\n\nsubmit_s,gpus,duration_s\n0,1,2\n0,1,\n",
            "line 5: duration_s is empty; it must be a number of seconds",
        ),
        ("submit_s,gpus,duration_s\n0,0,2\n", "line 2: gpus is '0'; it must be a whole number from 1 to 1e+11"),
        ("submit_s,gpus,duration_s\n0,1.5,2\n", "line 2: gpus is '1.5'; it must be a whole number from 1 to 1e+11"),
        ("submit_s,gpus,duration_s\n-1,1,2\n", "line 2: submit_s is '-1'; it must be a number from 0 to 1e+11"),
        ("submit_s,gpus,duration_s\n,1,2\n", "line 2: submit_s is empty; it must be a number from 0 to 1e+11"),
        ("submit_s,gpus,duration_s\n0,1,inf\n", "line 2: duration_s is 'inf'"),
        ("submit_s,gpus,duration_s\n0,eight,1\n", "line 2: gpus is 'eight'"),
        ("submit_s,duration_s\n0,1\n", "there is no column accelerators (or gpus,"),
        ("submit_s,gpus\n0,1\n", "there is no column duration_s"),
        ("submit_s,gpus,num_gpu,duration_s\n0,1,1,1\n", "columns gpus and num_gpu both mean accelerators"),
        ("submit_s,gpus,duration_s\n0,1,2,3\n", "the file is no CSV table"),
        ('submit_s,gpus,duration_s\n0,1,"2\n3"\n', "a cell goes over several lines"),
        ("submit_s,gpus,gpus,duration_s\n0,1,1,2\n", "column gpus is there twice"),
    ],
)
def test_bad_files_are_refused_before_any_work(tmp_path, text, said):
    with pytest.raises(ConfigError) as error:
        read_jobs(written(tmp_path, text))
    assert said in str(error.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"fleet.jobs is .*none.csv.*cannot be read"):
        read_jobs(tmp_path / "none.csv")
