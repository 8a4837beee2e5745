"""The links behind a run, each with the rung of the ladder that it gives and whether it is the same again."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from toolkit.audit import origins
from toolkit.audit.record import RunRecord
from toolkit.reproduction.comparison import Comparison

State = Literal["same", "other", "unknown"]

RUNGS: Final = {"weights": "R4", "image": "R3", "environment": "R1", "wheel": "R3", "packages": "R1", "lock": "R0"}
"""An environment's digest is that of its plan: the same packages by hash, but not the bytes of a folder."""


@dataclass(frozen=True, kw_only=True)
class Link:
    """One link of the chain, then and now.

    Attributes:
        name: what it is.
        rung: of the ladder of reproducibility, which holds where it is the same.
        state: whether it is; ``unknown`` where the run or this machine does not say.
        evidence: what was compared.
    """

    name: str
    rung: str
    state: State
    evidence: str


def walk(then: RunRecord, now: RunRecord, comparison: Comparison) -> list[Link]:
    """From the weights back to the lock."""
    evidence = comparison.found if comparison.equal else f"{comparison.found}, was {comparison.recorded}"
    return [
        Link(name="weights", rung=RUNGS["weights"], state=_judge(comparison.equal), evidence=evidence),
        *_compare_code(then.parent, now.parent),
        *_compare_chains(then.parent, now.parent),
        _compare_packages(then.value.get("software", {}), now.value.get("software", {})),
    ]


def rank(links: list[Link]) -> str:
    """The rung that was reached: R4 by the weights, else the highest whose link is the same."""
    same = [link.rung for link in links if link.state == "same" and link.rung]
    return max(same, default="below R0")


def _compare_code(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Link]:
    """The training job's own files; of an image they are a part, and its digest speaks for them."""
    if then.get("kind") == now.get("kind") == "image":
        return
    before, after = then.get("code"), now.get("code")
    state: State = _judge(before == after) if before and after else "unknown"
    texts = {
        "same": f"{after}",
        "other": f"{after}, was {before}",
        "unknown": f"not known of the {'second' if before else 'first'} run",
    }
    yield Link(name="training job", rung="", state=state, evidence=texts[state])


def _compare_chains(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Link]:
    before = {link["kind"]: link for link in origins.flatten(then)}
    after = {link["kind"]: link for link in origins.flatten(now)}
    for kind in ("image", "environment", "wheel", "lock"):
        if kind in before or kind in after:
            digests = [side.get(kind, {}).get("digest") for side in (before, after)]
            state: State = _judge(digests[0] == digests[1]) if all(digests) else "unknown"
            texts = {
                "same": f"{digests[1]}",
                "other": f"{digests[1]}, was {digests[0]}",
                "unknown": f"only {'then' if digests[0] else 'now'}: {digests[0] or digests[1]}",
            }
            yield Link(name=kind, rung=RUNGS[kind], state=state, evidence=texts[state])


def _compare_packages(then: Mapping[str, str], now: Mapping[str, str]) -> Link:
    changed = [
        f"{name} {now.get(name, 'none')}, was {then.get(name, 'none')}"
        for name in sorted(then.keys() | now.keys())
        if then.get(name) != now.get(name)
    ]
    text = ", ".join(changed) or ", ".join(f"{name} {version}" for name, version in now.items())
    return Link(name="packages", rung=RUNGS["packages"], state=_judge(not changed), evidence=text)


def _judge(same: bool) -> State:
    return "same" if same else "other"
