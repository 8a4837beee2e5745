import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from toolkit.console import Console
from toolkit.errors import BuildError, CheckError
from toolkit.versions import proven_toolchains

GROUP = ("2.21.0", "12.8.1", "22")
EVIDENCE = {
    "versions": {"clang": "22.1.8"},
    "capabilities": [{"asked": "sm_120", "cubin": "sm_120"}],
    "failed": {"sm_100": "an error"},
}


@pytest.fixture
def prover(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> proven_toolchains.Prover:
    program = tmp_path / "bin/docker"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\n"
        "for word; do case $word in type=local,dest=*) folder=${word#type=local,dest=} ;; esac; done\n"
        f"echo '{json.dumps(EVIDENCE)}' > $folder/toolchain.json\n"
        "touch -d 2026-11-22T12:00:00Z $folder/toolchain.json\n"
        'echo "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    for function in (proven_toolchains.read, proven_toolchains.write):
        monkeypatch.setattr(function, "__defaults__", (tmp_path / "proven.yaml",))
    return proven_toolchains.Prover(base="base", ca_bundle="", folder=tmp_path / "state")


def test_proofs_are_written_with_the_day_on_which_they_were_made(prover: proven_toolchains.Prover) -> None:
    with pytest.raises(CheckError, match=r"do not compile\n  why: 2\.21\.0 12\.8\.1 22: 10\.0"):
        proven_toolchains.prove_all({GROUP: ["10.0", "12.0"]}, prover, Console(json=False, verbosity=-1), jobs=1)
    (made,) = proven_toolchains.read().values()
    assert (made.key, made.date) == (("linux/amd64", *GROUP), "2026-11-22")
    assert made.proven == ("12.0",)
    assert made.failed == {"10.0": "an error"}
    assert made.digest == proven_toolchains.digest_inputs(*GROUP)


def test_the_container_gets_what_is_to_be_proven(prover: proven_toolchains.Prover) -> None:
    prover.folder.mkdir()
    prover.prove(GROUP, ["10.0", "12.0"])
    said = (prover.folder / "2.21.0-12.8.1-22.log").read_text()
    for argument in ("TENSORFLOW_VERSION=2.21.0", "CUDA_VERSION=12.8.1", "LLVM_VERSION=22", "PROOF_REPORT_ALL=1"):
        assert f"--build-arg {argument} " in said
    assert "COMPUTE_CAPABILITIES=10.0,12.0 " in said


def test_another_platform_is_proven_by_the_cross_stage(prover: proven_toolchains.Prover) -> None:
    crossing = replace(prover, platform="linux/arm64", host="linux/amd64")
    proven_toolchains.prove_all({GROUP: ["12.0"]}, prover, Console(json=False, verbosity=-1), jobs=1)
    proven_toolchains.prove_all({GROUP: ["12.0"]}, crossing, Console(json=False, verbosity=-1), jobs=1)
    here, there = proven_toolchains.read().values()
    assert (here.platform, here.host) == ("linux/amd64", "")
    assert (there.platform, there.host) == ("linux/arm64", "linux/amd64")
    assert there.digest == proven_toolchains.digest_inputs(*GROUP, cross=True) != here.digest
    assert "--target cross-proof " in (prover.folder / "2.21.0-12.8.1-22-linux-arm64.log").read_text()
    assert "--target toolchain-proof " in (prover.folder / "2.21.0-12.8.1-22.log").read_text()


def test_a_proof_that_does_not_end_is_an_error(prover: proven_toolchains.Prover, tmp_path: Path) -> None:
    (tmp_path / "bin/docker").write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
    with pytest.raises(BuildError, match="did not come to an end"):
        proven_toolchains.prove_all({GROUP: ["12.0"]}, prover, Console(json=False, verbosity=-1), jobs=1)
    assert not (tmp_path / "proven.yaml").exists()
