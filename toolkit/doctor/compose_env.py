"""Writes what compose.yaml needs to know of this machine into ``.env``."""

from collections.abc import Mapping
from pathlib import Path

from toolkit.base import files, ownership
from toolkit.base.findings import Finding
from toolkit.engine import Job, Mount
from toolkit.engine.user import SAME, Users, choose
from toolkit.versions.set import Set
from toolkit.versions.sets import find_locked
from toolkit.versions.settings import Settings
from toolkit.versions.table import load_table

FILE = Path(".env")
RUNS = Path("runs")
"""The folder that compose.yaml mounts for runs."""

_OWN = frozenset({"COMPOSE_FILE", "TOOLKIT_BASE_IMAGE", "TOOLKIT_CA_BUNDLE"})
_OWN |= {"TOOLKIT_REQUIREMENTS", "TOOLKIT_TENSORFLOW"}
_OWN |= {"TOOLKIT_UID", "TOOLKIT_GID", "TOOLKIT_USERNS", "TOOLKIT_STATE_ID"}


def compose(findings: list[Finding], settings: Settings) -> dict[str, str]:
    by_id = {finding.id: finding for finding in findings}
    runtime = by_id.get("nvidia-runtime")
    runs = runtime is not None and runtime.state == "ok"
    gpu = _name_gpu_set(by_id["gpu"]) if runs and "gpu" in by_id else {}
    base = by_id.get("base-image")
    users = Users(**by_id["users"].facts) if "users" in by_id else SAME
    user = choose(Job(title="compose", argv=(), mounts=(Mount(source=RUNS, target="/runs", writable=True),)), users)
    uid, _, gid = user.ids.partition(":")
    values = {
        "COMPOSE_FILE": "compose.yaml:compose.gpu.yaml" if gpu else "compose.yaml",
        "TOOLKIT_UID": uid,
        "TOOLKIT_GID": gid,
        "TOOLKIT_USERNS": "host" if user.mapped else "",
        **gpu,
    }
    if base is not None and base.state == "ok":
        values["TOOLKIT_BASE_IMAGE"] = str(base.facts["reference"])
    if settings.ca_bundle:
        values["TOOLKIT_CA_BUNDLE"] = str(Path(settings.ca_bundle).resolve())
    return values


def _name_gpu_set(finding: Finding) -> dict[str, str]:
    """Return the variables that name the locked set of a decision; empty if no published set runs on the cards."""
    facts = finding.facts
    if finding.state != "ok":
        return {}
    locked = find_locked(load_table(), Set.of(facts))
    return {"TOOLKIT_REQUIREMENTS": locked.requirements, "TOOLKIT_TENSORFLOW": locked.tensorflow} if locked else {}


def claim_state(settings: Settings) -> dict[str, str]:
    """Return the variable by which compose's containers get the label of the state folder, which gets an id."""
    return {"TOOLKIT_STATE_ID": ownership.claim(Path(settings.state))}


def write(values: Mapping[str, str], path: Path = FILE) -> None:
    """Replace the toolkit's variables in the file; keep all other lines. Raises PreflightError if it is read-only."""
    with files.changing(path):
        kept = path.read_text().splitlines() if path.is_file() else []
        kept = [line for line in kept if line.partition("=")[0].strip() not in _OWN]
        files.write_atomically(path, "\n".join([*kept, *(f"{key}={value}" for key, value in values.items())]) + "\n")


def prepare_outputs(runs: Path = RUNS) -> None:
    """Make the folder of runs, or raise PreflightError. The engine would make it as root: no container could write."""
    files.require_writable(runs)
