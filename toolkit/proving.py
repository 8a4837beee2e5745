"""Proves every toolchain that the version table calls possible: one container for each TensorFlow, CUDA and clang."""

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from toolkit import files, project
from toolkit.console import Console
from toolkit.errors import BuildError
from toolkit.plan import repeat
from toolkit.versions import proofs
from toolkit.versions.proofs import Proof


@dataclass(frozen=True, kw_only=True)
class Prover:
    base: str  # the base image
    ca_bundle: str
    folder: Path  # for logs

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
        argv += ["--target", "toolchain-proof", "--output", f"type=local,dest={output}"]
        argv += repeat("--build-arg", (f"{name}={value}" for name, value in arguments.items()))
        argv += ["--secret", f"id=ca,src={self.ca_bundle}"] if self.ca_bundle else []
        return [*argv, str(project.ROOT)]

    def prove(self, group: tuple[str, str, str], capabilities: Sequence[str]) -> Proof:
        """Raises BuildError: the container did not come to an end."""
        tensorflow, cuda, clang = group
        name = "-".join(group)
        log = self.folder / f"{name}.log"
        with files.stage(self.folder, name) as staging:
            done = subprocess.run(
                self.command(group, capabilities, staging.path), capture_output=True, text=True, check=False
            )
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
            digest=proofs.digest_inputs(tensorflow, cuda, clang),
            proven=tuple(capability for capability, sm in names.items() if sm in proven),
            failed={capability: evidence["failed"][sm] for capability, sm in names.items() if sm in evidence["failed"]},
        )


def prove_all(
    groups: Mapping[tuple[str, str, str], Sequence[str]], prover: Prover, console: Console, *, jobs: int
) -> list[Proof]:
    """Prove the groups, and write each proof as soon as it is there. Raises what :meth:`Prover.prove` raises."""
    files.require_writable(prover.folder)
    known, made = proofs.read(), []
    with ThreadPoolExecutor(jobs) as pool:
        for proof in pool.map(lambda item: prover.prove(*item), groups.items()):
            known[proof.place] = proof
            proofs.write(known.values())
            made.append(proof)
            count = f"{len(proof.proven)} of {len(proof.proven) + len(proof.failed)} capabilities"
            console.heading("proof", f"TensorFlow {proof.tensorflow}, CUDA {proof.cuda}, clang {proof.clang}: {count}")
    return made
