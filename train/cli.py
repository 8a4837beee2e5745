import sys
from collections.abc import Callable, Sequence
from typing import Any

from train.cluster.tf_config import read_cluster
from train.command_line import HELP, call, find_value, make_app, parse
from train.config.configuration import TrainConfig
from train.errors import explaining_failures
from train.record.reader import COMPLETE, find_result
from train.system import output
from train.system.output import translate
from train.system.program import explain


def main(argv: Sequence[str] | None = None, *, close_network: bool = False) -> int:
    """Run the job; returns the exit code. See ``train.run.job.run`` for `close_network`."""
    argv = sys.argv[1:] if argv is None else argv
    as_json = find_value(argv, "--log-format") == "json"
    return _explain(lambda: _train(argv, close_network=close_network), as_json=as_json)


def _train(argv: Sequence[str], *, close_network: bool) -> int:
    config, cluster = parse(argv), read_cluster()
    result = find_result(config) if not cluster or cluster.is_chief else None
    if result is None:
        from train.run.job import run

        number = f"-{cluster.index}" if cluster and not cluster.is_chief else ""
        with explaining_failures(config.run_dir / f"failure{number}.txt"):
            result = run(config, close_network=close_network)
    else:
        if cluster:
            from train.cluster.workers import dismiss

            dismiss(cluster)
        if config.report_broken or config.strict_data:
            from train.data import load

            load(config)  # loading writes the report, and refuses data if files would be left out
        if config.progress != "quiet":
            _say(f"{config.run_dir} {COMPLETE}", as_json=config.log_format == "json")
    if config.json and result:
        output.show_json(result)
    elif config.progress != "quiet" and result:
        output.show(translate(_describe(config, result)))
    return 0


def run_command(function: Callable[..., int], name: str, argv: Sequence[str]) -> int:
    """Run a command by its function and arguments; prints its errors, and returns the exit code."""
    app = make_app(function, context_settings=HELP)
    return _explain(lambda: int(call(app, argv, f"python -m train {name}") or 0))


def _explain(command: Callable[[], int], *, as_json: bool = False) -> int:
    return explain(command, lambda text: _say(text, as_json=as_json))


def _say(text: str, *, as_json: bool) -> None:
    text = translate(text)
    output.say_event("message", text=text) if as_json else output.say(text)


def _describe(config: TrainConfig, manifest: dict[str, Any]) -> str:
    result = manifest["result"]
    return (
        f"{config.dataset} by {manifest['config']['model']}: test accuracy {result['test_accuracy']:.2%}, "
        f"{result['epochs']} epochs, {result['steps']} steps in {result['train_seconds']:.0f} s\n"
        f"{config.run_dir / 'curves.png'}"
    )
