import base64
import json
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wheelbuild.redaction import MASK, Redactor, UnsafeError, require_safe

GSON = {ord(sign): f"\\u{ord(sign):04x}" for sign in "=<>&'"}


@pytest.mark.parametrize(
    ("rc", "said", "clean"),
    [
        ("--remote_header=Authorization='Bearer t0ps3cret'", "got Bearer t0ps3cret", "got [redacted]"),
        ("--remote_header=X-Pin=1234", "PIN 1234, line 12345", "PIN [redacted], line 12345"),
        ("--test_env=TOKEN=abcdefgh", "--test_env=TOKEN=abcdefgh", "--test_env=TOKEN=[redacted]"),
        (
            "--remote_cache=https://me:pass@c.example/x",
            "401 at c.example for me, pass",
            "401 at c.example for me, [redacted]",
        ),
        ("--remote_cache=https://me:pa%24s@c.example", "user me:pa$s", "user [redacted]"),
        ("--a_new_option=abcdefgh", "xabcdefghx", "x[redacted]x"),
        ("--remote_header=k=schlüssel", "schlÃ¼ssel", "[redacted]"),
        ("--tls_client_key /etc/my.key", "cannot read /etc/my.key", "cannot read [redacted]"),
    ],
)
def test_secrets_are_masked(rc: str, said: str, clean: str) -> None:
    assert Redactor(f"build {rc}").redact(said) == clean


@pytest.mark.parametrize(
    ("rc", "said"),
    [
        ("--jobs=4", "[4 / 18] Compiling 4.cc; 4s remote"),
        ("--spawn_strategy=remote", "INFO: 11 processes: 9 remote cache hit, 2 remote."),
        ("--spawn_strategy=processwrapper-sandbox", "INFO: 3 processes: 3 processwrapper-sandbox."),
        ("--keep_going=true", "INFO: true"),
        ("--test_env=DEBUG=1", "INFO: 1 process: 1 internal."),
        ("--remote_timeout=3600", "clang: 3600 errors"),
        ("--config=cuda", "//third_party/gpus/cuda:x"),
    ],
)
def test_short_and_common_values_leave_the_log_readable(rc: str, said: str) -> None:
    redactor = Redactor(f"build {rc}")
    option, _, value = rc.rpartition("=")
    assert redactor.redact(said) == said
    assert redactor.redact(f"'build' options: {rc}") == f"'build' options: {option}={MASK}", "but not behind its option"
    assert redactor.redact(f"--other_option={value}") == f"--other_option={value}"


def test_credentials_of_a_proxy_are_masked() -> None:
    redactor = Redactor("", {"https_proxy": "http://me:hush-hush@proxy:3128", "HOME": "/root"})
    assert redactor.redact("407 from http://me:hush-hush@proxy:3128") == "407 from http://[redacted]@proxy:3128"
    assert redactor.redact("hush-hush") == MASK


@given(secret=st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=8))
def test_no_secret_survives_in_any_form(secret: str) -> None:
    secret = f"key-{secret}"
    redactor = Redactor(
        f"build --remote_header={shlex.quote('Authorization=' + secret).replace(chr(92), chr(92) * 2)}\n"
    )
    event = {"cmdLine": [f"--remote_header=Authorization={secret}"], "text": f"<{secret}>"}
    found = json.loads(redactor.redact_event(json.dumps(event)))
    assert found == {"cmdLine": ["--remote_header=Authorization=[redacted]"], "text": "<[redacted]>"}
    assert redactor.redact(f"x{secret}x") == "x[redacted]x"


@pytest.mark.parametrize("secret", ["Basic dXNlcjpwYXNz==", "a<bcdefg>&", "schlüssel="])
def test_no_secret_survives_in_the_json_of_bazel(secret: str) -> None:
    """Bazel's own JSON (Gson's) escapes more characters than Python's does."""
    redactor = Redactor(f"build '--remote_header=Authorization={secret}'")
    quoted = json.dumps(secret, ensure_ascii=False)[1:-1].translate(GSON)
    line = f'{{"a":["--remote_header\\u003dAuthorization\\u003d{quoted}"]}}'
    assert json.loads(redactor.redact_event(line)) == {"a": ["--remote_header=Authorization=[redacted]"]}
    assert redactor.redact(f"text {quoted}") == f"text {MASK}"


def test_events_are_masked_where_option_and_value_stand_apart() -> None:
    """Bazel's event file has a structured command line, with option and value in separate fields."""
    option = {"combinedForm": "--jobs=4", "optionName": "jobs", "optionValue": "4"}
    found = json.loads(Redactor("build --jobs=4").redact_event(json.dumps({"option": [option]})))
    assert found["option"] == [{"combinedForm": "--jobs=[redacted]", "optionName": "jobs", "optionValue": "[redacted]"}]


def test_files_inside_of_events_are_masked() -> None:
    content = base64.b64encode(b"header: t0ps3cret").decode()
    event = json.dumps({"log": [{"name": "x", "contents": content}]})
    found = json.loads(Redactor("build --remote_header=k=t0ps3cret").redact_event(event))
    assert base64.b64decode(found["log"][0]["contents"]) == b"header: [redacted]"


@pytest.mark.parametrize(
    "line",
    [
        "build --action_env=TOKEN=x",
        "build:ci --repo_env TOKEN=x",
        "common --host_action_env=TOKEN=x",
        "startup --host_jvm_args=-Dpassword=x",
    ],
)
def test_settings_that_cannot_be_kept_secret_are_refused(line: str) -> None:
    with pytest.raises(UnsafeError, match=r"_env|startup"):
        require_safe(line)
