import errno
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.command import Run
from tests.unit.graft import maker
from tests.unit.graft.maker import Graft
from toolkit import records, report
from toolkit.base import project
from toolkit.base.console import Console
from toolkit.base.errors import BuildError, CheckError, IntegrityError, PreflightError, ToolkitError, UnsupportedError
from toolkit.graft import graft_plan, sources
from toolkit.records import rebuild
from toolkit.report.chain import PageContext
from toolkit.versions.settings import Settings, resolve
from toolkit.versions.table import load_table
from toolkit.wheel import fatbin, inspection, wheel_folder
from toolkit.wheel.wheel_folder import FinishedWheel


def read_library(made: FinishedWheel | Path) -> list[list[str]]:
    """Return the GPUs of each fat binary in the library of a wheel, wherever it lies, by the names of their entries."""
    with zipfile.ZipFile(made if isinstance(made, Path) else made.wheel) as opened:
        data = opened.read(maker.LIBRARY)
    return [[entry.name for entry in each.entries] for each in fatbin.search_containers(data, 0, len(data))]


def test_a_card_gets_machine_code_and_the_rest_stays(graft: Graft) -> None:
    made = graft("RTX 5090")
    assert made.wheel.name == "tensorflow-2.21.0+sm120-cp311-cp311-linux_x86_64.whl"
    assert sorted(read_library(made)) == [["sm_80", "sm_89", "sm_120", "compute_90"]] * 3
    found = inspection.inspect(made.wheel)
    assert found.build.capabilities == ("sm_80", "sm_89", "sm_120", "compute_90")
    assert (found.version, found.public_version) == ("2.21.0+sm120", "2.21.0")
    (library,) = made.record.facts["graft"]["libraries"]
    assert (library["kernels"], library["changed"], library["containers"]) == (4, 3, 3)
    assert library["left"] == {"PTX text of sm_50, which the driver compiles when it is used": 1}


def test_a_grafted_wheel_can_be_grafted_for_the_next_card(graft: Graft) -> None:
    again = graft("10.0", source=graft("12.0").wheel)
    assert "-2.21.0+sm120.sm100-" in again.wheel.name
    assert sorted(read_library(again)) == [["sm_80", "sm_89", "sm_100", "sm_120", "compute_90"]] * 3


def test_other_machine_code_can_go(graft: Graft, tmp_path: Path) -> None:
    made = graft("12.0", mode="only")
    assert "+sm120.only-" in made.wheel.name
    assert sorted(read_library(made)) == [["sm_120", "compute_90"]] * 3
    assert inspection.inspect(made.wheel).build.capabilities == ("sm_120", "compute_90")
    (library,) = made.record.facts["graft"]["libraries"]
    assert (library["moved"], library["bytes_before"]) == (0, library["bytes_after"])


def make_bound(folder: Path) -> Path:
    """Make a wheel in which one PTX text is for capability 9.0a alone, as those of MLIR in TensorFlow 2.19 and 2.20."""
    bound = maker.make_container("bound", target="sm_90a")
    return maker.make_tensorflow(folder, maker.make_library([maker.make_container("one")], [bound]), version="2.20.0")


def test_ptx_for_one_gpu_alone_is_repaired_and_nothing_else(graft: Graft, tmp_path: Path) -> None:
    source = make_bound(tmp_path)
    made = graft(source=source, mode="repair")
    assert "+repaired-" in made.wheel.name
    with zipfile.ZipFile(source) as one, zipfile.ZipFile(made.wheel) as two:
        before, after = one.read(maker.LIBRARY), two.read(maker.LIBRARY)
        assert one.read(inspection.BUILD_INFO) == two.read(inspection.BUILD_INFO)
    assert sum(old != new for old, new in zip(before, after, strict=True)) == 1
    texts = [
        fatbin.unpack(after, entry)
        for each in fatbin.search_containers(after, 0, len(after))
        for entry in each.entries
        if entry.kind == "compute"
    ]
    assert all(b".target sm_90a" not in text for text in texts)
    with pytest.raises(UnsupportedError, match="there is nothing to graft"):
        graft(source=made.wheel, mode="repair")


def test_what_cannot_be_read_is_named(graft: Graft, tmp_path: Path) -> None:
    library = maker.make_library(
        [maker.make_container("one"), maker.make_container("bare", ptx=False)], relocatable=True
    )
    made = graft("12.0", source=maker.make_tensorflow(tmp_path, library))
    left = made.record.facts["graft"]["libraries"][0]["left"]
    assert left["fat binaries without PTX"] == 1
    assert left["relocatable parts, which only nvlink makes into kernels"] == 1


def test_it_is_verified_and_made_again_to_the_byte(graft: Graft, settings: Settings, tmp_path: Path) -> None:
    made = graft("12.0")
    target = records.find(str(made.folder), Path(settings.state))
    assert {item.state for item in records.compare(target).list_findings()} == {"ok", "absent"}
    assert isinstance(target, records.Graft)
    assert rebuild.rebuild(target, settings, bazelrc="", console=Console(verbosity=-1)).level == "R3"
    assert "is trusted" in target.describe_trust()
    assert wheel_folder.find_built_cudnn(made.record) == "", (
        "its record has that of a run-time set, and the original may be built for another"
    )
    assert target.read_plan().digest == made.record.facts["plan"]


def test_its_page_has_each_library_and_the_wheel_that_it_was_made_from(graft: Graft, settings: Settings) -> None:
    made = graft("12.0")
    found, text = report.compose([str(made.folder)], PageContext(state=Path(settings.state)))
    assert found.kind == "Grafted wheel"
    numbers = {each.label: (each.text, each.note) for each in found.numbers}
    assert numbers["Compute capability"] == ("12.0", "")
    assert numbers["TensorFlow"] == ("2.21.0", "2.21.0+sm120"), "the whole version has no room in large letters"
    assert found.chain is not None
    assert [(link.name, link.state) for link in found.chain.links] == [
        ("wheel", "ok"), ("plan", "ok"), ("lock", "ok"), ("original", "absent")
    ]  # fmt: skip
    assert maker.LIBRARY in text
    assert "PTX text of sm_50, which the driver compiles when it is used: 1" in text
    host = made.record.facts["host"]
    machine = f"{host['cores']} cores, {int(host['memory_bytes']) / 1e9:.2f} GB of memory, {host['machine']}"
    assert f"{machine}, Linux {host['kernel']}</td>" in text, "no engine, and none is named"


def test_a_record_that_was_changed_is_noticed(graft: Graft, settings: Settings) -> None:
    made = graft("12.0")
    place = made.folder / "manifest.json"
    value = json.loads(place.read_text())
    value["facts"]["lock"]["spec"]["capabilities"] = "10.0"
    place.write_text(json.dumps(value))
    with pytest.raises(IntegrityError, match=r"manifest\.json"):
        records.compare(records.find(str(made.folder), Path(settings.state)))
    wheel_folder.write_sums(made.folder)
    states = {item.id: item.state for item in records.open_wheel(made.folder).check()}
    assert states["plan"] == "fail"


def test_a_proof_that_fails_leaves_nothing(graft: Graft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from toolkit.graft import transplant

    def refuse(*_: Any, **__: Any) -> None:
        raise CheckError("it differs")

    monkeypatch.setattr(transplant.proof, "prove", refuse)
    with pytest.raises(CheckError):
        graft("12.0")
    assert list((tmp_path / "dist").iterdir()) == []


def test_a_full_disk_leaves_nothing(graft: Graft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from toolkit.graft import library

    def fill(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(library.shutil, "copyfile", fill)
    with pytest.raises(PreflightError, match=r"cannot write the wheel below .*\n.*No space left"):
        graft("12.0")
    assert list((tmp_path / "dist").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "no card is named"),
        (["--gpu", "RTX 9999"], 2, "no card of this name"),
        (["--gpu", "T4"], 3, "it is not needed: the wheel has sm_70 machine code"),
        (["--gpu", "GTX 980"], 3, "toolkit build-wheel"),
        (["--gpu", "RTX 5090", "--tensorflow", "2.18.0"], 3, "choose one of these"),
        (["--gpu", "RTX 5090", "--only", "--repair"], 2, "exclude each other"),
        (["--gpu", "RTX 5090", "--repair"], 2, "for no card in particular"),
    ],
)
def test_refusals_cost_nothing_and_leave_nothing(run: Run, arguments: list[str], code: int, message: str) -> None:
    done = run("graft", *arguments)
    assert (done.returncode, message in done.stderr) == (code, True), done.stderr
    assert list(run.folder.iterdir()) == []
    assert run.started == []


def test_a_dry_run_names_the_command_and_every_pin(run: Run) -> None:
    done = run("graft", "--gpu", "RTX 5090", "--dry-run", "--json")
    (step,) = json.loads(done.stdout)["plan"]["steps"]
    assert step["commands"][0][:3] == ["toolkit", "graft", "--compute-capability=12.0"]
    assert step["inputs"].keys() == {"wheel", "nvidia-cuda-nvcc-cu12", "options", "recipe", "and-cuda"}
    assert list(run.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("cards", "mode", "exact", "cublas", "cudnn"),
    [
        (["12.0"], "keep", False, ">=12.8.4.1,<13", ">=9.7,<9.11"),
        (["12.0"], "only", False, ">=12.8.4.1,<13", ">=9.7,<10"),
        (["10.3"], "keep", False, ">=12.9.1.4,<13", ">=9.7,<9.11"),
        (["12.0"], "keep", True, "==12.8.4.1", "==9.10.2.21"),
        ([], "repair", False, ">=12.5.3.2,<13", ">=9.6,<9.11"),
    ],
)
def test_the_extra_requires_what_the_cards_allow(
    cards: list[str], mode: graft_plan.Mode, exact: bool, cublas: str, cudnn: str
) -> None:
    settings = resolve({"tensorflow": "2.21.0"}, environment={})
    request = graft_plan.GraftRequest(cards=cards, mode=mode, exact=exact)
    planned = graft_plan.plan_graft(load_table(), settings, request)
    assert (planned.requires["nvidia-cublas-cu12"], planned.requires["nvidia-cudnn-cu12"]) == (cublas, cudnn)
    again = graft_plan.GraftPlan.from_json(json.loads(json.dumps(planned.to_json())))
    assert again.requires == planned.requires
    assert ("--exact" in planned.step(Path("dist")).commands[0]) == exact


def test_a_wheel_for_cuda_13_gets_the_ptxas_and_the_packages_of_that_cuda(tmp_path: Path) -> None:
    request = graft_plan.GraftRequest(cards=["12.0"], wheel=maker.make_tensorflow(tmp_path, cuda="13.0.0"))
    planned = graft_plan.plan_graft(load_table(), resolve({}, environment={}), request)
    assert (planned.ptxas, planned.lock.versions.cuda, planned.lock.versions.cudnn) == ("13.0.0", "13.0.0", "9.12.0")
    locked = sources.select(project.locate(f"docker/requirements/{planned.compiler}.txt"), graft_plan.NVCC)
    assert planned.lock.pins["nvidia-cuda-nvcc"] == locked.digest
    assert planned.requires["nvidia-cublas"] == ">=13.0.0.19,<14"
    assert planned.requires["nvidia-cudnn-cu13"].startswith(">=9.7")


@pytest.mark.parametrize("place", ["nvidia/cuda_nvcc/bin/ptxas", "nvidia/cu13/bin/ptxas", "nvidia/cu13/bin/nvcc"])
def test_ptxas_is_taken_out_of_the_wheel_of_any_cuda(tmp_path: Path, place: str) -> None:
    with zipfile.ZipFile(tmp_path / "nvcc.whl", "w") as opened:
        opened.writestr(place, "assembles")
    if not place.endswith("ptxas"):
        with pytest.raises(IntegrityError, match=r"nvcc\.whl has no ptxas"):
            sources.unpack_ptxas(tmp_path / "nvcc.whl", tmp_path)
        return
    ptxas = sources.unpack_ptxas(tmp_path / "nvcc.whl", tmp_path)
    assert (ptxas.read_text(), ptxas.stat().st_mode & 0o777) == ("assembles", 0o755)


def make_index(folder: Path) -> tuple[Path, sources.LockedPackage]:
    made = maker.make_tensorflow(folder, tag="cp311-cp311-manylinux_2_17_x86_64")
    value = sources.digest.digest_file(made).removeprefix("sha256:")
    return made, sources.LockedPackage(name="tensorflow", entry=f"tensorflow==2.21.0 \\\n    --hash=sha256:{value}\n")


def test_a_download_is_checked_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, package = make_index(tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    fetch = lambda: sources.fetch(package, "3.11", tmp_path / "cache", ca_bundle="", console=Console(verbosity=-1))  # noqa: E731
    first = fetch()
    assert first.read_bytes() == made.read_bytes()
    made.unlink()
    assert fetch() == first
    first.write_bytes(b"damaged")
    with pytest.raises(BuildError, match="the download failed"):
        fetch()


def test_a_download_of_other_bytes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, package = make_index(tmp_path)
    with zipfile.ZipFile(made, "a") as opened:
        opened.writestr("tensorflow/more.py", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ToolkitError) as caught:
        sources.fetch(package, "3.11", tmp_path / "cache", ca_bundle="", console=Console(verbosity=-1))
    assert caught.value.exit_code == 8
    assert not list((tmp_path / "cache").glob("[!.]*"))


@pytest.mark.parametrize(
    "blob",
    [
        maker.fatbin.compose([maker.pack_ptx(maker.make_ptx("one", target="sm_80"), 90)]),
        maker.fatbin.compose(
            [
                maker.fatbin.pack_cubin(maker.make_cubin(80, {"one": (8, 8)}), 89, b""),
                maker.pack_ptx(maker.make_ptx("one")),
            ]
        ),
        maker.make_container("one")[:-8],
    ],
)
def test_gpu_code_that_is_not_what_its_table_says_is_refused(graft: Graft, tmp_path: Path, blob: bytes) -> None:
    source = maker.make_tensorflow(tmp_path, maker.make_library([blob]))
    with pytest.raises(IntegrityError, match="damaged") as caught:
        graft("12.0", source=source)
    assert caught.value.exit_code == 8
    assert not list((tmp_path / "dist").glob("*"))
