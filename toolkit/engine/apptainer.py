"""Implements the engine for hosts without Docker: Apptainer runs the training image, from an archive of `docker save`.

https://apptainer.org/docs/user/main/docker_and_oci.html lists how its containers differ from Docker's by default.
"""

import os
import shutil
import signal
import subprocess
from pathlib import Path

from toolkit.base import processes
from toolkit.base.errors import EngineError
from toolkit.base.steps import quote_fields
from toolkit.engine import Environment, Job, Listener
from toolkit.engine.packed_engine import PackedEngine, strip_colors


class ApptainerEngine(PackedEngine):
    name = "apptainer"
    file = "image.sif"
    fatal = "FATAL"
    folders = ("APPTAINER_TMPDIR", "APPTAINER_CACHEDIR")
    prefix = "APPTAINERENV_"

    @staticmethod
    def find_version() -> str:
        try:
            answer = subprocess.run(["apptainer", "--version"], capture_output=True, text=True, check=False)
        except OSError as error:
            path = shutil.which("singularity")
            why = f"{path} is another program, with which this was never tried" if path else "PATH has no such program"
            raise EngineError(
                "there is no apptainer on this machine",
                why=why,
                remedy="load its module or install it, or use --engine host",
            ) from error
        if answer.returncode:
            raise EngineError(
                "apptainer does not run for you",
                why=strip_colors(answer.stderr).strip(),
                remedy="a user must be known to /etc/passwd or the directory of users; or use --engine host",
            )
        if os.getuid() and not _has_namespaces() and not _has_setuid():
            raise EngineError(
                "apptainer cannot run images for you",
                why="this machine gives users no namespaces of their own, and apptainer has no setuid part here",
                remedy="ask an administrator for user namespaces or the package apptainer-suid, or use --engine host",
            )
        return answer.stdout.strip().removeprefix("apptainer version ")

    def pack(self, archive: Path, image: Path) -> tuple[str, ...]:
        return ("apptainer", "build", "--disable-cache", str(image), f"docker-archive:{archive}")

    def enter(self, reference: str, job: Job) -> tuple[str, ...]:
        # Without --no-eval, it would evaluate values as a shell does.
        argv = ["apptainer", "--quiet", "exec", "--containall", "--no-home", "--no-eval", "--pwd", "/"]
        argv += [] if job.network or job.own_network else ["--net", "--network", "none"]
        argv += ["--nv"] if job.gpu else []
        for mount in job.mounts:
            fields = [f"source={mount.source.resolve()}", f"destination={mount.target}"]
            fields += [] if mount.writable else ["ro"]
            argv += ["--mount", quote_fields("type=bind", *fields)]
        return (*argv, reference)

    def run(self, environment: Environment, job: Job, listener: Listener | None = None) -> int:
        code = super().run(environment, job, listener)
        if code == 255:  # of apptainer itself, which could not start the job
            raise EngineError(
                f"apptainer could not run {job.title}",
                why="it has said why",
                remedy="`toolkit doctor` checks apptainer; --engine host needs no container",
            )
        return code

    @staticmethod
    def stop(process: subprocess.Popen[str], *, grace: float) -> None:
        # Only apptainer gets the signal: it hands it on, and the job takes a second one for impatience. It is not
        # killed itself, because its file system, a process of its own, would stay.
        process.terminate()
        try:
            process.wait(grace)
        except subprocess.TimeoutExpired:
            for children in Path(f"/proc/{process.pid}/task").glob("*/children"):
                for child in children.read_text().split():
                    os.kill(int(child), signal.SIGKILL)
            processes.stop(process, grace=10)


def _has_namespaces() -> bool:
    return not subprocess.run(["unshare", "--user", "true"], capture_output=True, check=False).returncode


def _has_setuid() -> bool:
    output = subprocess.run(["apptainer", "buildcfg", "LIBEXECDIR"], capture_output=True, text=True, check=False).stdout
    return Path(output.strip(), "apptainer", "bin", "starter-suid").is_file()
