"""Credentials of the user's rc file are in nothing that leaves the stage."""

import json
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wheelbuild import redaction


@pytest.mark.parametrize(
    ("line", "secrets"),
    [
        ("build --remote_header=Authorization='Bearer abc def'", ["Bearer abc def"]),
        ("build --remote_cache_header X-Key=s3cret", ["s3cret"]),
        ("common:remote --bes_header=x-api-key=k=v --remote_timeout=3600", ["k=v"]),
        ("build --remote_cache=https://user:pass@cache.example/x", ["pass"]),
        ("build --remote_cache=https://cache.example --jobs=8", []),
        ("# build --remote_header=Authorization=old", []),
        ("", []),
        ("build --remote_header='Authorization=open", ["open"]),
    ],
)
def test_secrets_are_found(line: str, secrets: list[str]) -> None:
    assert redaction.read_secrets(line) == secrets


@given(secret=st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=8))
def test_no_secret_survives_in_any_form(secret: str) -> None:
    secret = f"key-{secret}"
    rc = f"build --remote_header={shlex.quote('Authorization=' + secret)}\n"
    event = json.dumps({"options": [f"--remote_header=Authorization={secret}"]})
    clean = redaction.redact(f"{event}\n{secret}", redaction.read_secrets(rc))
    assert clean == '{"options": ["--remote_header=Authorization=[redacted]"]}\n[redacted]'


@pytest.mark.parametrize("secret", ["Basic dXNlcjpwYXNz==", "a'b=<c>&", "schlüssel="])
def test_no_secret_survives_in_the_json_of_bazel(secret: str) -> None:
    """Bazel's own JSON (Gson's) escapes more than Python's does."""
    quoted = json.dumps(secret, ensure_ascii=False)[1:-1]
    for sign in "=<>&'":
        quoted = quoted.replace(sign, f"\\u{ord(sign):04x}")
    assert redaction.redact(f'"--remote_header\\u003d{quoted}"', [secret]) == '"--remote_header\\u003d[redacted]"'
