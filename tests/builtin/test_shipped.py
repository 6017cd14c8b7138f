"""What the package ships: the workload, the tokenizer and the model folder."""

import json
import os
import subprocess
import sys

import pytest
from demo_model.tokenizer import (
    CHAT_TEMPLATE,
    END,
    END_ID,
    END_THINK,
    PAD,
    PAD_ID,
    THINK,
    completion_text,
    load_tokenizer,
    prompt_text,
)
from demo_model.workload import TEST_ITEMS, write_shipped
from support import REPOSITORY
from tokenizers import Tokenizer

from farm.builtin import demo

IMPORTS = (REPOSITORY, REPOSITORY / "infra" / "demo-model")


def read(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer(demo.model_path())


def test_shipped_files_are_what_the_generator_writes(tmp_path):
    write_shipped(tmp_path)
    for path in (demo.test_path(), demo.train_path()):
        assert path.read_text(encoding="utf-8") == (tmp_path / path.name).read_text(encoding="utf-8")


def test_items_have_stable_unique_ids_and_share_nothing_with_the_examples():
    items, examples = read(demo.test_path()), read(demo.train_path())
    assert [item["id"] for item in items] == [f"gsm-mini-{n:04d}" for n in range(1, TEST_ITEMS + 1)]
    assert len({item["question"] for item in items}) == TEST_ITEMS
    assert not {i["template"] for i in items} & {e["template"] for e in examples}
    assert not {i["question"] for i in items} & {e["question"] for e in examples}


def test_generator_and_data_need_no_torch():
    modules = "farm.builtin.demo, demo_model.workload, demo_model.tokenizer, demo_model.corpus"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert (
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, IMPORTS))},
            check=False,
        ).returncode
        == 0
    )


def test_model_folder_is_complete_and_small():
    folder = demo.model_path()
    names = {path.name for path in folder.iterdir()}
    assert {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "MODEL_CARD.md",
    } <= names
    assert (folder / "model.safetensors").stat().st_size <= 20_000_000


def test_checkpoint_has_an_untied_head_and_one_nextn_layer():
    folder = demo.model_path()
    config = json.loads((folder / "config.json").read_text())
    with (folder / "model.safetensors").open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    assert config["architectures"] == ["BailingMoeV2ForCausalLM"]
    assert config["tie_word_embeddings"] is False
    assert header["lm_head.weight"]["shape"] == header["model.word_embeddings.weight"]["shape"]
    assert header["lm_head.weight"]["shape"] == [config["vocab_size"], config["hidden_size"]]
    nextn = f"model.layers.{config['num_hidden_layers']}."
    assert f"{nextn}eh_proj.weight" in header
    assert config["num_nextn_predict_layers"] == 1


def test_tokenizer_fits_the_model(tokenizer):
    folder = demo.model_path()
    config = json.loads((folder / "config.json").read_text())
    assert tokenizer.get_vocab_size() == config["vocab_size"]
    assert tokenizer.token_to_id(PAD) == PAD_ID == config["pad_token_id"]
    assert tokenizer.token_to_id(END) == END_ID == config["eos_token_id"]


def test_numbers_are_spelt_digit_by_digit(tokenizer):
    assert tokenizer.encode("1234", add_special_tokens=False).tokens == list("1234")


@pytest.mark.parametrize("text", ["Betty's “café” costs €3.50 — naïve?\n\t\\boxed{7}", "日本語 🙂", ""])
def test_any_text_survives(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False).ids) == text


def test_think_marks_are_one_token_and_are_kept_in_decoded_text(tokenizer):
    text = f"{THINK}\n1\n{END_THINK}\n#### 1"
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert ids.count(tokenizer.token_to_id(END_THINK)) == 1
    assert tokenizer.decode(ids, skip_special_tokens=True) == text


@pytest.mark.parametrize("thinking", [True, False])
def test_chat_template_gives_the_prompt_that_was_trained(thinking):
    jinja2 = pytest.importorskip("jinja2")
    stored = json.loads((demo.model_path() / "tokenizer_config.json").read_text())["chat_template"]
    assert stored == CHAT_TEMPLATE
    rendered = jinja2.Template(stored).render(
        messages=[{"role": "user", "content": "How many?"}], add_generation_prompt=True, enable_thinking=thinking
    )
    assert rendered == prompt_text("How many?", thinking=thinking)


def test_the_answer_closes_the_think_section_before_the_result():
    assert completion_text("a\nb\n#### 4", thinking=True) == f"a\nb\n{END_THINK}\n#### 4{END}"
    assert completion_text("a\nb\n#### 4", thinking=False) == f"a\nb\n#### 4{END}"
