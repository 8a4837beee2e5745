"""The container engine and what belongs to it."""

import subprocess
from collections.abc import Iterator

from toolkit.errors import ToolkitError
from toolkit.findings import Finding
from toolkit.settings import Settings


def check(settings: Settings) -> Iterator[Finding]:
    """Engine, buildx, compose, base image, NVIDIA runtime."""
    # The docker SDK is slow to load; whoever examines something else need not wait.
    from toolkit.engine.client import connect, select_base

    try:
        client = connect()
    except ToolkitError as error:
        evidence = f"{error.what}: {error.why}"
        advisory = settings.engine != "docker"
        yield Finding(id="engine", state="fail", advisory=advisory, evidence=evidence, remedy=error.remedy)
        return
    version = client.version()
    summary = f"engine {version['Version']}, API {version['ApiVersion']}"
    yield Finding(id="engine", state="ok", evidence=summary, facts={"api": version["ApiVersion"]})
    yield _check_plugin("buildx", "image builds go through it")
    yield _check_plugin("compose", "compose.yaml needs it; the toolkit itself does not")
    try:
        chosen = select_base(client, settings)
        yield Finding(
            id="base-image",
            state="ok",
            evidence=chosen.why or f"{chosen.reference} is at hand",
            facts={"reference": chosen.reference, "id": chosen.identity},
        )
    except ToolkitError as error:
        yield Finding(id="base-image", state="fail", advisory=True, evidence=error.what, remedy=error.remedy)
    runtimes = client.info().get("Runtimes", {})
    if "nvidia" in runtimes:
        yield Finding(id="nvidia-runtime", state="ok", evidence="the engine has the NVIDIA runtime")
    else:
        yield Finding(
            id="nvidia-runtime",
            state="fail",
            advisory=True,
            evidence="the engine has no NVIDIA runtime: containers see no GPU",
            remedy="on a GPU machine, install nvidia-container-toolkit and run `nvidia-ctk runtime configure`",
        )


def _check_plugin(name: str, use: str) -> Finding:
    from toolkit.engine.client import OLDEST_BUILDX, is_old_buildx

    try:
        answer = subprocess.run(["docker", name, "version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        answer = None
    if answer is None or answer.returncode:
        remedy = f"install the docker-{name} plugin"
        return Finding(
            id=name, state="fail", advisory=True, evidence=f"`docker {name}` is missing: {use}", remedy=remedy
        )
    version = answer.stdout.strip()
    if name == "buildx" and is_old_buildx(version):
        remedy = f"install docker-buildx {'.'.join(map(str, OLDEST_BUILDX))} or newer"
        return Finding(id=name, state="fail", advisory=True, evidence=f"{version} is too old: {use}", remedy=remedy)
    return Finding(id=name, state="ok", evidence=version)
