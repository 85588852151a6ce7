import pytest
from hypothesis import given
from hypothesis import strategies as st

from upgrader.process import Command, redact_command, redact_text


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (["ls", "-l", "a b"], "ls -l 'a b'"),
        (["push", "--creds", "me:secret", "image"], "push --creds *** image"),
        (["push", "--creds=me:secret", "image"], "push --creds=*** image"),
        (["login", "--password-stdin"], "login --password-stdin"),
        (["login", "--password", "p", "--token", "t"], "login --password *** --token ***"),
        (["get", "https://me:pw@host/x"], "get https://***@host/x"),
        (["get", "https://me:p@w@host/x"], "get https://***@host/x"),
        (["get", "https://host/app@sha256:1", "http://me@[::1]/"], "get https://host/app@sha256:1 'http://***@[::1]/'"),
        (["get", "--registry-token=t", "--token-file", "f"], "get --registry-token=*** --token-file f"),
    ],
)
def test_a_command_is_shown_without_what_is_secret(command, text):
    assert redact_command(command) == text


@given(st.text("abc", min_size=3), st.text("xyz "), st.text("xyz "))
def test_a_given_secret_is_never_shown(secret, before, after):
    assert redact_text(before + secret + after, [secret]) == f"{before}***{after}"


def test_an_empty_secret_hides_nothing():
    assert redact_text("text", [""]) == "text"


def test_a_command_as_a_value_shows_neither_its_environment_nor_its_input():
    command = Command.from_arguments(["sign"], 5, None, {"COSIGN_PASSWORD": "staple"}, b"staple", ["staple"])
    assert repr(command) == "Command('sign')"
