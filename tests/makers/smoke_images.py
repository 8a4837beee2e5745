import json
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path

from toolkit.base import naming
from toolkit.smoke import runner
from toolkit.smoke.runner import Report

HARDENED = ("--read-only", "--tmpfs", "/tmp:mode=1777", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
NOBODY = ("--network", "none", "--user", "4242:4343", "--env", "HOME=/tmp")
NVIDIA = "/opt/venv/lib/python3.11/site-packages/nvidia"


def smoke(image: str, *arguments: str, docker: tuple[str, ...] = ()) -> tuple[int, Report]:
    name = f"toolkit-test-{uuid.uuid4().hex[:8]}"
    argv = ["docker", "run", "--rm", "--name", name, "--label", f"{naming.OWNER_LABEL}=toolkit", *HARDENED, *NOBODY]
    argv += ["--volume", f"{runner.FOLDER}:/opt/toolkit/checks:ro", *docker, "--entrypoint", "python", image]
    try:
        done = subprocess.run(
            [*argv, "/opt/toolkit/checks", "--json", *arguments],
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
    finally:
        subprocess.run(["docker", "rm", "--force", name], capture_output=True, check=False)
    assert done.stdout, done.stderr
    return done.returncode, runner.parse(done.stdout)


def failures(found: Report) -> Mapping[str, str]:
    return {check.id: check.evidence for check in found.failures}


def require_breaks_named(cuda_image: str, tmp_path: Path) -> None:
    """Require that the checks name each fault: cuDNN hidden, a flipped bit, ptxas not executable, other versions."""
    libdevice = f"{NVIDIA}/cuda_nvcc/nvvm/libdevice/libdevice.10.bc"
    argv = ["docker", "run", "--rm", *HARDENED, *NOBODY, "--entrypoint", "cat", cuda_image, libdevice]
    bitcode = bytearray(subprocess.run(argv, capture_output=True, check=True).stdout)
    middle = len(bitcode) // 2
    bitcode[middle] ^= 1
    (tmp_path / "libdevice.bc").write_bytes(bitcode)
    (tmp_path / "ptxas").write_bytes(b"\x7fELF")
    (tmp_path / "ptxas").chmod(0o644)
    broken: tuple[str, ...] = ("--tmpfs", f"{NVIDIA}/cudnn/lib")
    broken += ("--volume", f"{tmp_path / 'libdevice.bc'}:{libdevice}:ro")
    broken += ("--volume", f"{tmp_path / 'ptxas'}:{NVIDIA}/cuda_nvcc/bin/ptxas:ro")
    asked = ("--expect-cuda", "12.5.1", "--expect-cudnn", "8.9.7", "--expect-capability", "5.2", "--device", "gpu")
    only = ("--only", "build", "libraries", "compiler", "device.visible")
    code, found = smoke(cuda_image, *asked, *only, docker=broken)
    assert code == 7
    passed = [check.id for check in found.checks if check.state == "ok"]
    assert passed == ["cpu.instructions", "libraries.system", "tensorflow.import", "build.info"]
    whys = failures(found)
    assert whys["build.cuda"] == "built for cudnn 9, asked for 8.9.7: another major version"
    assert whys["build.capabilities"].startswith("no kernel for compute capability 5.2")
    assert whys["libraries.reachable"] == "TensorFlow does not find libcudnn.so.9, and would drop every GPU"
    assert whys["libraries.load"].startswith("8 of 19 libraries do not load: libcudnn.so.9")
    assert whys["libraries.versions"].startswith("libcudnn.so.9 cannot be asked")
    assert "is not the file that nvidia-cuda-nvcc-cu12 installed" in whys["compiler.libdevice"]
    assert whys["compiler.ptxas"] == "ptxas is not where TensorFlow looks"
    assert "libcuda.so.1, the driver's library, does not load" in whys["device.visible"]
    remedies = {check.id: check.remedy for check in found.failures}
    assert "nvidia-cudnn-cu12" in remedies["libraries.load"]
    json.dumps(found.to_json(), allow_nan=False)
