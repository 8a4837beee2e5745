from pathlib import Path

from wheelbuild import arguments
from wheelbuild.request import Request

RC = Path(__file__).parents[1] / "fixtures/mini_tensorflow/.bazelrc"
FULL = Request(
    tensorflow="2.19.0",
    cuda="12.6.1",
    cudnn="9.5.0",
    python="3.11",
    capabilities="sm_75",
    llvm="17",
    jobs=8,
    memory=16000,
    progress=5,
    epoch="1741132800",
    extra=("--copt=-mavx", "--config=cuda"),
    remote_cache="grpcs://cache.example",
    remote_executor="grpcs://executor.example",
    remote_instance="main",
    toolchain="0123456789abcdef",
    machine="x86_64",
    glibc="2.28",
)


def compose(
    request: Request = FULL,
    downloads: Path = Path("/none"),
    trust: Path | None = Path("/ca"),
    rules: Path | None = None,
) -> list[str]:
    return arguments.compose_build(
        request, cache=Path("/cache"), events=Path("/events"), downloads=downloads, trust=trust, rules=rules
    )
