import json
import re
import zipfile
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tests.makers.publication import LOCK, PLAN, TABLE, finish_build, publish
from toolkit.base import manifest, steps
from toolkit.base.errors import CheckError, IntegrityError, PreflightError
from toolkit.base.findings import require
from toolkit.base.privacy import leave_out_persons
from toolkit.records import BuiltWheel, open_wheel, second_build
from toolkit.versions import lock
from toolkit.versions.rules import choose_versions
from toolkit.wheel import wheel_documents, wheel_folder
from toolkit.wheel.build_inputs import BuildContext, BuildInputs
from toolkit.wheel.build_options import BuildOptions
from toolkit.wheel.build_plan import BuildPlan, plan


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    publish(finish_build(tmp_path / "staging"), tmp_path / "dist")
    return tmp_path / "dist"


def test_result_holds_everything(dist: Path) -> None:
    names = {path.name for path in dist.iterdir()}
    wheel = "tensorflow-2.19.0-cp311-cp311-linux_x86_64.whl"
    assert names >= {
        wheel,
        "manifest.json",
        "SHA256SUMS",
        "build.log",
        wheel_documents.PROVENANCE,
        wheel_documents.BILL,
    }
    record = manifest.read(dist)
    assert record is not None
    facts = record.facts
    assert facts["level"] == "below R0"
    assert facts["floating"] == ["apt-snapshot"]
    assert facts["lock"] == LOCK.describe()
    assert facts["seconds"] == 3600
    assert facts["bazel"]["exit_code"] == 0
    assert facts["inspection"]["architectures"] == ["compute_75", "sm_75"]
    assert facts["auditwheel"]["platform"].startswith(("manylinux", "linux"))
    assert record.parent == {"kind": "lock", "name": "toolkit.lock.yaml", "digest": LOCK.digest}
    assert BuildPlan.read(dist) == PLAN, "plan.json"
    predicate = json.loads((dist / wheel_documents.PROVENANCE).read_text())["predicate"]
    source = {"name": "source", "digest": {"gitCommit": "a" * 40}}
    assert source in predicate["buildDefinition"]["resolvedDependencies"]
    assert predicate["runDetails"]["metadata"]["startedOn"] == "2025-03-05T00:00:00Z"
    assert oct(dist.stat().st_mode & 0o777) == "0o755"


def test_the_records_of_a_wheel_name_no_place_person_or_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    dist = tmp_path / "dist"
    publish(finish_build(tmp_path / "staging"), dist)
    documents = wheel_documents.BILL, wheel_documents.PROVENANCE, "build.log"
    names = manifest.FILE, wheel_folder.SUMS, steps.FILE, *documents
    for text in ((dist / name).read_text() for name in names):
        assert leave_out_persons(text) == text


def test_a_wheel_for_processors_requires_nothing_of_nvidia_and_one_for_cuda_is_refused_in_its_place(
    tmp_path: Path,
) -> None:
    spec = choose_versions(TABLE, for_processor=True)
    planned = plan(lock.collect(spec, TABLE, base_image="debian", base_digest="sha256:0"), BuildOptions())
    lines = ["Provides-Extra: and-cuda", "Requires-Dist: nvidia-cudnn-cu12 ==9.3.0.75 ; extra == 'and-cuda'"]
    publish(finish_build(tmp_path / "staging", requires=lines, cuda=False), tmp_path / "dist", planned)
    with zipfile.ZipFile(wheel_folder.find_wheel(tmp_path / "dist")) as opened:
        text = opened.read("tensorflow-2.19.0.dist-info/METADATA").decode()
    assert not re.search("nvidia|and-cuda", text)
    assert {item.state for item in open_wheel(tmp_path / "dist").check()} == {"ok"}
    with pytest.raises(CheckError, match="not the wheel that was asked for") as caught:
        publish(finish_build(tmp_path / "other"), tmp_path / "other-dist", planned)
    assert "it is a build for CUDA" in str(caught.value)


def test_bill_follows_its_schema_and_repeats(dist: Path, tmp_path: Path) -> None:
    text = (dist / wheel_documents.BILL).read_text()
    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    assert problem is None
    names = {item["name"] for item in json.loads(text)["components"]}
    assert {"nvidia-cudnn-cu12", "nvidia-nccl-cu12", "bazel", "clang-17", "bash"} <= names
    assert any(name.endswith("limits-float128.patch") for name in names)
    publish(finish_build(tmp_path / "again"), tmp_path / "other")
    assert (tmp_path / "other" / wheel_documents.BILL).read_text() == text


def test_what_was_published_is_verified(dist: Path) -> None:
    findings = open_wheel(dist).check()
    assert {item.id for item in findings} == {
        "sums",
        "digest",
        "versions",
        "inspection",
        "auditwheel",
        "provenance",
        "sbom",
        "lock",
    }
    assert all(item.state == "ok" for item in findings)
    require(findings, remedy="", strict=True)


def rewrite(path: Path, change: dict[str, object]) -> None:
    value = json.loads(path.read_text())
    for keys, new in change.items():
        *outer, last = keys.split(".")
        inner = value
        for key in outer:
            inner = inner[key]
        inner[last] = new
    path.write_text(json.dumps(value))
    wheel_folder.write_sums(path.parent)


@pytest.mark.parametrize(
    ("file", "change", "failing"),
    [
        ("manifest.json", {"digest": "sha256:1"}, "digest"),
        ("manifest.json", {"facts.lock.spec.cuda": "12.5.1"}, "versions lock"),
        ("manifest.json", {"facts.lock.pins.bazel-sha256": "0" * 64}, "lock"),
        ("manifest.json", {"facts.inspection.needed": []}, "inspection"),
        ("manifest.json", {"facts.auditwheel.platform": "manylinux_2_1"}, "auditwheel"),
        (wheel_documents.PROVENANCE, {"subject": []}, "provenance"),
        (wheel_documents.PROVENANCE, {"predicateType": "x"}, "provenance"),
        (wheel_documents.BILL, {"metadata.component.hashes": []}, "sbom"),
    ],
)
def test_each_finding_fails_where_it_should(dist: Path, file: str, change: dict[str, object], failing: str) -> None:
    rewrite(dist / file, change)
    findings = open_wheel(dist).check()
    assert [item.id for item in findings if item.state == "fail"] == failing.split()
    with pytest.raises(CheckError, match=f"{len(failing.split())} of 8 findings do(es)? not hold"):
        require(findings, remedy="")


def test_another_bazel_than_the_pinned_one_is_refused(tmp_path: Path) -> None:
    staging = finish_build(tmp_path / "staging", bazel="f" * 64)
    with pytest.raises(IntegrityError, match="another Bazel") as caught:
        publish(staging, tmp_path / "dist")
    assert "f" * 64 in caught.value.why
    assert not (tmp_path / "dist").exists()
    brought = plan(
        LOCK, BuildOptions(), BuildInputs(bazel=BuildContext(location="/bazel", identity="sha256:" + "b" * 64))
    )
    publish(staging, tmp_path / "dist", brought)
    dependencies = json.loads((tmp_path / "dist" / wheel_documents.PROVENANCE).read_text())["predicate"][
        "buildDefinition"
    ]["resolvedDependencies"]
    assert {"name": "bazel-6.5.0", "digest": {"sha256": "f" * 64}} in dependencies


@pytest.mark.parametrize("wheel", [{"capability": "sm_80"}, {"version": "2.18.0"}, {"tag": "cp312-cp312-linux_x86_64"}])
def test_another_wheel_than_asked_for_publishes_nothing(tmp_path: Path, wheel: dict[str, str]) -> None:
    with pytest.raises(CheckError, match="not the wheel that was asked for"):
        publish(finish_build(tmp_path / "staging", **wheel), tmp_path / "dist")
    assert not (tmp_path / "dist").exists()


@pytest.mark.parametrize(
    ("tag", "why"),
    [
        ("manylinux_2_5_x86_64", r"needs a newer system than its tag manylinux_2_5_x86_64"),
        ("manylinux_2_28_x86_64", ""),
        ("linux_x86_64", "its tag is linux_x86_64, not manylinux_2_28_x86_64"),
    ],
)
def test_a_tag_that_would_lie_publishes_nothing(tmp_path: Path, tag: str, why: str) -> None:
    older = lock.collect(choose_versions(TABLE, glibc="2.28"), TABLE, base_image="debian")
    wanted = plan(
        older if "2_5" not in tag else LOCK,
        BuildOptions(),
        BuildInputs(source=BuildContext(location="/", identity="git:" + "a" * 40)),
    )
    staging = finish_build(tmp_path / "staging", tag=f"cp311-cp311-{tag}")
    if not why:
        assert publish(staging, tmp_path / "dist", wanted).facts["auditwheel"]["outside"] == ()
        return
    with pytest.raises(CheckError, match=why):
        publish(staging, tmp_path / "dist", wanted)
    assert not (tmp_path / "dist").exists()


def test_only_a_wheel_of_this_user_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "thesis").write_text("")
    with pytest.raises(PreflightError, match="is in the way"):
        publish(finish_build(tmp_path / "staging"), tmp_path / "dist")
    (tmp_path / "dist" / "thesis").unlink()
    (tmp_path / "dist").rmdir()
    for number in range(2):
        publish(finish_build(tmp_path / f"staging{number}"), tmp_path / "dist")
    require(open_wheel(tmp_path / "dist").check(), remedy="")


def test_a_second_build_follows_the_saved_plan(dist: Path) -> None:
    again = second_build.change_plan(BuiltWheel(folder=dist, state=dist).read_plan(), cache_id="new")
    assert again.fresh
    assert again.arguments["CACHE_ID"] == "new"
    assert (again.digest, again.lock, again.contexts, again.origins) == (PLAN.digest, LOCK, PLAN.contexts, PLAN.origins)
