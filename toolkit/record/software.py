"""Tells which TensorFlow a wheel, an environment, an image or a run has, and which advisories are known of it."""

from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from toolkit import manifest, naming
from toolkit.errors import IntegrityError
from toolkit.record import Target, attestation, verify_wheel
from toolkit.versions import load_table
from toolkit.versions.table import Advisory
from train.record import reader


def find_tensorflow(target: Target, state: Path) -> str:
    """Return the version of TensorFlow that a thing has, by its record. Raises IntegrityError: the record says none."""
    folder = attestation.find_folder(target, state)
    if target.kind == "run":
        return str(reader.read_record(folder).environment.get("tensorflow"))
    if target.kind == "wheel":
        return str(verify_wheel.read_record(folder).facts["lock"]["spec"]["tensorflow"])
    record = manifest.read(folder)
    labels = record.facts.get("labels", {}) if record else {}
    if found := isinstance(labels, dict) and labels.get(f"{naming.LABEL_PREFIX}.tensorflow"):
        return str(found)
    for link in verify_wheel.flatten(record.parent if record else None):
        try:
            return str(parse_wheel_filename(str(link.get("name")))[1])
        except InvalidWheelFilename:
            continue
    raise IntegrityError(f"the record in {folder} does not say which TensorFlow it has", remedy="make it again")


def list_advisories(tensorflow: str) -> tuple[Advisory, ...]:
    """Return the published advisories of a version, also of one with a local part, as a graft has.

    Raises IntegrityError: the version table does not know the version, so that nothing can be said of it.
    """
    table = load_table()
    try:
        version = Version(tensorflow).public
    except InvalidVersion:
        version = tensorflow
    if version not in table.tensorflow_rows and version not in table.incomplete:
        raise IntegrityError(
            f"the version table does not know TensorFlow {tensorflow}, so its advisories are not known",
            remedy="`toolkit matrix --refresh` looks for new versions and advisories",
        )
    return table.list_advisories(version)
