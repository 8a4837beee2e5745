import json
import re
from pathlib import Path

import pytest

from toolkit.engine import container
from toolkit.jobs import training_job
from train.cli import main
from train.command_line import parse
from train.run import display
from train.system import output

NAMES = {"/local": "my copy", "/runs": "runs", "/runs/digits-1": "/home/me/digits-1", "/data": "~/.cache"}


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        ("cannot read /local/train.parquet", "cannot read my copy/train.parquet"),
        ("from /local, and '/local/a.png'; (/data)", "from my copy, and 'my copy/a.png'; (~/.cache)"),
        ("/runs/digits-1/curves.png, /runs/digits-12/a", "/home/me/digits-1/curves.png, runs/digits-12/a"),
        (
            "/usr/local/bin, /locale, /local-2, /local.bak, ./local",
            "/usr/local/bin, /locale, /local-2, /local.bak, ./local",
        ),
    ],
)
def test_a_path_below_a_mount_is_the_users(inside: str, outside: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert output.translate(inside) == inside
    monkeypatch.setenv(output.PATHS, json.dumps(NAMES))
    assert output.translate(inside) == outside


@pytest.mark.parametrize("value", ["no json", "[]", '{"/local": 3}', '{"": "x", "/": "y"}'])
def test_damaged_names_change_nothing(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(output.PATHS, value)
    assert output.translate("cannot read /local/a") == "cannot read /local/a"


def test_the_error_for_a_folder_that_a_container_sees_as_local(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = parse(["cifar10", "--data-dir", "my-copy", "--out", "my-runs"])
    job = training_job.plan(["cifar10"], config, None, gpu=False)
    asked = container.describe(job, image="image")
    monkeypatch.setenv(output.PATHS, asked.environment[output.PATHS])
    assert main(asked.argv[3:]) == 2
    said = capsys.readouterr().err
    assert "error: there is no folder my-copy\n" in said
    assert "/local" not in said
    display.Display("plain").say(f"the state is saved in /runs/{config.run_dir.name}")
    assert capsys.readouterr().err == f"the state is saved in {config.run_dir}\n"


def test_the_records_of_a_run_name_neither_the_home_nor_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "ada"))
    out = tmp_path / "ada" / "runs"
    assert main(["digits", "--steps", "2", "--out", str(out), "--progress", "quiet"]) == 0
    (folder,) = out.iterdir()
    for name in ("manifest.json", "config.yaml", "README.md"):
        assert "ada" not in re.findall(r"\w+", (folder / name).read_text()), name
    assert parse(["--config", str(folder / "config.yaml")]).run_dir == folder


def test_a_run_in_a_container_records_where_the_user_has_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    config = parse(["cifar10", "--data-dir", "/local"])
    assert config.as_dict()["data_dir"] == "/local"
    monkeypatch.setenv(output.PATHS, json.dumps(NAMES))
    assert config.as_dict()["data_dir"] == "my copy"
