from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.train.service import serving
from tests.unit.train.service.serving import DIGITS, Client, make
from train.service import application
from train.use import network, prediction


@pytest.fixture(scope="session")
def trained(learnt: Path) -> network.Network:
    return network.load(learnt, exact=True)


@pytest.fixture(scope="module")
def client(trained: network.Network) -> Iterator[Client]:
    with serving.running(make(trained)) as found:
        yield found


@pytest.fixture(scope="session")
def expected(trained: network.Network, tmp_path_factory: pytest.TempPathFactory) -> list[list[dict[str, Any]]]:
    """The guesses of `predict` for the digits."""
    folder = tmp_path_factory.mktemp("digits")
    for number, content in enumerate(DIGITS):
        (folder / f"{number:02}.png").write_bytes(content)
    found = prediction.predict(trained, sorted(folder.iterdir()), 10)
    return [[guess.__dict__ for guess in each.guesses] for each in found]


@pytest.fixture(scope="session")
def description() -> dict[str, Any]:
    value: dict[str, Any] = yaml.safe_load(application.DESCRIPTION.read_text())
    return value
