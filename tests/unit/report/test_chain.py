import json
import os
import re
from pathlib import Path

import pytest

from tests.unit.records import maker, signed
from tests.unit.report.conftest import Place
from tests.unit.report.reading import Element, parse
from toolkit import records, report
from toolkit.base import digest, signing
from toolkit.report.chain import PageContext
from toolkit.report.page_model import Chain


def follow(place: Place) -> Chain:
    found = place.describe(place.run).chain
    assert isinstance(found, Chain)
    return found


def states(found: Chain) -> dict[str, str]:
    return {link.name: link.state for link in found.links}


def test_each_link_has_its_digest_state_and_record(place: Place) -> None:
    found = follow(place)
    value = json.loads((place.run / "manifest.json").read_text())
    assert states(found) == dict.fromkeys(["weights", "run", "environment", "smoke", "wheel", "lock"], "ok")
    digests = {link.name: link.digest for link in found.links}
    assert digests["weights"] == value["weights_sha256"]
    assert digests["run"] == digest.read_file(place.run / "manifest.json").removeprefix("sha256:")
    assert f"sha256:{digests['environment']}" == value["parent"]["digest"]
    assert f"sha256:{digests['lock']}" == maker.lock_digest()
    documents = {link.name: [each.name for each in link.documents] for link in found.links}
    assert documents["run"] == ["manifest.json"]
    assert documents["lock"] == ["cpu.txt"]
    assert next(link for link in found.links if link.name == "run").documents[0].text == (
        (place.run / "manifest.json").read_text()
    )


@pytest.mark.parametrize(
    ("damage", "link", "said"),
    [
        ("weights", "weights", "in the manifest"),
        ("metrics", "run", "accuracy of the last epoch"),
        ("config", "run", "has another seed"),
        ("package", "environment", "are changed or gone"),
        ("smoke", "smoke", "0 passed, 1 failed"),
        ("wheel", "wheel", "the manifest names sha256:8"),
    ],
)
def test_a_broken_link_is_shown_as_fail(place: Place, damage: str, link: str, said: str) -> None:
    environment = next(place.state.glob("environment-*"))
    match damage:
        case "weights":
            place.change(weights_sha256="0" * 64)
        case "metrics":
            path = place.run / "metrics.csv"
            *lines, last = path.read_text().splitlines()
            path.write_text("\n".join([*lines, last.replace(last.split(",")[6], "1.0")]) + "\n")
        case "config":
            path = place.run / "config.yaml"
            path.write_text(path.read_text().replace("seed: 3", "seed: 4"))
        case "package":
            next(environment.glob("venv/**/tensorflow.py")).write_text("VERSION = '2.18.0'\n")
        case "smoke":
            changed = {"checks": [signed.CHECK | {"result": "fail"}], "verdict": "fail"}
            (environment / signed.SMOKE).write_text(json.dumps(signed.REPORT | changed))
        case "wheel":
            other = {"digest": "sha256:" + "8" * 64}
            maker.change_json(environment / "manifest.json", lambda value: value["parent"].update(other))
    found = follow(place)
    assert {name for name, state in states(found).items() if state == "fail"} == {link}
    root = parse(place.write().read_text(encoding="utf-8"))
    (item,) = root.find("ol", class_="chain")[0].find("li", class_="fail")
    assert item.find("span", class_="word")[0].text == "fail"
    assert said in item.text
    (short,) = [each for each in root.find("nav", class_="strip")[0].find("a") if "fail" in each.attributes["class"]]
    assert short.text == f"{link}: fail"
    (opened,) = [each for each in item.find("details") if "open" in each.attributes]
    assert "finding" in opened.text


@pytest.mark.parametrize("kind", ["environment", "image", "strange\x1b[1m"])
def test_a_record_may_name_itself_or_what_nobody_knows(place: Place, kind: str) -> None:
    path = next(place.state.glob("environment-*")) / "manifest.json"
    value = json.loads(path.read_text())
    named = value["digest"] if kind == "environment" else "sha256:" + "6" * 64
    maker.change_json(path, lambda value: value.update(parent={**value["parent"], "kind": kind, "digest": named}))
    shown = [link.name for link in follow(place).links]
    assert shown == ["weights", "run", "environment", "smoke", kind.replace("\x1b", "\ufffd"), "lock"]
    assert place.write().exists()


def read(world: signed.World, target: Path, *trust: str) -> tuple[Chain, Element]:
    policy = records.read_policy(Path(world.root / name) for name in trust)
    made, text = report.compose([str(target)], PageContext(state=signed.STATE, policy=policy))
    assert isinstance(made.chain, Chain)
    return made.chain, parse(text)


def test_signatures_are_named(world: signed.World) -> None:
    found, root = read(world, world.run, "policy.yaml")
    said = {link.name: link.signature for link in found.links if link.signature}
    assert {name: text.partition(" ")[0] for name, text in said.items()} == {
        "run": "trainer", "environment": "builder", "smoke": "checker", "wheel": "builder"
    }  # fmt: skip
    assert [link.name for link in found.links] == ["weights", "run", "environment", "smoke", "wheel", "plan", "lock"]
    assert re.search(r"trainer \(key [0-9a-f]{8}\) signed", root.find("ol", class_="chain")[0].text)


def test_a_removed_signature_is_shown_and_the_record_is_read_no_further(world: signed.World) -> None:
    signing.discard(world.run)
    found, _ = read(world, world.run, "policy.yaml")
    run = next(link for link in found.links if link.name == "run")
    assert run.signed == "absent"
    assert "is not signed" in run.signature
    assert "read no further" in run.findings[0].evidence


def test_a_page_of_a_wheel_says_what_it_holds(world: signed.World) -> None:
    _, root = read(world, world.wheel)
    assert root.find("p", class_="kind")[0].text == "Wheel"
    assert "sm_75" in root.find("section", id="content")[0].text
    sums = root.find("section", id="files")[0]
    assert world.archive.name in [each.text for each in sums.find("th", scope="row")]
    signed.flip(world.archive)
    found, _ = read(world, world.wheel)
    assert found.links[0].state == "fail"


@pytest.mark.parametrize("kind", ["pipe", "hole of 1 TB"])
def test_a_document_that_cannot_be_read_is_shown_with_the_reason(place: Place, kind: str) -> None:
    path = max((place.run / "checkpoints").glob("*.json"))
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.touch()
        os.truncate(path, 1 << 40)
    weights = next(link for link in follow(place).links if link.name == "weights")
    assert "cannot be read" in weights.documents[0].text


@pytest.mark.parametrize("kind", ["wheel", "environment", "image", "report"])
def test_other_things_have_pages(world: signed.World, kind: str) -> None:
    target = getattr(world, kind)
    found, root = read(world, target, "policy.yaml")
    assert {link.state for link in found.links if link.documents} == {"ok"}
    assert [link.name for link in found.links if link.state != "ok"] == (["smoke"] if kind == "image" else [])
    assert root.find("h1")[0].text
    assert all(each.attributes["href"].startswith("#") for each in root.find("a"))
