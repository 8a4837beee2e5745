import hashlib
import re
import uuid
from pathlib import Path

import pytest

from tests.integration.docker import stages
from tests.unit.wheel.maker import CPU_INFO, MEMBER, make_wheel

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]


def fill(folder: Path, note: str) -> None:
    wheel = make_wheel(folder, files={MEMBER: CPU_INFO, "tensorflow/note.txt": note})
    (folder / "build.log").write_text(str(uuid.uuid4()))
    files = (wheel, folder / "build.log")
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (folder / "SHA256SUMS").write_text("".join(lines))


def is_cached(folder: Path, clone: Path) -> bool:
    outcome = stages.build("venv", contexts={"wheel": folder}, root=clone)
    assert outcome.code == 0, outcome.text
    step = re.findall(r"^#(\d+) \[venv 1/1\] RUN", outcome.text, re.MULTILINE)[0]
    return re.search(rf"^#{step} CACHED$", outcome.text, re.MULTILINE) is not None


def test_environment_follows_from_the_wheel_and_not_from_what_lies_beside_it(tmp_path: Path, clone: Path) -> None:
    # Any one package will do: the whole set has 2 GB and takes a minute.
    locked = clone / "docker/requirements/cpu.txt"
    locked.write_text("".join(re.findall(r"(?m)^pyyaml==.*(?:\n +--hash.*)+", locked.read_text())) + "\n")
    tmp_path /= "wheel"
    tmp_path.mkdir()
    note = str(uuid.uuid4())
    fill(tmp_path, note)
    assert not is_cached(tmp_path, clone)
    fill(tmp_path, note)
    assert is_cached(tmp_path, clone)
    fill(tmp_path, str(uuid.uuid4()))
    assert not is_cached(tmp_path, clone)
