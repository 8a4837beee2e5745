"""Says which public name takes the place of a private module of TensorFlow, or of one of TensorFlow 1."""

import re
from collections.abc import Mapping
from typing import Any, Final

_PRIVATE: Final = re.compile(r"tensorflow\.(?=(?:python|contrib)(?:\.|$))|tensorflow_(?=core(?:\.|$))")
_TAIL: Final = re.compile(r"(?:_ops)?(?:_impl|_util|_lib|_v2)?$")

Words = Mapping[str, str]


def tell(module: str, name: str, known: Mapping[str, Any]) -> Words:
    """Return what is private of a name of a module, and what is public in its place."""
    whole = ".".join(each for each in (module, name) if each not in {"", "*"})
    # TensorFlow 1.15 to 2.1 calls its public modules tensorflow_core; to import them by that name was never public.
    if not _PRIVATE.match(whole) or (whole.startswith("tensorflow_core") and name != "*"):
        return {}
    public = find_public(_PRIVATE.sub("", whole), known["private"])
    return {"private": whole, **({"public": public} if public else {})}


def find_public(path: str, table: Mapping[str, Any]) -> str:
    """Return the public name for a path below tensorflow: by the longest beginning, else by a part that is public."""
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        if told := table["paths"].get(".".join(parts[:end])):
            inner = parts[end] if told == "tensorflow.keras" and end < len(parts) else ""
            return f"{told}.{inner}" if inner in table["keras"] else str(told)
    bare = (_TAIL.sub("", part) for part in parts[1:])
    return next((f"tf.{part}" for part in bare if part in table["public"]), "")
