"""A headless Chromium, driven through its debugging pipe: no network, no package."""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
QUIET = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-component-update "
    "--disable-background-networking --disable-sync --hide-scrollbars --remote-debugging-pipe"
)


class Browser:
    """One tab. `complaints` are what its console, its policy and its exceptions said since `open`."""

    def __init__(self, folder: Path):
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()

        def as_three_and_four() -> None:
            three, four = os.dup(to_read), os.dup(to_write)
            os.dup2(three, 3)
            os.dup2(four, 4)

        assert CHROMIUM
        self._process = subprocess.Popen(
            [CHROMIUM, *QUIET.split(), f"--user-data-dir={folder}", "about:blank"],
            preexec_fn=as_three_and_four,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._held, self._number, self._session = b"", 0, None
        self.complaints: list[str] = []
        self._ended: set[str] = set()
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = session["sessionId"]
        for part in ("Page", "Runtime", "Log"):
            self.ask(f"{part}.enable")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._held:
            part = os.read(self._from, 1 << 20)
            assert part, "the browser has ended"
            self._held += part
        text, _, self._held = self._held.partition(b"\0")
        message = json.loads(text)
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(message["params"])[:2000])
            case "Log.entryAdded":
                self.complaints.append(message["params"]["entry"]["text"])
            case "Runtime.consoleAPICalled":
                self.complaints.append(json.dumps(message["params"]["args"])[:2000])
            case "Page.javascriptDialogOpening" | "Page.frameRequestedNavigation" as said:
                self.complaints.append(said)
        return message

    def open(self, path: Path, *, width: int = 1200, dark: bool = False) -> "Browser":
        """Waits until the page's charts are drawn."""
        self.complaints.clear()
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.ask("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask("Page.navigate", url=path.as_uri())
        until = time.monotonic() + 30
        while self.run("document.documentElement?.dataset.charts") != "drawn":
            assert time.monotonic() < until, self.complaints
            time.sleep(0.02)
        return self

    def run(self, script: str) -> Any:
        """The value of an expression, which may be a promise."""
        asked = {"expression": script, "returnByValue": True, "awaitPromise": True}
        found = self.ask("Runtime.evaluate", **asked)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def _at(self, selector: str, across: float = 0.5, down: float = 0.5) -> tuple[float, float]:
        """A point on the first element of this selector, which is scrolled into view."""
        return self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'center'}});"
            f"const r = e.getBoundingClientRect(); return [r.x + r.width * {across}, r.y + r.height * {down}]; }})()"
        )

    def point(self, selector: str) -> None:
        """Move the pointer onto the first element of this selector."""
        x, y = self._at(selector)
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str, *, at: tuple[float, float] = (0.5, 0.5)) -> None:
        """Press and release the pointer on the first element of this selector; `at` is the share of its width and height."""
        x, y = self._at(selector, *at)
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.settle()

    def press(self, *keys: str) -> None:
        """Press these keys one after the other, such as ArrowDown or Enter."""
        for key in keys:
            for kind in ("rawKeyDown", "keyUp"):
                self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key)
            self.settle()

    def type(self, text: str) -> None:
        self.ask("Input.insertText", text=text)
        self.settle()

    def settle(self) -> None:
        """Wait until what an event began is drawn."""
        self.run("new Promise((go) => setTimeout(go, 40))")

    def choose(self, control: str, value: str) -> None:
        self.run(
            f"(() => {{ const s = document.getElementById({json.dumps(control)}); s.value = {json.dumps(value)};"
            "s.dispatchEvent(new Event('change')); })()"
        )


def texts(browser, selector):
    return browser.run(
        f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.textContent)"
    )
