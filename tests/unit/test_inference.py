import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.command import Run
from toolkit.base.errors import UsageError
from toolkit.engine import Network, container
from toolkit.jobs import inference
from train.command_line import parse
from train.errors import DataError
from train.record.reader import choose_data
from train.service.options import TOKEN
from train.system import output

EVERYWHERE = "0.0.0.0"  # noqa: S104


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "runs" / "digits-bc-22-12-0"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(parse(["digits"]).as_dict()))
    return folder


def test_a_container_sees_the_run_and_the_folders_of_the_images_read_only(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos" / "more").mkdir(parents=True)
    (tmp_path / "photos" / "linked.png").symlink_to(tmp_path / "photos" / "more" / "real.png")
    (tmp_path / "photos" / "more" / "real.png").touch()
    names = ["photos/a.png", "photos/b.png", "photos/more", "photos/linked.png", "nowhere/c.png", "-"]
    job = inference.plan_prediction(run_folder, names, ["d.png"], ["--top", "2"])
    asked = container.describe(job, image="image")
    run = f"/runs/{run_folder.name}"
    images = (
        "/images/0/a.png",
        "/images/0/b.png",
        "/images/1",
        "/images/2/real.png",
        "nowhere/c.png",
        "/images/3/d.png",
    )
    assert asked.argv == ("-P", "-m", "train", "predict", run, *images, "--top", "2")
    assert asked.mounts == (
        (str(run_folder), run, True),
        (str(tmp_path / "photos"), "/images/0", True),
        (str(tmp_path / "photos/more"), "/images/1", True),
        (str(tmp_path / "photos/more"), "/images/2", True),
        (str(tmp_path), "/images/3", True),
    )
    assert asked.network == "none"
    drawn = container.describe(
        inference.plan_prediction(run_folder, names[:1], [], [], inference.Outputs(explain=tmp_path / "drawn")),
        image="image",
    )
    assert drawn.argv[-2:] == ("--explain", "/explain")
    assert drawn.mounts[-1] == (str(tmp_path / "drawn"), "/explain", False)
    monkeypatch.setenv(output.PATHS, asked.environment[output.PATHS])
    assert output.translate("/images/0/a.png /images/1/x.png") == "photos/a.png photos/more/x.png"


def test_what_is_no_run_and_an_empty_list_are_refused(run_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=tmp_path.name):
        inference.plan_prediction(tmp_path, ["a.png"], [], [])
    with pytest.raises(UsageError, match="no images"):
        inference.plan_prediction(run_folder, ["-"], [], [])


def test_an_evaluation_sees_the_data_read_only_and_writes_where_it_is_asked(run_folder: Path, tmp_path: Path) -> None:
    config = choose_data(run_folder, "cifar10", str(tmp_path), str(tmp_path / "cache"))
    asked = container.describe(
        inference.plan_evaluation(run_folder, "cifar10", config, inference.Outputs(out=tmp_path / "out")), image="image"
    )
    run = f"/runs/{run_folder.name}"
    place = ("--data-dir", "/local", "--cache-dir", "/data")  # tables are unpacked into the cache
    assert asked.argv[2:] == ("train", "evaluate", run, "cifar10", *place, "--out", "/out")
    assert [(target, read_only) for _, target, read_only in asked.mounts] == [
        (run, True),
        ("/local", True),
        ("/data", False),
        ("/out", False),
    ]
    own = inference.plan_evaluation(run_folder, "", choose_data(run_folder, "", "", ""), inference.Outputs())
    assert container.describe(own, image="image").argv[2:] == ("train", "evaluate", run)


def test_an_export_sees_the_run_read_only_and_writes_beside_the_folder_that_it_replaces(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = container.describe(
        inference.plan_export(run_folder, run_folder / "export", ["tflite", "keras"]), image="image"
    )
    run = f"/runs/{run_folder.name}"
    assert asked.argv[2:5] == ("train", "export", run)
    assert asked.argv[5:] == ("--out", "/out/export", "--format", "tflite", "--format", "keras")
    assert asked.mounts == ((str(run_folder), run, True), (str(run_folder), "/out", False))
    assert asked.network == "none"
    monkeypatch.setenv(output.PATHS, asked.environment[output.PATHS])
    assert output.translate("/out/export/model.tflite") == f"{run_folder}/export/model.tflite"


def plan(run_folder: Path, host: str, network: str, **options: Any) -> container.Container:
    serving = inference.Serving(host=host, port=9000, options=("--batch", "8"), **options)
    return container.describe(inference.plan_serving(run_folder, serving, Network(name=network)), image="image")


def test_a_container_serves_a_run_on_loopback_alone(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN, raising=False)
    for host, published in (("127.0.0.1", "127.0.0.1"), ("localhost", "127.0.0.1"), ("::1", "::1")):
        asked = plan(run_folder, host, "serve")
        run, limits = f"/runs/{run_folder.name}", ("--timeout", "30", "--batch", "8")
        assert asked.argv == ("-P", "-m", "train", "serve", run, "--port", "9000", *limits, "--published")
        assert (asked.network, asked.published, asked.inherit) == ("serve", (published, 9000), ())
        assert asked.mounts == ((str(run_folder), run, True),)
        assert asked.to_sdk()["ports"] == {"9000/tcp": (published, 9000)}
        named = {"127.0.0.1": "127.0.0.1:9000:9000", "::1": "[::1]:9000:9000"}[published]
        assert asked.to_command()[asked.to_command().index("--publish") + 1] == named


def test_others_reach_a_server_with_a_token_alone(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TOKEN, raising=False)
    with pytest.raises(UsageError, match="there is no token"):
        plan(run_folder, "192.0.2.1", "serve")
    (tmp_path / "token").write_text("0123456789abcdef")
    asked = plan(run_folder, "192.0.2.1", "serve", token_file=tmp_path / "token")
    assert asked.argv[-4:] == ("--token-file", "/token", "--host", EVERYWHERE)
    assert (asked.published, asked.mounts[-1]) == (("192.0.2.1", 9000), (str(tmp_path / "token"), "/token", True))
    monkeypatch.setenv(TOKEN, "0123456789abcdef")
    asked = plan(run_folder, "192.0.2.1", "serve")
    assert asked.inherit == (TOKEN,)
    assert not any("0123456789abcdef" in word for word in asked.to_command())
    assert "--published" not in asked.argv
    alone = plan(run_folder, "192.0.2.1", "")
    assert (alone.argv[-2:], alone.published) == (("--host", "192.0.2.1"), None)


def test_a_dry_run_of_a_server_refuses_what_the_server_would(run: Run, run_folder: Path) -> None:
    done = run("serve", str(run_folder), "--engine", "host", "--dry-run", "--port", "9000")
    assert done.returncode == 0, done.stderr
    assert f"-m train serve {run_folder} --port 9000 --timeout 30" in done.stdout.splitlines()[-1]
    refused = run("serve", str(run_folder), "--engine", "host", "--dry-run", "--host", EVERYWHERE)
    assert refused.returncode == 2
    assert "there is no token" in refused.stderr


def test_names_of_thousands_of_images_fit_in_a_container(run_folder: Path, tmp_path: Path) -> None:
    names = [str(tmp_path / f"{number}.png") for number in range(inference.MOST_IMAGES)]
    job = inference.plan_prediction(run_folder, names, [], [])
    asked = container.describe(job, image="image")
    assert len(asked.mounts) == 2
    assert len(json.dumps(dict(asked.environment))) < 1000
    with pytest.raises(UsageError, match="too many"):
        inference.plan_prediction(run_folder, [*names, "one-more.png"], [], [])


def test_a_server_is_told_of_a_bad_name_and_of_an_open_token_file_before_anything_is_made(run: Run) -> None:
    (run.folder / "token").write_text("0123456789abcdef\n")
    for mode, warned in ((0o644, True), (0o600, False)):
        (run.folder / "token").chmod(mode)
        done = run("serve", "nowhere", "--token-file", "token", "--dry-run")
        assert ("others can read token: chmod 600 token" in done.stderr) == warned
    done = run("serve", "nowhere", "--allow-host", "a,b", "--dry-run")
    assert done.returncode == 2
    assert "repeat the option" in done.stderr
