from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.browser import Browser
from tests.makers.page import BY_BUTTON, choose, wait
from tests.unit.train.service import serving
from tests.unit.train.service.serving import DIGITS, Client, make
from train.use.network import Network

HOSTILE = "<img src=x onerror=alert(1)>\u202e\"'&</script>" + 60 * "W"
BY_DROP = "document.body.dispatchEvent(new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true}));"


@pytest.fixture(scope="module")
def hostile(trained: Network) -> Iterator[Client]:
    """Serve a network whose classes have names that try to be markup."""
    inputs = replace(trained.inputs, class_names=tuple(f"{digit}{HOSTILE}" for digit in range(10)))
    with serving.running(make(replace(trained, inputs=inputs))) as found:
        yield found


@pytest.mark.parametrize("how", [BY_BUTTON, BY_DROP])
def test_an_image_is_shown_with_its_classes(client: Client, chromium: Browser, how: str) -> None:
    chromium.open(f"http://127.0.0.1:{client.port}/")
    assert wait(chromium, "document.querySelector('#numbers dd')?.innerText").endswith("%")
    choose(chromium, ("three.png", DIGITS[3]), ("broken.png", DIGITS[3][:40]), how=how)
    assert wait(chromium, "document.querySelectorAll('.result').length") == 2
    assert chromium.run("document.querySelector('.guesses span').innerText") == "3"
    assert chromium.run("document.getElementById('said').innerText").startswith("The first one: 3, ")
    assert chromium.run("document.querySelectorAll('.result')[1].innerText").startswith("broken.png\n")
    whole = "[...document.images].map((image) => image.complete && image.naturalWidth)"
    wait(chromium, f"{whole}.every(Boolean)")
    assert chromium.run(whole) == [8, 224]
    assert chromium.complaints == []
    own = f"http://127.0.0.1:{client.port}/"
    assert all(each.startswith((own, f"blob:{own}")) for each in chromium.requests)


def test_the_page_has_no_barrier(client: Client, chromium: Browser, axe: str) -> None:
    assert chromium.find_barriers(f"http://127.0.0.1:{client.port}/", axe) == []


def test_a_name_that_tries_to_be_markup_is_text(hostile: Client, chromium: Browser) -> None:
    chromium.open(f"http://127.0.0.1:{hostile.port}/", 320)
    choose(chromium, (f"{HOSTILE[:40]}.png", DIGITS[3]))
    wait(chromium, "!!document.querySelector('.result')")
    assert chromium.run("document.querySelector('.guesses span').textContent").endswith(HOSTILE)
    assert chromium.run("document.querySelectorAll('#results img, #results script').length") == 2
    assert chromium.run("document.documentElement.scrollWidth") <= 320
    assert chromium.complaints == []


@pytest.mark.parametrize(("width", "dark"), [(320, False), (1440, True)])
def test_nothing_is_wider_than_the_window(client: Client, chromium: Browser, width: int, dark: bool) -> None:
    chromium.open(f"http://127.0.0.1:{client.port}/", width, dark=dark)
    choose(chromium, ("three.png", DIGITS[3]))
    wait(chromium, "!!document.querySelector('.result')")
    assert chromium.run("document.documentElement.scrollWidth") <= width
    ground = chromium.run("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(19, 22, 24)") is dark


def test_the_page_is_used_by_the_keyboard_and_read_aloud(client: Client, chromium: Browser) -> None:
    chromium.open(f"http://127.0.0.1:{client.port}/")
    wait(chromium, "!!document.querySelector('#numbers dd')")
    visited = []
    for _ in range(3):
        chromium.press("Tab")
        visited.append(chromium.run("document.activeElement.id || document.activeElement.className"))
    assert visited[:2] == ["skip", "file"]
    assert chromium.run("document.querySelector('[for=file]').innerText") == "Choose images"
    assert chromium.run("document.getElementById('said').getAttribute('role')") == "status"
    assert chromium.run("document.documentElement.lang") == "en"
    choose(chromium, ("three.png", DIGITS[3]))
    wait(chromium, "!!document.querySelector('.result')")
    assert chromium.run("[...document.images].every((image) => image.alt)")


def test_the_page_asks_for_a_token(trained: Network, chromium: Browser) -> None:
    with serving.running(make(trained, token="0123456789abcdef")) as client:  # noqa: S106
        chromium.open(f"http://127.0.0.1:{client.port}/")
        wait(chromium, "!document.getElementById('login').hidden")
        chromium.run("document.getElementById('token').value = '0123456789abcdef'")
        chromium.run("document.querySelector('#login button').click()")
        wait(chromium, "document.getElementById('login').hidden")
        choose(chromium, ("three.png", DIGITS[3]))
        wait(chromium, "!!document.querySelector('.result')")
