import json
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tests.makers.fitness import GOOD
from tests.makers.provenance import IMAGE, LOCK, RAN, TABLE
from toolkit.wheel import build_documents, wheel_documents
from toolkit.wheel.build_inputs import BuildContext, BuildInputs
from toolkit.wheel.build_options import BuildOptions
from toolkit.wheel.build_plan import plan

VALIDATOR = JsonStrictValidator(SchemaVersion.V1_6)


def write(**origins: BuildContext) -> dict[str, Any]:
    packages = ["clang-17=1:17.0.6-22", "libstdc++-14-dev=14.2.0-19", "bash=5.2"]
    text = build_documents.write_bill(
        plan(LOCK, BuildOptions(), BuildInputs(**origins)), GOOD, bazel=RAN, packages=packages
    )
    assert VALIDATOR.validate_str(text) is None
    value: dict[str, Any] = json.loads(text)
    return value


def test_pinned_commit_is_the_wheels_source() -> None:
    subject = write()["metadata"]["component"]
    (reference,) = subject["externalReferences"]
    assert reference == {
        "type": "vcs",
        "url": f"git+https://github.com/tensorflow/tensorflow.git@{LOCK.pins['tensorflow-commit']}",
    }


def test_wheel_has_the_name_that_advisory_databases_have_for_tensorflow() -> None:
    assert write()["metadata"]["component"]["cpe"] == "cpe:2.3:a:google:tensorflow:2.19.0:*:*:*:*:*:*:*"
    assert wheel_documents.name_cpe("2.19.0+sm120") == "cpe:2.3:a:google:tensorflow:2.19.0:*:*:*:*:*:*:*"


def test_bazel_has_the_version_and_the_hash_of_the_one_that_ran() -> None:
    for origins in ({}, {"bazel": IMAGE}):
        (bazel,) = [item for item in write(**origins)["components"] if item["name"] == "bazel"]
        assert bazel["version"] == RAN.version
        assert bazel["hashes"] == [{"alg": "SHA-256", "content": RAN.sha256}]
        assert bazel["scope"] == "excluded"


def test_run_time_components_are_those_of_the_release_and_what_the_wheel_depends_on() -> None:
    value = write()
    row = TABLE.cuda_rows["12.6.1"]
    wanted = {f"pkg:pypi/nvidia-{name}-cu12@{version}" for name, version in row.components.items()}
    wanted |= {"pkg:pypi/nvidia-cudnn-cu12@9.5.0.50", "pkg:pypi/nvidia-nccl-cu12@2.23.4"}
    assert {item["purl"] for item in value["components"] if item["name"].startswith("nvidia-")} == wanted
    (subject,) = [item for item in value["dependencies"] if item["ref"] == "wheel"]
    assert set(subject["dependsOn"]) == wanted
