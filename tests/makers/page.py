import base64
import json
import time
from typing import Any

from tests.browser import Browser

CHOOSE = """
(() => {
  const data = new DataTransfer();
  for (const [name, content] of %s) {
    data.items.add(new File([Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0))], name));
  }
  %s
})()
"""
BY_BUTTON = "const at = document.getElementById('file'); at.files = data.files; at.dispatchEvent(new Event('change'));"


def choose(chromium: Browser, *files: tuple[str, bytes], how: str = BY_BUTTON) -> None:
    listed = [(name, base64.b64encode(content).decode()) for name, content in files]
    chromium.run(CHOOSE % (json.dumps(listed), how))


def wait(chromium: Browser, expression: str) -> Any:
    end = time.monotonic() + 60
    while not (found := chromium.run(expression)):
        assert time.monotonic() < end, chromium.run("document.body.innerText")
        time.sleep(0.05)
    return found
