import os
import re
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
STANDIN = "toolkit/base:python3.11-trixie"
MINI = ROOT / "tests" / "fixtures" / "mini_tensorflow"
EPOCH = "1741132800"
RULES_OF_2_20 = "5653e5a0ca87c1272069b4b24864e55ce7f129a1"
"""The commit of rules_ml_toolchain that TensorFlow 2.20 pins."""
LABELED = ("--label", "io.github.tensorflow-toolkit.owner=toolkit", "--load")
HARDENED = (
    "--read-only",
    "--tmpfs=/tmp",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--network=none",
    "--user=12345:54321",
)
"""Options for a container without privileges or network, and with a user that the image does not know."""


@dataclass(frozen=True)
class Outcome:
    code: int
    text: str

    @property
    def step_code(self) -> int | None:
        found = re.findall(r"did not complete successfully: exit code: (\d+)", self.text)
        return int(found[-1]) if found else None


def compose(
    target: str,
    *,
    output: Path | None = None,
    tag: str = "",
    arguments: Mapping[str, str] | None = None,
    contexts: Mapping[str, str | Path] | None = None,
    secrets: Mapping[str, Path] | None = None,
    root: str | Path = ".",
) -> list[str]:
    argv = ["docker", "buildx", "build", "--progress", "plain", "--file", f"{root}/docker/Dockerfile"]
    argv += ["--target", target]
    given = {"SOURCE_DATE_EPOCH": EPOCH, **(arguments or {})}
    if subprocess.run(["docker", "image", "inspect", STANDIN], capture_output=True, check=False).returncode == 0:
        given = {"BASE_IMAGE": STANDIN, **given}
    trusted = {"ca": Path(os.environ["SSL_CERT_FILE"])} if "SSL_CERT_FILE" in os.environ else {}
    for name, value in given.items():
        argv += ["--build-arg", f"{name}={value}"]
    for name, workspace in (contexts or {}).items():
        argv += ["--build-context", f"{name}={workspace}"]
    for name, file in {**trusted, **(secrets or {})}.items():
        argv += ["--secret", f"id={name},src={file}"]
    if output:
        argv += ["--output", f"type=local,dest={output}"]
    if not output and not tag:
        argv += ["--output", "type=cacheonly"]  # otherwise each build leaves an image without a name
    if tag:
        argv += ["--tag", tag, *LABELED]
    return [*argv, str(root)]


def build(target: str, **options: object) -> Outcome:
    argv = compose(target, **options)  # type: ignore[arg-type]
    done = subprocess.run(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return Outcome(done.returncode, done.stdout)


def build_mini(
    source: Path = MINI,
    *,
    cache: str,
    arguments: Mapping[str, object] | None = None,
    contexts: Mapping[str, object] | None = None,
    **options: object,
) -> Outcome:
    arguments = {"CACHE_ID": cache, "RUN_ID": uuid.uuid4().hex, "PROGRESS_SECONDS": "1", **(arguments or {})}
    contexts = {"bazel": "docker-image://toolkit/bazel:debian", "source": source, **(contexts or {})}
    return build("wheel-from-source", arguments=arguments, contexts=contexts, **options)


def upgrade(mini: Path, version: str) -> None:
    for name in ("tf_version.bzl", "__init__.py"):
        file = mini / "tensorflow" / name
        file.write_text(file.read_text().replace('= "2.19.0"', f'= "{version}"'))
    (mini / ".bazelversion").write_text("7.4.1\n")
    if version.startswith("2.20."):
        pins = mini / "tensorflow/workspace0.bzl"
        pins.write_text(pins.read_text().replace("09961bd590a5d3627b0044cd71b69b8cb9ba3145", RULES_OF_2_20))
    if version >= "2.20":
        with (mini / ".bazelrc").open("a") as rc:
            rc.write("build --incompatible_enable_cc_toolchain_resolution\n")
            rc.write("build --repo_env USE_HERMETIC_CC_TOOLCHAIN=1\n")


@contextmanager
def use_cache() -> Iterator[str]:
    """Name a new cache mount and empty it afterwards: BuildKit does so when a step that mounts it is not cached."""
    name = f"toolkit-tests-{uuid.uuid4().hex[:8]}"
    try:
        yield name
    finally:
        argv = [*compose("bazel-log", arguments={"CACHE_ID": name}), "--no-cache-filter", "bazel-log-copy"]
        subprocess.run(argv, cwd=ROOT, capture_output=True, check=False)


def run(image: str, *argv: str, options: Sequence[str] = ()) -> str:
    command = ["docker", "run", "--rm", *HARDENED, *options, image, *argv]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def start(folder: Path, image: str, *build: str, options: Sequence[str], command: Sequence[str] = ()) -> Iterator[str]:
    """Build an image of the tests from a folder, and yield the name of a container; both are removed at the end."""
    make(folder, image, *build)
    argv = ["docker", "run", "--rm", "--detach", "--init", *options, image, *command]
    name = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
    try:
        yield name
    finally:
        subprocess.run(["docker", "rm", "--force", name], check=False, capture_output=True)
        subprocess.run(["docker", "image", "rm", image], check=False, capture_output=True)


def make(folder: Path, image: str, *build: str) -> None:
    """Build an image of the tests from a folder. ``build``: options of the builder."""
    argv = ["docker", "buildx", "build", "--quiet", *build, "--tag", image, *LABELED, folder]
    subprocess.run(argv, check=True, capture_output=True)


def find_gateway() -> str:
    template = "{{(index .IPAM.Config 0).Gateway}}"
    argv = ["docker", "network", "inspect", "bridge", "--format", template]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()
