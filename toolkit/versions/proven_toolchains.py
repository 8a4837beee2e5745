"""Proves toolchains in containers, and reads which were proven: ``proven.yaml``, which `toolkit matrix --prove` writes.

A proof is void as soon as one of its inputs changes: the proof's own files, the locked parts of CUDA, the locked wheel
whose headers are compiled, or the patches of the system's headers and of TensorFlow's. That for linux/arm64 can be made
on a machine of linux/amd64 by a cross compiler; the file then names that ``host``.
"""

import functools
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import yaml

from toolkit import digest, files, programs, project
from toolkit.console import Console
from toolkit.errors import BuildError, CheckError, ToolkitError
from toolkit.steps import repeat
from toolkit.versions.numbers import order, parse
from toolkit.versions.table import BROKEN, FIRST_PLATFORM, read_yaml

PATH = Path(__file__).with_name("proven.yaml")
_FILES = ("docker/scripts/proof", "docker/scripts/take-headers", "docker/scripts/link-cuda")
_CROSS_FILES = ("docker/scripts/crossproof",)
_FILES_OF_CUDA_13 = ("docker/scripts/split-cuda",)
_HEAD = "# What compiled, and what did not: written by `toolkit matrix --prove`. Do not edit.\n"


@dataclass(frozen=True, kw_only=True)
class Proof:
    tensorflow: str
    cuda: str
    clang: str  # full version
    date: str  # UTC
    digest: str  # of the inputs
    proven: tuple[str, ...]  # capabilities
    failed: Mapping[str, str]  # reason for each capability that did not compile
    platform: str = FIRST_PLATFORM  # for which was compiled
    host: str = ""  # platform of the machine that compiled, if it is another

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.platform, self.tensorflow, self.cuda, self.clang.partition(".")[0]


def read(path: Path = PATH) -> dict[tuple[str, str, str, str], Proof]:
    """Return the proofs by platform, TensorFlow, CUDA and clang's major version.

    Raises ToolkitError if the file is damaged.
    """
    try:
        rows = read_yaml(path.read_bytes())["proofs"]
        proofs = [Proof(**{**row, "proven": tuple(row["proven"])}) for row in rows]
    except FileNotFoundError:
        return {}
    except (OSError, *BROKEN) as error:
        raise ToolkitError(f"{path} is damaged", why=repr(error), remedy="restore it from the repository") from error
    return {proof.key: proof for proof in proofs}


def write(proofs: Iterable[Proof], path: Path = PATH) -> None:
    usual = {field.name: field.default for field in fields(Proof)}
    rows = [
        {name: value for name, value in asdict(proof).items() if value != usual[name]} | {"proven": list(proof.proven)}
        for proof in sorted(proofs, key=lambda proof: proof.key)
    ]
    text = yaml.safe_dump({"schema": 1, "proofs": rows}, sort_keys=False, width=120, default_flow_style=None)
    files.write_atomically(path, _HEAD + text)


@functools.cache
def digest_inputs(tensorflow: str, cuda: str, clang: str, *, cross: bool = False) -> str:
    """Return the digest of what a proof depends on; ``clang`` is its major version."""
    files = (*_FILES, *(_CROSS_FILES if cross else ()), *(_FILES_OF_CUDA_13 if parse(cuda) >= (13,) else ()))
    locks = (f"docker/requirements/toolchain-{cuda}.txt", f"docker/requirements/headers-{tensorflow}.txt")
    paths = [project.ROOT / name for name in (*files, *locks)]
    patches = [*find_patches(f"headers/clang-{clang}"), *find_patches(f"kernels/{tensorflow}-{cuda}")]
    return digest.digest_paths(project.ROOT, [*paths, *patches])


def find_patches(folder: str) -> list[Path]:
    """Return the series in a folder of ``bazel_patches`` and the patches that it names; none without a series."""
    root = project.locate("bazel_patches") / folder
    if not (root / "series").exists():
        return []
    lines = (line.partition("#")[0].strip() for line in (root / "series").read_text().splitlines())
    return sorted({root / "series", *((root / line).resolve() for line in lines if line)})


@dataclass(frozen=True, kw_only=True)
class Prover:
    base: str  # the base image
    ca_bundle: str
    folder: Path  # for logs
    platform: str = FIRST_PLATFORM  # for which is compiled
    host: str = ""  # platform of this machine, if it is another

    def command(self, group: tuple[str, str, str], capabilities: Sequence[str], output: Path) -> list[str]:
        tensorflow, cuda, clang = group
        arguments = {
            "BASE_IMAGE": self.base,
            "LLVM_VERSION": clang,
            "CUDA_VERSION": cuda,
            "TENSORFLOW_VERSION": tensorflow,
            "COMPUTE_CAPABILITIES": ",".join(capabilities),
            "PROOF_REPORT_ALL": "1",
        }
        argv = ["docker", "buildx", "build", "--file", str(project.locate("docker/Dockerfile")), "--progress", "plain"]
        target = "cross-proof" if self.host else "toolchain-proof"
        argv += ["--target", target, "--output", f"type=local,dest={output}"]
        argv += repeat("--build-arg", (f"{name}={value}" for name, value in arguments.items()))
        argv += ["--secret", f"id=ca,src={self.ca_bundle}"] if self.ca_bundle else []
        return [*argv, str(project.ROOT)]

    def prove(self, group: tuple[str, str, str], capabilities: Sequence[str]) -> Proof:
        """Prove a group of toolchains. Raises BuildError if the container did not come to an end."""
        tensorflow, cuda, clang = group
        name = "-".join((*group, *([self.platform.replace("/", "-")] if self.host else [])))
        log = self.folder / f"{name}.log"
        with files.stage(self.folder, name) as staging:
            done = programs.docker(self.command(group, capabilities, staging.path)).run()
            log.write_text(done.stdout + done.stderr)
            report = staging.path / "toolchain.json"
            if done.returncode or not report.exists():
                raise BuildError(f"the proof of {' '.join(group)} did not come to an end", why=f"see {log}")
            evidence = json.loads(report.read_text())
            # BuildKit answers from its cache where nothing changed: the file then has the time of the proof.
            date = time.strftime("%Y-%m-%d", time.gmtime(report.stat().st_mtime))
        proven = {row["asked"] for row in evidence["capabilities"]}
        names = {capability: f"sm_{capability.replace('.', '')}" for capability in capabilities}
        return Proof(
            tensorflow=tensorflow,
            cuda=cuda,
            clang=evidence["versions"]["clang"],
            date=date,
            digest=digest_inputs(tensorflow, cuda, clang, cross=bool(self.host)),
            platform=self.platform,
            host=self.host,
            proven=tuple(capability for capability, sm in names.items() if sm in proven),
            failed={capability: evidence["failed"][sm] for capability, sm in names.items() if sm in evidence["failed"]},
        )


def join(made: Proof, before: Proof | None) -> Proof:
    """Return a new proof with what an earlier one of the same inputs says of other capabilities."""
    if before is None or (before.digest, before.clang, before.host) != (made.digest, made.clang, made.host):
        return made
    told = {*made.proven, *made.failed}
    return replace(
        made,
        proven=tuple(sorted({*made.proven, *before.proven} - {*made.failed}, key=order)),
        failed={**{name: why for name, why in before.failed.items() if name not in told}, **made.failed},
    )


def prove_all(
    groups: Mapping[tuple[str, str, str], Sequence[str]], prover: Prover, console: Console, *, jobs: int
) -> None:
    """Prove the groups, writing each proof at once; what was proven of other capabilities stays.

    Raises CheckError if a set does not compile, and BuildError.
    """
    files.require_writable(prover.folder)
    made = []
    with ThreadPoolExecutor(jobs) as pool:
        for proof in pool.map(lambda item: prover.prove(*item), groups.items()):
            with files.changing(PATH):
                known = read()
                known[proof.key] = join(proof, known.get(proof.key))
                write(known.values())
            made.append(proof)
            count = f"{len(proof.proven)} of {len(proof.proven) + len(proof.failed)} capabilities"
            console.heading("proof", f"TensorFlow {proof.tensorflow}, CUDA {proof.cuda}, clang {proof.clang}: {count}")
    failed = [f"{' '.join(proof.key[1:])}: {', '.join(proof.failed)}" for proof in made if proof.failed]
    if failed:
        raise CheckError(
            "the table has sets that do not compile",
            why="; ".join(failed),
            remedy="`toolkit matrix --grid` shows why; refuse them in toolkit/versions/table.yaml",
        )
