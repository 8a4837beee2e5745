"""Opens pages in Chromium, by its debugging protocol over pipes (https://chromedevtools.github.io/devtools-protocol)."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--no-first-run",
    "--remote-debugging-pipe",
)

_JUDGE = """{
const off = {enabled: false}, rules = {'scrollable-region-focusable': off, 'landmark-unique': off};
axe.run(document, {rules}).then((found) => JSON.stringify(
    found.violations.flatMap((rule) => rule.nodes.map((node) => [rule.id, node.html, node.failureSummary].join(': ')))
))}
"""
"""Chromium itself lets the keyboard reach what scrolls. The theme of the site gives buttons landmarks of one name."""

_FIND_CUT = """dispatchEvent(new Event('beforeprint')); [...document.querySelectorAll('main *')].filter(
    (each) => each.clientWidth > 1 && each.scrollWidth > each.clientWidth + 1
        && getComputedStyle(each).overflowX != 'visible'
).map((each) => 'paper cuts ' + each.outerHTML.slice(0, 300))
"""
A4 = 688
"""The width of paper without its margins, in CSS pixels."""


class Browser:
    """A browser with one page. It keeps the addresses that the page asked for, and what it complained of."""

    def __init__(self, profile: Path) -> None:
        assert PROGRAM
        ask, listen = os.pipe(), os.pipe()

        def place() -> None:
            # The browser reads from 3 and writes to 4. Both ends are moved away first, because they may be these.
            reading, writing = os.dup2(ask[0], 30), os.dup2(listen[1], 31)
            os.dup2(reading, 3)
            os.dup2(writing, 4)

        words = [PROGRAM, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        # No other thread of the tests holds a lock that `place` needs.
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(words, preexec_fn=place, close_fds=False, **quiet)  # noqa: PLW1509
        os.close(ask[0])
        os.close(listen[1])
        self._out, self._in = os.fdopen(ask[1], "wb", buffering=0), os.fdopen(listen[0], "rb")
        self._number, self._rest = 0, b""
        self.requests: list[str] = []
        self.complaints: list[str] = []
        targets = self._ask("Target.getTargets")["targetInfos"]
        target = next(each["targetId"] for each in targets if each["type"] == "page")
        self._session = ""
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self._ask(f"{domain}.enable")

    def close(self) -> None:
        self._out.close()
        self._in.close()
        self.process.terminate()
        self.process.wait(20)

    def open(
        self, path: Path | str, width: int = 1280, height: int = 900, *, dark: bool = False, media: str = ""
    ) -> None:
        """Open a file or an address, and wait for it. `requests` and `complaints` are then those of this page."""
        self.requests.clear()
        self.complaints.clear()
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", media=media, features=[scheme])
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._ask("Emulation.setDeviceMetricsOverride", **size)
        self._ask("Page.navigate", url=path if isinstance(path, str) else path.resolve().as_uri())
        while self.run("document.readyState") != "complete":
            pass

    def run(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        found = self._ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def find_barriers(self, page: Path | str, axe: str) -> list[str]:
        """Return what a page has against people who do not see it, use no mouse, hold a phone, or print it.

        ``axe``: the script that judges it (https://github.com/dequelabs/axe-core).
        """
        found: list[str] = []
        for width, dark in ((1440, False), (390, True)):
            self.open(page, width, dark=dark)
            self.run(f"{axe};0")
            found += json.loads(self.run(_JUDGE))
            found += [f"{width} pixels are too few"] * (self.run("document.documentElement.scrollWidth") > width)
        self.open(page, A4, media="print")
        return found + list(self.run(_FIND_CUT))

    def press(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {}
        self._ask("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self._ask("Input.dispatchKeyEvent", type="keyUp", key=key)

    def take_picture(self) -> bytes:
        import base64

        return base64.b64decode(self._ask("Page.captureScreenshot", captureBeyondViewport=True)["data"])

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if getattr(self, "_session", ""):
            message["sessionId"] = self._session
        self._out.write(json.dumps(message).encode() + b"\0")
        for answer in self._listen():
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self._note(answer)
        raise EOFError("the browser has ended")

    def _listen(self) -> Iterator[dict[str, Any]]:
        while True:
            *messages, self._rest = self._rest.split(b"\0")
            for place, text in enumerate(messages):
                self._rest = b"\0".join([*messages[place + 1 :], self._rest])
                yield json.loads(text)
                break
            else:
                piece = os.read(self._in.fileno(), 1 << 16)
                if not piece:
                    return
                self._rest += piece

    def _note(self, event: dict[str, Any]) -> None:
        match event:
            case {"method": "Network.requestWillBeSent", "params": {"request": {"url": str(address)}}}:
                self.requests += [] if address.startswith("data:") else [address]
            case {"method": "Log.entryAdded", "params": {"entry": {"text": str(text)}}}:
                self.complaints.append(text)
            case {"method": "Runtime.exceptionThrown", "params": {"exceptionDetails": details}}:
                self.complaints.append(str(details.get("exception", {}).get("description", details.get("text"))))


@contextmanager
def start(profile: Path) -> Iterator[Browser]:
    browser = Browser(profile)
    try:
        yield browser
    finally:
        browser.close()
