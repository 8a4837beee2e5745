"""Repeats stretches of a finished run: ``python -m train.use.replay RUN FIRST:LAST,… EVERY ARGUMENT…``.

The arguments are those of the training job. It prints one line of JSON: for each stretch the leaves that it gave, one
each EVERY steps, where it also leaves a checkpoint, and at its end.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from train.cli import parse
from train.errors import TrainError
from train.record.reader import read_record


def main(argv: Sequence[str]) -> int:
    """Repeat stretches, and return the exit code."""
    try:
        config = parse(argv[3:])
        spans = [(int(first), int(last)) for first, _, last in (span.partition(":") for span in argv[1].split(","))]
        from train.run.job import replay

        # What a run keeps and shows besides changes none of its bits.
        config = replace(config, audit_every=int(argv[2]), checkpoint_every=0, keep=1, profile=None, log_to=())
        print(json.dumps(list(replay(config, read_record(Path(argv[0])), spans, close_network=True))))
    except TrainError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
