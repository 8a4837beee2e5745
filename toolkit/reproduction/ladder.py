"""The links behind a run, each with the rung of the ladder that it gives and whether it is the same again."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from toolkit.audit import origins
from toolkit.audit.record import RunRecord
from toolkit.findings import Finding, State
from toolkit.reproduction.comparison import Comparison

RUNGS: Final = {"weights": "R4", "image": "R3", "environment": "R1", "wheel": "R3", "packages": "R1", "lock": "R0"}
"""An environment's digest is that of its plan: the same packages by hash, but not the bytes of a folder."""


WORDS: Final = {"ok": "same", "fail": "other", "absent": "unknown"}
"""What a finding about a link says of it."""


def describe(link: Finding) -> dict[str, Any]:
    """Return a link as the JSON object of `toolkit reproduce`."""
    return {"name": link.id, "rung": link.facts["rung"], "state": WORDS[link.state], "evidence": link.evidence}


def walk(then: RunRecord, now: RunRecord, comparison: Comparison) -> list[Finding]:
    """From the weights back to the lock."""
    evidence = comparison.found if comparison.equal else f"{comparison.found}, was {comparison.recorded}"
    return [
        _compare("weights", comparison.equal, evidence),
        *_compare_code(then.parent, now.parent),
        *_compare_chains(then.parent, now.parent),
        _compare_packages(then.value.get("software", {}), now.value.get("software", {})),
    ]


def rank(links: list[Finding]) -> str:
    """The rung that was reached: R4 by the weights, else the highest whose link is the same."""
    same = [link.facts["rung"] for link in links if link.state == "ok" and link.facts["rung"]]
    return max(same, default="below R0")


def _compare_code(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Finding]:
    """The training job's own files; of an image they are a part, and its digest speaks for them."""
    if then.get("kind") == now.get("kind") == "image":
        return
    before, after = then.get("code"), now.get("code")
    unknown = f"not known of the {'second' if before else 'first'} run"
    yield _compare_digests("training job", before, after, unknown)


def _compare_chains(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Finding]:
    before = {link["kind"]: link for link in origins.flatten(then)}
    after = {link["kind"]: link for link in origins.flatten(now)}
    for kind in ("image", "environment", "wheel", "lock"):
        if kind in before or kind in after:
            first, second = (side.get(kind, {}).get("digest") for side in (before, after))
            yield _compare_digests(kind, first, second, f"only {'then' if first else 'now'}: {first or second}")


def _compare_packages(then: Mapping[str, str], now: Mapping[str, str]) -> Finding:
    changed = [
        f"{name} {now.get(name, 'none')}, was {then.get(name, 'none')}"
        for name in sorted(then.keys() | now.keys())
        if then.get(name) != now.get(name)
    ]
    text = ", ".join(changed) or ", ".join(f"{name} {version}" for name, version in now.items())
    return _compare("packages", not changed, text)


def _compare_digests(name: str, before: str | None, after: str | None, unknown: str) -> Finding:
    if not (before and after):
        return _make(name, "absent", unknown)
    return _compare(name, before == after, after if before == after else f"{after}, was {before}")


def _compare(name: str, same: bool, evidence: str) -> Finding:
    return _make(name, "ok" if same else "fail", evidence)


def _make(name: str, state: State, evidence: str) -> Finding:
    # Only other weights or numbers fail the command; a link that differs explains them.
    return Finding(
        id=name, state=state, evidence=evidence, advisory=name != "weights", facts={"rung": RUNGS.get(name, "")}
    )
