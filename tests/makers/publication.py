import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import yaml

from tests.unit.wheel.maker import CPU_INFO, MEMBER, make_build_info, make_elf, make_fatbin, make_wheel
from toolkit.base import manifest
from toolkit.versions import lock
from toolkit.versions.rules import choose_versions
from toolkit.versions.table import load_table
from toolkit.wheel import inspection, publication, wheel_documents, wheel_folder
from toolkit.wheel.build_inputs import BuildContext, BuildInputs
from toolkit.wheel.build_options import BuildOptions
from toolkit.wheel.build_plan import BuildPlan, plan

TABLE = load_table()
LOCK = lock.collect(choose_versions(TABLE), TABLE, base_image="debian", base_digest="sha256:" + "0" * 64)
PLAN = plan(LOCK, BuildOptions(), BuildInputs(source=BuildContext(location="/source", identity="git:" + "a" * 40)))
RAN_AT = wheel_documents.BuildRun(
    started=1_741_132_800, finished=1_741_136_400, host={"engine": "docker 26"}, command=("docker",)
)
EVENTS = '{"id":{"buildFinished":{}},"finished":{"exitCode":{"name":"SUCCESS"}}}\n{"half'


def finish_build(
    path: Path,
    capability: str = "compute_75",
    version: str = "2.19.0",
    tag: str = "cp311-cp311-linux_x86_64",
    bazel: str = LOCK.pins["bazel-sha256"],
    requires: Sequence[str] = (),
    *,
    cuda: bool = True,
) -> Path:
    path.mkdir(parents=True)
    real = next(Path(yaml.__file__).parent.glob("_yaml*.so"))
    make_wheel(
        path,
        files={
            MEMBER: make_build_info(capability) if cuda else CPU_INFO,
            "tensorflow/libtensorflow_cc.so.2": make_elf(make_fatbin(("sm", 75), ("compute", 75)) if cuda else b""),
            f"tensorflow/{real.name}": real.read_bytes(),
        },
        version=version,
        tag=tag,
        requires=requires,
    )
    (path / "build.json").write_text(json.dumps({"bazel": "6.5.0", "bazel_sha256": bazel, "seconds": 3600}))
    (path / "events.json").write_text(EVENTS)
    (path / "packages.txt").write_text("clang-17=1:17.0.6-22\nbash=5.2\n")
    (path / "build.log").write_text("INFO: Build completed successfully\n")
    wheel_folder.write_sums(path)
    return path


def seal(wheel: Path, *architectures: str, **facts: Any) -> Path:
    """Put the records of a finished wheel beside it, with this user's seal."""
    inspected = replace(inspection.inspect(wheel), architectures=architectures)
    facts = {"lock": {"schema": 1, "spec": {}, "pins": {}}, **facts, "inspection": asdict(inspected)}
    manifest.write(wheel.parent, manifest.Manifest(kind="wheel", digest=inspected.digest, facts=facts))
    wheel_folder.write_sums(wheel.parent)
    wheel_folder.seal(wheel.parent)
    return wheel.parent


def publish(staging: Path, target: Path, plan: BuildPlan = PLAN) -> manifest.Manifest:
    return publication.publish(staging, target, plan, RAN_AT)
