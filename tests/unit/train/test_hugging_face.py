import hashlib
import json
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import numpy as np
import pytest

from tests.makers.data_files import assert_same, make_split, write_parquet
from tests.makers.hugging_face import make_saved
from tests.server import QuietHandler, running
from train.cli import main
from train.command_line import parse
from train.data import hub, load
from train.errors import DataError, IntegrityError

COMMIT = "c0ffee" + 34 * "0"
REPOSITORY = "ufldl-stanford/svhn"
PATTERNS = ["cropped_digits/train-*.parquet", "cropped_digits/test-*.parquet"]
NUMBERS = np.random.default_rng(1)


def test_a_folder_of_save_to_disk(tmp_path: Path) -> None:
    train, test = make_split(10), make_split(4)
    order = NUMBERS.permutation(10)
    # Shuffled and in several files: the rows must come in the saved order.
    saved = datasets.DatasetDict({"train": make_saved(train).select(order), "test": make_saved(test)})
    saved.save_to_disk(tmp_path, num_shards={"train": 3, "test": 1})
    dataset = load(parse(["cifar10", "--data-dir", str(tmp_path)]))
    assert_same(dataset.train, train.take(order))
    assert_same(dataset.test, test)


class Hub(QuietHandler):
    files: dict[str, bytes]
    digests: dict[str, str]
    asked: list[str]

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        Hub.asked.append(self.path)
        route = self.path.partition("?")[0]
        if route == f"/api/datasets/{REPOSITORY}/revision/main":
            self.answer(200, json.dumps({"id": REPOSITORY, "sha": COMMIT, "siblings": []}).encode())
        elif route == f"/api/datasets/{REPOSITORY}/tree/{COMMIT}":
            self.answer(200, json.dumps([self.describe(name) for name in self.digests]).encode())
        elif (name := route.removeprefix(f"/datasets/{REPOSITORY}/resolve/{COMMIT}/")) in self.files:
            headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{self.digests[name]}"'}
            self.answer(200, self.files[name], "application/octet-stream", headers)
        else:
            self.answer(404)

    def describe(self, name: str) -> dict[str, Any]:
        size, sha256 = len(self.files[name]), self.digests[name]
        lfs = {"oid": sha256, "size": size, "pointerSize": 130}
        return {"type": "file", "path": name, "size": size, "oid": 40 * "a", "lfs": lfs}


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[type[Hub]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}/")
    huggingface_hub.close_session()  # the session may use another test's proxy
    Hub.files, Hub.asked = {"full_numbers/train-00000-of-00001.parquet": b"", "cropped_digits/extra-0.parquet": b""}, []
    for name, count in (("train", 10), ("test", 4)):
        path = write_parquet(tmp_path / "made", f"{name}-00000-of-00001.parquet", make_split(count), "image", "label")
        Hub.files[f"cropped_digits/{path.name}"] = path.read_bytes()
    Hub.digests = {name: hashlib.sha256(content).hexdigest() for name, content in Hub.files.items()}
    with running(server):
        yield Hub
    huggingface_hub.close_session()


def test_the_mirror_that_is_named_is_asked_once(mirror: type[Hub], tmp_path: Path) -> None:
    config = parse(["svhn", "--no-extra", "--cache-dir", str(tmp_path / "cache")])
    dataset = load(config)
    assert dataset.source == f"{REPOSITORY} at {COMMIT}"
    assert (len(dataset.train), len(dataset.test)) == (10, 4)
    # Only the needed files are fetched.
    assert not [path for path in mirror.asked if "extra" in path or "full_numbers" in path]
    mirror.asked.clear()
    assert load(config).digest == dataset.digest
    assert not mirror.asked


def test_a_cache_of_the_hubs_client_is_a_local_copy(mirror: type[Hub], tmp_path: Path) -> None:
    dataset = load(parse(["svhn", "--no-extra", "--cache-dir", str(tmp_path / "cache")]))
    mirror.asked.clear()
    cache = tmp_path / "cache" / "svhn"
    for folder in (cache, cache / "datasets--ufldl-stanford--svhn"):
        assert load(parse(["svhn", "--no-extra", "--data-dir", str(folder)])).digest == dataset.digest
    with pytest.raises(DataError, match="does not hold ufldl-stanford/svhn whole"):
        load(parse(["svhn", "--extra", "--data-dir", str(cache)]))
    assert not mirror.asked


def test_a_file_that_the_hub_did_not_promise_is_refused(mirror: type[Hub], tmp_path: Path) -> None:
    name = "cropped_digits/train-00000-of-00001.parquet"
    good = mirror.files[name]
    mirror.files[name] = bytes(len(good))
    with pytest.raises(IntegrityError):
        hub.fetch_from_hub(REPOSITORY, PATTERNS, tmp_path / "cache")
    # The bad file is gone, so the next attempt fetches it again.
    assert not list((tmp_path / "cache").rglob("*.parquet"))
    mirror.files[name] = good
    assert hub.fetch_from_hub(REPOSITORY, PATTERNS, tmp_path / "cache").name == COMMIT


def test_small_files_are_compared_with_the_digest_of_git(mirror: type[Hub], tmp_path: Path) -> None:
    for name, content in mirror.files.items():
        mirror.digests[name] = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()  # noqa: S324
    hub.fetch_from_hub(REPOSITORY, PATTERNS, tmp_path / "cache")
    mirror.digests = dict.fromkeys(mirror.digests, 40 * "b")
    with pytest.raises(IntegrityError):
        hub.fetch_from_hub(REPOSITORY, PATTERNS, tmp_path / "other")


def test_any_set_of_the_hub_can_be_trained_on(mirror: type[Hub], tmp_path: Path) -> None:
    split = make_split(10)
    for name, count in (("train", 10), ("test", 4)):
        part = split.take(np.arange(count))
        path = write_parquet(tmp_path / "whole", f"{name}-00000-of-00001.parquet", part, "image", "label")
        mirror.files[f"cropped_digits/{path.name}"] = path.read_bytes()
    mirror.digests = {name: hashlib.sha256(content).hexdigest() for name, content in mirror.files.items()}
    config = parse([f"hf:{REPOSITORY}/cropped_digits@main", "--cache-dir", str(tmp_path / "cache")])
    assert config.needs_network
    dataset = load(config)
    assert dataset.source == f"{REPOSITORY} at {COMMIT}"
    assert (len(dataset.train), len(dataset.test)) == (10, 4)
    assert config.run_dir.name == f"hf-{REPOSITORY.replace('/', '-')}-cropped_digits-main-{config.digest[:8]}"
    mirror.asked.clear()
    assert load(config).digest == dataset.digest
    assert not mirror.asked
    other = parse([f"hf:{REPOSITORY}/nothing", "--cache-dir", str(tmp_path / "cache")])
    with pytest.raises(DataError, match="there is no nothing/"):
        load(other)


@pytest.mark.parametrize(
    ("code", "what"), [("RepoNotFound", "does not exist, or needs a login"), ("GatedRepo", "needs a login")]
)
def test_a_set_of_the_hub_that_is_not_there_or_not_open(
    mirror: type[Hub], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, what: str
) -> None:
    def refuse(self: Hub) -> None:
        self.answer(401, headers={"X-Error-Code": code, "X-Error-Message": "no"})

    monkeypatch.setattr(Hub, "do_GET", refuse)
    arguments = ["hf:some/pets", "--cache-dir", str(tmp_path / "cache"), "--out", str(tmp_path / "runs")]
    with pytest.raises(DataError, match=f"hf:some/pets {what}") as caught:
        load(parse(arguments))
    assert "HF_TOKEN" in caught.value.remedy
    assert main(arguments) == 9
    assert not (tmp_path / "runs").exists()
