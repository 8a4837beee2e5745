"""Prints as JSON what the training job with these arguments would record about the machine, TensorFlow and the data."""

import sys
from collections.abc import Sequence

from train.command_line import parse
from train.data import load
from train.errors import ToolkitError
from train.step import runtime
from train.system import output


def main(argv: Sequence[str]) -> int:
    try:
        config = parse(argv)
        facts = runtime.prepare(runtime.choose_threads(config, None), kernels=config.kernels)
        facts |= {"batch_size": config.batch_size, "data_sha256": load(config).digest}
    except ToolkitError as error:
        output.say(f"error: {error}")
        return error.exit_code
    output.show_json(facts)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
