"""No credential of an address reaches the terminal or a file, whichever option or setting has it."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.makers.credentials import list_commands
from toolkit.__main__ import main
from toolkit.versions.settings import OPTIONS
from train import cli
from train.system.addresses import find_credentials, hide

CANARY = "CANARYx7"
ADDRESSES = (f"https://user:{CANARY}@host/x.git#{'a' * 40}", f"https://host/x?token={CANARY}", f"grpcs://{CANARY}@host")


def takes_text(parameter: Any) -> bool:
    return not getattr(parameter, "is_flag", False) and parameter.name != "help"


def list_lines() -> Iterator[tuple[str, ...]]:
    """Yield a command line for each option and argument that takes a value; ADDRESS stands for it."""
    for words, command in list_commands():
        needed = [each for each in command.params if each.param_type_name == "argument" and each.required]
        for parameter in filter(takes_text, command.params):
            others = ["x" for each in needed if each is not parameter]
            given_ = [parameter.opts[-1], "ADDRESS"] if parameter.param_type_name == "option" else ["ADDRESS"]
            yield (*words, *others, *given_)
        yield (*words, *("x" for _ in needed), "--no-such-option", "ADDRESS")


LINES = sorted(set(list_lines()))


def run(argv: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["toolkit", *argv])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0), "".join(capsys.readouterr())


def require_none(folder: Path, said: str) -> None:
    assert CANARY not in said
    for path in folder.rglob("*"):
        assert not path.is_file() or CANARY.encode() not in path.read_bytes()


@pytest.mark.parametrize("address", ADDRESSES)
def test_no_option_of_any_command_keeps_or_prints_a_credential(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for line in LINES if address == ADDRESSES[0] else LINES[::20]:
        argv = [address if word == "ADDRESS" else word for word in line]
        code, said = run([*argv, "--json"], capsys, monkeypatch)
        assert code == 2, (argv, said)
        require_none(tmp_path, said)


@pytest.mark.parametrize("layer", ["variable", "toolkit.yaml"])
@pytest.mark.parametrize("name", OPTIONS)
def test_no_setting_keeps_or_prints_a_credential(
    name: str, layer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if layer == "variable":
        monkeypatch.setenv(f"TOOLKIT_{name.upper()}", ADDRESSES[0])
    else:
        monkeypatch.setattr("toolkit.versions.settings.Path", lambda text: tmp_path.parent / "settings" / text)
        (tmp_path.parent / "settings").mkdir(exist_ok=True)
        (tmp_path.parent / "settings" / "toolkit.yaml").write_text(f'{name}: "{ADDRESSES[0]}"\n')
    code, said = run(["ls", "--verbose", "--json"], capsys, monkeypatch)
    assert code == 2
    require_none(tmp_path, said)


@pytest.mark.parametrize("option", ["--init-from", "--cache-dir", "--data-dir", "--continue", "--log-to", "--out"])
def test_the_job_refuses_them_too(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["digits", option, ADDRESSES[0]]) == 2
    require_none(tmp_path, "".join(capsys.readouterr()))


HOSTS = st.sampled_from(["host", "host:8080", "a.example.org", "[::1]:5000"])
SECRETS = st.text(st.sampled_from("abcXYZ019-._~!$&()*+,;=%:@#"), min_size=1, max_size=12).map(
    lambda text: CANARY + text
)
TEXTS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="/@"), max_size=20)


@given(
    st.sampled_from(["https", "http", "grpcs", "git+https", "FTP"]),
    st.sampled_from(["", "user", "me"]),
    SECRETS,
    HOSTS,
    TEXTS,
)
def test_a_password_is_found_and_hidden_wherever_it_stands(
    scheme: str, user: str, secret: str, host: str, text: str
) -> None:
    line = f"{text} {scheme}://{user}:{secret}@{host}/path {text}"
    assert find_credentials(line)
    assert CANARY not in hide(line)
    assert hide(hide(line)) == hide(line)
    assert hide(line).endswith(f"@{host}/path {text}")


@pytest.mark.parametrize(
    "name", ["token", "access_token", "X-Amz-Signature", "sig", "api_key", "private-token", "Password"]
)
def test_a_token_in_a_query_is_found_and_hidden(name: str) -> None:
    line = f"https://host/x?a=1&{name}={CANARY}&b=2"
    assert find_credentials(line) == f"the parameter {name}"
    assert hide(line) == f"https://host/x?a=1&{name}=***&b=2"


@pytest.mark.parametrize(
    "line",
    [
        "ssh://git@github.com/a/b.git#abc",
        "https://host/@scope/x@v1",
        f"docker-image://bazel@sha256:{'a' * 64}",
        "https://host/a?design=1&author=x&keyboard=2&mode=sig",
        "name@example.org",
        "runs/a:b@c",
    ],
)
def test_what_is_no_credential_stays(line: str) -> None:
    assert not find_credentials(line)
    assert hide(line) == line
