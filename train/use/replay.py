"""Repeats stretches of a finished run: ``python -m train.use.replay RUN FIRST:LAST,… EVERY ARGUMENT…``.

The arguments are those of the training job. It prints one line of JSON: for each stretch the leaves that it gave, one
each EVERY steps, where it also leaves a checkpoint, and at its end. The toolkit runs this file with the training job of
the run's own environment, which may be of an older revision.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from train.cli import parse
from train.errors import ToolkitError
from train.record.reader import read_record
from train.system import output

UNSUPPORTED: Final = 3
"""The exit code if the training job is of a version that cannot repeat stretches."""


def main(argv: Sequence[str]) -> int:
    """Repeat stretches, and return the exit code."""
    try:
        from train.run.job import replay
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "train":
            raise
        return UNSUPPORTED
    try:
        config = parse(argv[3:])
        spans = [(int(first), int(last)) for first, _, last in (span.partition(":") for span in argv[1].split(","))]
        # These options change what is kept and shown, and no bit of the result.
        config = replace(config, audit_every=int(argv[2]), checkpoint_every=0, keep=1, profile=None, log_to=())
        output.show_json(list(replay(config, read_record(Path(argv[0])), spans, close_network=True)))
    except ToolkitError as error:
        output.say(f"error: {error}")
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
