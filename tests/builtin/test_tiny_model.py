"""The tiny BailingMoeV3: complete, reproducible, made once, with a usable tokenizer and a thinking switch."""

import json
import shutil

import jinja2
import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from farm.builtin.tiny_bailing import END_OF_TURN, SHAPE, make_tiny_bailing_v3

QUESTION = (
    "A caterer prepares 25 trays of pasta for a wedding. Each tray serves 12 guests, but 3 trays fall on the way and "
    "are lost. The bride expects 240 guests, and a quarter of them will ask for a second helping. By how many servings "
    "does the caterer fall short or, if there is enough for everyone, how many servings will be left?"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny"
    make_tiny_bailing_v3(path)
    return path


def contents(path):
    return {file.name: file.read_bytes() for file in path.iterdir()}


def test_the_same_seed_gives_the_same_model(model, tmp_path):
    make_tiny_bailing_v3(tmp_path / "same")
    make_tiny_bailing_v3(tmp_path / "other", seed=1)
    assert contents(tmp_path / "same") == contents(model)
    assert contents(tmp_path / "other")["model.safetensors"] != contents(model)["model.safetensors"]


def test_a_complete_model_is_left_alone_and_another_is_replaced(model, tmp_path):
    path = shutil.copytree(model, tmp_path / "tiny")
    before = (path / "model.safetensors").stat().st_ino
    make_tiny_bailing_v3(path)
    assert (path / "model.safetensors").stat().st_ino == before
    make_tiny_bailing_v3(path, context_weight=0.0)
    assert (path / "model.safetensors").stat().st_ino != before
    assert [entry.name for entry in tmp_path.iterdir()] == ["tiny"]


def test_a_folder_that_was_cut_short_is_made_again(model, tmp_path):
    path = tmp_path / "tiny"
    path.mkdir()
    (path / "config.json").write_text("{}")
    make_tiny_bailing_v3(path)
    assert contents(path) == contents(model)


def test_weights_are_finite_float32_and_of_the_size_in_the_configuration(model):
    weights = load_file(model / "model.safetensors")
    config = json.loads((model / "config.json").read_text())
    assert config["architectures"] == ["BailingMoeV3ForCausalLM"]
    assert config["max_position_embeddings"] >= 32768
    assert weights["lm_head.weight"].shape == (config["vocab_size"], config["hidden_size"])
    assert all(value.dtype == np.float32 and np.isfinite(value).all() for value in weights.values())
    layers = {name.split(".")[2] for name in weights if name.startswith("model.layers.")}
    assert len(layers) == SHAPE.num_hidden_layers + 1  # and the draft layer


def test_a_question_takes_about_two_tokens_a_word(model):
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == SHAPE.vocab_size
    encoded = tokenizer.encode(QUESTION)
    assert len(encoded.ids) < 2.5 * len(QUESTION.split())
    assert tokenizer.decode(encoded.ids) == QUESTION


def render(model, **variables):
    template = json.loads((model / "tokenizer_config.json").read_text())["chat_template"]
    return jinja2.Environment(autoescape=False).from_string(template).render(add_generation_prompt=True, **variables)


def test_the_chat_template_switches_thinking(model):
    messages = [{"role": "user", "content": "Why?"}]
    thinking, plain = (render(model, messages=messages, enable_thinking=value) for value in (True, False))
    assert thinking.endswith("<role>HUMAN</role>Why?<|role_end|><role>ASSISTANT</role><think>\n")
    assert plain.endswith("<role>HUMAN</role>Why?<|role_end|><role>ASSISTANT</role>")
    assert "thinking on" in thinking
    assert "thinking off" in plain
    assert render(model, messages=messages) == plain


def test_the_chat_template_drops_earlier_thoughts(model):
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Why?"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nBecause."},
        {"role": "user", "content": "And?"},
    ]
    text = render(model, messages=messages)
    assert text.startswith("<role>SYSTEM</role>Be brief.\n")
    assert f"<role>ASSISTANT</role>Because.{END_OF_TURN}" in text
    assert "hm" not in text
