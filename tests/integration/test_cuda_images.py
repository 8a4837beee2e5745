"""Images of the run-time sets with CUDA that are shipped, from the published wheels, checked without a GPU.

They are built weekly, because an image has 5 to 7 GB and takes minutes. Each is removed again, with what BuildKit kept
of it.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.workspace import Workspace
from tests.makers.other_sets import train_once
from tests.makers.smoke_images import failures, require_breaks_named, smoke
from toolkit.versions.table import Locked, load_table

pytestmark = [pytest.mark.engine, pytest.mark.weekly, pytest.mark.timeout(1800)]

TABLE = load_table()
FOUNDING, *OTHERS = sorted((item for item in TABLE.published if item.cuda), key=lambda item: item.tensorflow)
NEEDS_GPU = {f"device.{name}" for name in ("driver", "visible", "capability", "operation", "memory")}


@pytest.fixture(scope="module", params=[FOUNDING, *OTHERS], ids=lambda item: item.requirements)
def item(request: pytest.FixtureRequest) -> Locked:
    found: Locked = request.param
    return found


@pytest.fixture(scope="module")
def image(item: Locked, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    asked = ("--tensorflow", item.tensorflow, "--cuda", item.cuda, "--cudnn", item.cudnn)
    with Workspace(tmp_path_factory.mktemp("cuda")).image(*asked) as made:
        print(f"{item.requirements}: {made['bytes']} bytes")
        yield made["image"]


def test_the_image_holds_what_was_asked_for(item: Locked, image: str) -> None:
    asked = ("--expect-version", item.tensorflow, "--expect-cuda", item.cuda, "--expect-cudnn", item.cudnn)
    code, found = smoke(image, *asked, "--expect-capability", "7.5")
    assert (code, found.verdict) == (0, "pass"), failures(found)
    assert {check.id for check in found.checks if check.state == "skipped"} == NEEDS_GPU
    evidence = {check.id: check.facts["evidence"] for check in found.checks}
    cuda, cudnn = ([int(part) for part in version.split(".")] for version in (item.cuda, item.cudnn))
    told = evidence["libraries.versions"]
    assert told["cudaRuntimeGetVersion"] == cuda[0] * 1000 + cuda[1] * 10
    assert told["cudnnGetVersion"] == cudnn[0] * 10000 + cudnn[1] * 100 + cudnn[2]
    assert evidence["libraries.reachable"]["missing"] == {}
    assert evidence["compiler.ptxas"]["version"] == TABLE.cuda_rows[item.cuda].components["cuda-nvcc"]
    assert evidence["compiler.ptxas"]["assembled_for"] == "sm_75"
    assert "lines of PTX for compute_75" in evidence["compiler.libdevice"]["linked"]


def test_the_image_trains_on_the_processor(image: str) -> None:
    assert "test accuracy" in train_once(image)


@pytest.mark.parametrize("item", [FOUNDING], indirect=True, ids=lambda item: item.requirements)
def test_every_break_in_the_image_is_named(image: str, tmp_path: Path) -> None:
    require_breaks_named(image, tmp_path)
