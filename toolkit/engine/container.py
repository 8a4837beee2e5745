"""One container from creation to removal, whatever happens in between."""

import sys
import threading
import uuid
from typing import Any

import docker
from docker.errors import NotFound
from docker.types import DeviceRequest

from toolkit import naming
from toolkit.engine.client import translating_errors
from toolkit.engine.job import Completed, Job, Mount
from toolkit.engine.ownership import container_user, lending
from toolkit.errors import CheckError, EngineError

SHARED_MEMORY = "1g"
TEMPORARY = {"/tmp": "rw,nosuid,nodev,size=2g,mode=1777"}  # noqa: S108 - a tmpfs inside the container
PROCESSES = 4096


def describe(job: Job, *, image: str, terminal: bool) -> dict[str, Any]:
    """The arguments of ``containers.create``: a job with everything taken away that it does not need. Pure."""
    return {
        "image": image,
        "name": f"toolkit-{job.title}-{uuid.uuid4().hex[:8]}",
        "entrypoint": ["python"],
        "command": [part.target if isinstance(part, Mount) else part for part in job.argv],
        "labels": {naming.OWNER_LABEL: "toolkit"},
        "user": container_user(),
        "environment": dict(job.environment),
        "volumes": {
            str(mount.source.resolve()): {"bind": mount.target, "mode": "rw" if mount.writable else "ro"}
            for mount in job.mounts
        },
        "network_mode": "bridge" if job.network else "none",
        "read_only": True,
        "tmpfs": TEMPORARY,
        "shm_size": SHARED_MEMORY,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "pids_limit": PROCESSES,
        "init": True,
        "tty": terminal,
        "device_requests": [DeviceRequest(count=-1, capabilities=[["gpu"]])] if job.gpu else None,
    }


def run(client: docker.DockerClient, job: Job, *, image: str) -> Completed:
    """Create, start, follow, wait, remove.

    Raises:
        EngineError: the engine refused or went away.
        CheckError: the job outlived its deadline.
    """
    terminal = job.terminal and not job.capture and sys.stderr.isatty()
    with lending(mount.source for mount in job.mounts if mount.writable), translating_errors(f"running {job.title}"):
        container = client.containers.create(**describe(job, image=image, terminal=terminal))
        overdue = threading.Event()
        watch = threading.Timer(job.deadline, _expire, (container, overdue)) if job.deadline else None
        try:
            stream: Any = container.attach(stream=True, logs=True, demux=not terminal)  # type: ignore[call-overload]
            container.start()
            if watch:
                watch.start()
            output = _follow(stream, capture=job.capture, terminal=terminal)
            code = int(container.wait(timeout=job.grace)["StatusCode"])
        except KeyboardInterrupt:
            _ask_to_stop(container, job)
            raise
        finally:
            if watch:
                watch.cancel()
            _remove(container)
    if overdue.is_set():
        raise CheckError(f"{job.title} did not end within {job.deadline:.0f} s and was stopped")
    return Completed(exit_code=code, output=output)


def _follow(stream: Any, *, capture: bool, terminal: bool) -> str:
    captured: list[bytes] = []
    for chunk in stream:
        out, err = (chunk, None) if terminal else chunk
        if out and capture:
            captured.append(out)
        elif out:
            target = sys.stderr if terminal else sys.stdout
            target.buffer.write(out)
            target.flush()
        if err:
            sys.stderr.buffer.write(err)
            sys.stderr.flush()
    return b"".join(captured).decode(errors="replace")


def _ask_to_stop(container: Any, job: Job) -> None:
    with translating_errors(f"stopping {job.title}"):
        container.stop(timeout=int(job.grace))


def _expire(container: Any, overdue: threading.Event) -> None:
    overdue.set()
    container.kill()


def _remove(container: Any) -> None:
    try:
        container.remove(force=True, v=True)
    except NotFound:
        return
    except Exception as error:
        raise EngineError(
            f"the container {container.name} could not be removed",
            why=str(error)[:300],
            remedy="`toolkit clean` removes it once the engine answers again",
        ) from error
