"""Takes the picture of the page of `toolkit serve` in Chromium: ``python -m tools.screenshot``."""

import io
import tempfile
from pathlib import Path

from PIL import Image

from tests import browser
from tests.makers.page import choose, wait
from tests.unit.train.service import serving
from train import cli
from train.use import network

PICTURE = Path(__file__).parents[1] / "docs" / "serve.png"
WIDTH, HEIGHT = 640, 870


def main() -> None:
    """Train on the digits, serve the network, give its page an image, and keep what it shows."""
    with tempfile.TemporaryDirectory() as place:
        runs = Path(place) / "runs"
        if code := cli.main(["digits", "--progress", "quiet", "--out", str(runs)]):
            raise SystemExit(code)
        trained = network.load(next(runs.iterdir()), exact=True)
        with serving.running(serving.make(trained)) as client, browser.start(Path(place) / "profile") as chromium:
            chromium.open(f"http://127.0.0.1:{client.port}/", WIDTH, HEIGHT)
            wait(chromium, "!!document.querySelector('#numbers dd')")
            choose(chromium, ("three.png", serving.DIGITS[3]))
            wait(chromium, "document.images.length > 1 && [...document.images].every((image) => image.complete)")
            with Image.open(io.BytesIO(chromium.take_picture())) as picture:
                picture.crop((0, 0, WIDTH, HEIGHT)).quantize(64).save(PICTURE, optimize=True)


if __name__ == "__main__":
    main()
