"""One container from creation to removal, whatever happens in between."""

import json
import sys
import uuid
from contextlib import suppress
from typing import Any, TextIO

import docker
from docker.errors import NotFound
from docker.types import DeviceRequest
from docker.types import Mount as DockerMount

from toolkit import naming
from toolkit.engine.client import translating_errors
from toolkit.engine.deadline import Deadline
from toolkit.engine.job import Job, Listener, Mount
from toolkit.engine.ownership import container_user, give_to_container
from toolkit.errors import EngineError

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
        "labels": {naming.OWNER_LABEL: "toolkit", naming.JOB_LABEL: job.title},
        "user": container_user(),
        "environment": {**job.environment, **_name_mounts(job)},
        # Not the short form: a colon in a path would end it.
        "mounts": [
            DockerMount(mount.target, str(mount.source.resolve()), type="bind", read_only=not mount.writable)
            for mount in job.mounts
        ],
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


def _name_mounts(job: Job) -> dict[str, str]:
    """Return the variable by which messages of the job name files as its user does."""
    mounts = [*job.mounts, *(part for part in job.argv if isinstance(part, Mount))]
    names = {mount.target: str(mount.source) for mount in mounts}
    return {naming.PATHS_VARIABLE: json.dumps(names, ensure_ascii=False, sort_keys=True)} if names else {}


def run(client: docker.DockerClient, job: Job, *, image: str, listener: Listener | None = None) -> int:
    """Create, start, follow, wait, remove; returns the exit code.

    Raises:
        EngineError: the engine refused or went away.
        CheckError: the job outlived its deadline.
    """
    # A terminal has one stream: what the job would print to its standard output is drawn on ours too, not listened to.
    terminal = job.terminal and sys.stderr.isatty()
    give_to_container(job.mounts)
    with translating_errors(f"running {job.title}"):
        asked = describe(job, image=image, terminal=terminal)
        overdue = Deadline(job.deadline, lambda: client.api.kill(asked["name"]))
        try:
            container = client.containers.create(**asked)
            stream: Any = container.attach(stream=True, logs=True, demux=not terminal)  # type: ignore[call-overload]
            container.start()
            with overdue:
                _follow(stream, terminal=terminal, listener=listener)
                code = int(container.wait(timeout=job.grace)["StatusCode"])
        except KeyboardInterrupt:
            with suppress(NotFound):
                client.api.stop(asked["name"], timeout=int(job.grace))
            raise
        finally:
            # By its name, which was known before it was made: an interrupt may fall between making and knowing.
            _remove(client, asked["name"])
    overdue.check(job.title)
    return code


def _follow(stream: Any, *, terminal: bool, listener: Listener | None) -> None:
    """Pass on what the job prints, until it closes its output."""
    rest = b""
    for chunk in stream:
        out, err = (None, chunk) if terminal else chunk
        if out and listener:
            *lines, rest = (rest + out).split(b"\n")
            for line in lines:
                listener(line.decode(errors="replace"))
        elif out:
            _write(sys.stdout, out)
        if err:
            _write(sys.stderr, err)
    if rest and listener:
        listener(rest.decode(errors="replace"))


def _write(target: TextIO, data: bytes) -> None:
    target.buffer.write(data)
    target.flush()


def _remove(client: docker.DockerClient, name: str) -> None:
    try:
        client.api.remove_container(name, force=True, v=True)
    except NotFound:
        return
    except Exception as error:
        raise EngineError(
            f"the container {name} could not be removed",
            why=str(error)[:300],
            remedy="`toolkit clean` removes it once the engine answers again",
        ) from error
