"""The environment or image that a run names, looked for on this machine, and looked at."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from toolkit import digest, manifest, naming
from toolkit.audit import environment
from toolkit.errors import EngineError, ToolkitError
from toolkit.findings import Finding, absent, check, prefix


def verify(link: Mapping[str, Any], state: Path, *, tensorflow: str) -> list[Finding]:
    """Findings ``parent``, and those of the parent itself below its kind.

    Args:
        link: what the run names: kind, digest and reference.
        state: the folder of environments and manifests.
        tensorflow: version that the run says it used.
    """
    match link.get("kind"):
        case None:
            return [absent("parent", "the run names none: it was started without the toolkit")]
        case "environment":
            return _verify_environment(link, state, tensorflow)
        case "image":
            return _verify_image(link, state, tensorflow)
        case other:
            return [check("parent", False, f"a run is not made in a {other}")]


def find_environment(link: Mapping[str, Any], state: Path) -> Path | None:
    """The folder of the environment with that digest."""
    for path in sorted(state.glob(f"environment-*-{digest.shorten(str(link.get('digest')))}")):
        record = manifest.read(path)
        if record and record.digest == link.get("digest"):
            return path
    return None


def _verify_environment(link: Mapping[str, Any], state: Path, tensorflow: str) -> list[Finding]:
    found = find_environment(link, state)
    if found is None:
        named = Path(str(link.get("reference")))
        other = manifest.read(named)
        if other:
            return [check("parent", False, f"{named} is {other.digest}, and the run names {link.get('digest')}")]
        return [absent("parent", f"environment {link.get('reference')} {link.get('digest')}")]
    record = manifest.read(found)
    held = _read_version((record.parent or {}).get("name", "")) if record else ""
    try:
        findings = prefix("environment", environment.verify(found))
    except ToolkitError as error:
        findings = [check("environment", False, error.what)]
    return [_check_version(f"environment {link.get('digest')} in {found}", held, tensorflow), *findings]


def _verify_image(link: Mapping[str, Any], state: Path, tensorflow: str) -> list[Finding]:
    from toolkit.audit import image
    from toolkit.engine.client import inspect

    identity, reference = str(link.get("digest")), str(link.get("reference"))
    try:
        found = inspect(identity)
        other = None if found else inspect(reference)
    except EngineError as error:
        return [absent("parent", f"image {reference} {identity}: {error.what}")]
    if other:
        return [check("parent", False, f"{reference} is {other.id} now, and the run names {identity}")]
    if found is None:
        return [absent("parent", f"image {reference} {identity}")]
    held = found.labels.get(f"{naming.LABEL_PREFIX}.tensorflow", "")
    return [
        _check_version(f"image {identity}", held, tensorflow),
        *prefix("image", image.verify_reference(identity, state)),
    ]


def _check_version(name: str, held: str, used: str) -> Finding:
    """A parent that holds another TensorFlow than the run used is not its parent."""
    if held and held != used:
        return check("parent", False, f"{name} holds TensorFlow {held}, and the run used {used}")
    return check("parent", True, name)


def _read_version(wheel: str) -> str:
    try:
        return str(parse_wheel_filename(wheel)[1])
    except InvalidWheelFilename:
        return ""
