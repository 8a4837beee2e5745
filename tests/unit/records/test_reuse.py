"""What `up --trust` reuses of what it finds."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.unit.records import maker, signed
from tests.unit.records.signed import World, change_envelope, flip
from toolkit.base import keys, manifest, signing
from toolkit.cli import app
from toolkit.engine import Environment, Job, Listener, host
from toolkit.engine.host import HostEngine

OPTIONS = (
    *maker.OPTIONS,
    *maker.STOCK,
    "--seed",
    "3",
    "--log-every",
    "5",
    "--engine",
    "host",
    "--tensorflow",
    "2.19.0",
)
TRUST = ("--trust", "policy.yaml")


class Chain:
    """The signed chain, `up`, and what it makes anew: the environment, the smoke report."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.made: list[str] = []

    def up(self, *words: str) -> Result:
        self.made.clear()
        return CliRunner().invoke(app, ["up", *OPTIONS, *words])

    @property
    def report(self) -> Path:
        (found,) = (path for path in self.world.environment.glob("smoke-*.json") if path.name != signed.SMOKE)
        return found


@pytest.fixture
def chain(world: World, monkeypatch: pytest.MonkeyPatch) -> Chain:
    """The chain, in which `up` finds all that it needs."""
    found = Chain(world)

    def answer(_engine: HostEngine, _environment: Environment, job: Job, listener: Listener) -> int:
        found.made.append(job.title)
        listener(json.dumps({"report": signed.REPORT}))
        return 0

    monkeypatch.setattr(HostEngine, "run", answer)
    monkeypatch.setattr(host, "_make", lambda plan, *_: found.made.append("environment"))
    done = found.up(*TRUST)
    assert done.exit_code == 0, done.output
    assert found.made == ["smoke"], "no report of these checks was there"
    world.sign(found.report, "checker")
    return found


def test_what_is_signed_is_reused(chain: Chain) -> None:
    done = chain.up(*TRUST)
    assert done.exit_code == 0, done.output
    assert chain.made == []
    assert "made anew" not in done.output


def test_without_trust_nothing_is_asked(chain: Chain) -> None:
    for place in (chain.world.environment, chain.report, chain.world.run):
        signing.locate(place).unlink()
    done = chain.up()
    assert done.exit_code == 0, done.output
    assert chain.made == []


def test_a_report_is_signed_by_who_ran_the_checks(chain: Chain) -> None:
    """A report that was written by hand would be reused, and signed."""
    keys.make(chain.world.root / "own")
    done = chain.up("--sign", "own")
    assert done.exit_code == 0, done.output
    assert chain.made == ["smoke"]


def sign_by(who: str, find: Callable[[Chain], Path]) -> Callable[[Chain], object]:
    return lambda chain: chain.world.sign(find(chain), who)


def strip(find: Callable[[Chain], Path]) -> Callable[[Chain], object]:
    return lambda chain: signing.locate(find(chain)).unlink()


def find_environment(chain: Chain) -> Path:
    return chain.world.environment


def find_report(chain: Chain) -> Path:
    return chain.report


ANEW: dict[str, tuple[Callable[[Chain], object], list[str], str]] = {
    "environment not signed": (strip(find_environment), ["environment"], "the environment is not signed"),
    "environment of a stranger": (sign_by("stranger", find_environment), ["environment"], "which is not trusted"),
    "package changed": (
        lambda chain: flip(next(chain.world.environment.rglob("tensorflow.py"))),
        ["environment", "smoke"],  # the report is about the environment, and is signed with it
        "files: 1 of 1 are changed",
    ),
    "report not signed": (strip(find_report), ["smoke"], "the report is not signed"),
    "report changed": (
        lambda chain: maker.change_json(chain.report, lambda value: value.update(python="3.12")),
        ["smoke"],
        "is not what was signed",
    ),
    "signature of the report changed": (
        lambda chain: change_envelope(chain.report, lambda value: value["signatures"][0].update(sig="AAAA")),
        ["smoke"],
        "the signature is not that of checker",
    ),
}


@pytest.mark.parametrize("name", ANEW)
def test_what_is_not_signed_is_made_anew(chain: Chain, name: str) -> None:
    spoil, made, message = ANEW[name]
    spoil(chain)
    done = chain.up(*TRUST)
    assert done.exit_code == 0, done.output
    assert chain.made == made
    assert "is made anew: " in done.output
    assert message in done.output


def test_an_environment_of_another_digest_is_made_anew(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an image that has got the name of the one in the signed record."""
    find = HostEngine.find
    monkeypatch.setattr(HostEngine, "find", lambda *given: replace(find(*given), digest=signed.OTHER))  # type: ignore[type-var]
    done = chain.up(*TRUST)
    assert done.exit_code == 0, done.output
    assert chain.made[0] == "environment"
    assert f"not of {signed.OTHER}" in done.output


RUNS: dict[str, tuple[Callable[[World], object], int, str]] = {
    "not signed": (lambda world: signing.locate(world.run).unlink(), 8, "the run is not signed"),
    "accuracy changed": (
        lambda world: maker.change_json(
            world.run / manifest.FILE, lambda value: value["result"].update(test_accuracy=1.0)
        ),
        8,
        "manifest.json is not what was signed",
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_finished_run_that_is_not_signed_is_refused_before_anything_is_made(chain: Chain, name: str) -> None:
    spoil, code, message = RUNS[name]
    spoil(chain.world)
    signing.locate(chain.world.environment).unlink()
    done = chain.up(*TRUST)
    assert done.exit_code == code, done.output
    assert message in done.output
    assert chain.made == []


def test_a_wheel_that_is_named_is_asked_for_its_signature(chain: Chain) -> None:
    words = (*TRUST, "--wheel", str(signed.WHEEL), "--cuda", "12.6.1", "--cudnn", "9.5.0", "--dry-run")
    done = chain.up(*words)
    assert done.exit_code == 0, done.output
    signing.locate(chain.world.wheel).unlink()
    done = chain.up(*words)
    assert done.exit_code == 8, done.output
    assert "the wheel is not signed" in done.output
    copy = str(shutil.copy(chain.world.archive, chain.world.root))
    alone = chain.up(*TRUST, "--wheel", copy, "--dry-run")
    assert (alone.exit_code, "the wheel is not signed" in alone.output) == (8, True)
