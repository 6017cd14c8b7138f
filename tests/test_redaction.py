"""One rule of secrets: what is masked, what only looks like a secret, and what a known secret's value leaves behind."""

import pytest

from farm.redaction import is_secret, masked, masked_text, secret_values


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "api-key", "admin_api_key", "AWS_SECRET_ACCESS_KEY", "password", "ssl-keyfile-password", "token"],
)
def test_secret_names(name):
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "max_new_tokens",
        "max-total-tokens",
        "tokenizer-path",
        "SGLANG_SIMULATE_ACC_TOKEN_MODE",
        "speculative-num-draft-tokens",
        "speculative-token-map",
        "ssl-keyfile",
        "PWD_LIKE",
        "author",
    ],
)
def test_names_of_settings_that_only_look_alike(name):
    assert not is_secret(name)


def test_secrets_are_masked_at_any_depth_and_the_form_stays():
    value = {"env": {"HF_TOKEN": "x", "OMP_NUM_THREADS": "1"}, "list": [{"api_key": "x"}, 1, None], "api_key": None}
    assert masked(value) == {
        "env": {"HF_TOKEN": "***", "OMP_NUM_THREADS": "1"},
        "list": [{"api_key": "***"}, 1, None],
        "api_key": None,
    }


def test_flags_keep_their_place_and_lose_their_values():
    command = [
        "serve",
        "--api-key",
        "x",
        "--port",
        "1",
        "--admin-api-key=x",
        "--hf-token",
        "x",
        "y",
        "--max-total-tokens",
        "8",
    ]
    assert masked(command) == [
        *("serve", "--api-key", "***", "--port", "1", "--admin-api-key=***"),
        *("--hf-token", "***", "***", "--max-total-tokens", "8"),
    ]  # fmt: skip


def test_what_is_masked_once_is_not_changed_again():
    value = {"command": ["--api-key", "s3cr3t", "https://me:pw@host/x"], "log": "api_key='s3cr3t' hf_abcdefghijklmnop"}
    assert masked(masked(value)) == masked(value)


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
def test_running_text_loses_values(text):
    assert "s3cr3t" not in masked_text(text)


@pytest.mark.parametrize(
    "text",
    [
        "the key is here",
        "api_key=None, port=1",
        "max_new_tokens=32768",
        "#token: 1234, token usage: 0.01, accept len: 2.9",
    ],
)
def test_running_text_keeps_the_rest(text):
    assert masked_text(text) == text


def test_a_token_is_known_by_its_shape():
    assert "abcdefghijklmnop" not in masked_text("loaded with hf_abcdefghijklmnopqrstuvwx today")


def test_the_values_of_secrets_are_found_and_blanked_wherever_they_stand():
    known = secret_values(
        {"env": {"HF_TOKEN": "tree-house-7"}, "argv": ["x", "--hf-token", "tree-house-77", "--tp", "1"]}
    )
    assert known == {"tree-house-7", "tree-house-77"}
    assert (
        masked_text("refused: tree-house-77 is no token, nor tree-house-7", known)
        == "refused: *** is no token, nor ***"
    )


def test_a_short_value_does_not_blank_parts_of_other_words():
    assert secret_values({"HF_TOKEN": "1"}) == set()
