from __future__ import annotations

import pytest

from farm.tracking.redact import is_secret, redacted, redacted_text


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "api-key", "admin_api_key", "AWS_SECRET_ACCESS_KEY", "password", "ssl-keyfile-password", "token"],
)
def test_secret_names(name: str):
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "max_new_tokens",
        "tokenizer-path",
        "SGLANG_SIMULATE_ACC_TOKEN_MODE",
        "speculative-num-draft-tokens",
        "speculative-token-map",
        "ssl-keyfile",
        "PWD_LIKE",
        "author",
    ],
)
def test_names_of_settings_that_only_look_alike(name: str):
    assert not is_secret(name)


def test_secret_entries_are_dropped_at_any_depth():
    value = {"env": {"HF_TOKEN": "x", "OMP_NUM_THREADS": "1"}, "list": [{"api_key": "x"}, 1, None]}
    assert redacted(value) == {"env": {"OMP_NUM_THREADS": "1"}, "list": [{}, 1, None]}


def test_secret_flags_are_dropped_with_their_values():
    command = ["serve", "--api-key", "x", "--port", "1", "--admin-api-key=x", "--token"]
    assert redacted(command) == ["serve", "--port", "1"]


@pytest.mark.parametrize(
    "text",
    [
        "api_key='s3cr3t'",
        "--api-key s3cr3t",
        "HF_TOKEN=s3cr3t",
        '"password": "s3cr3t"',
        "https://me:s3cr3t@host/x",
        "Authorization: Bearer s3cr3t",
    ],
)
def test_running_text_loses_values(text: str):
    assert "s3cr3t" not in redacted_text(text)


@pytest.mark.parametrize("text", ["the key is here", "api_key=None, port=1", "max_new_tokens=32768", "accept len: 2.9"])
def test_running_text_keeps_the_rest(text: str):
    assert redacted_text(text) == text


def test_a_token_is_known_by_its_shape():
    assert "abcdefghijklmnop" not in redacted_text("loaded with hf_abcdefghijklmnopqrstuvwx today")
