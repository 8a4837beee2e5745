"""Tells which advisories are known of a TensorFlow."""

from packaging.version import InvalidVersion, Version

from toolkit.errors import IntegrityError
from toolkit.versions import load_table
from toolkit.versions.table import Advisory


def list_advisories(tensorflow: str) -> tuple[Advisory, ...]:
    """Return the published advisories of a version, also of one with a local part, as a graft has.

    Raises IntegrityError if the version table does not know the version, because nothing can be said of it then.
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
