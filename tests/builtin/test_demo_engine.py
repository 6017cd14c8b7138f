"""The demo model on real SGLang: one CPU engine with NEXTN answers some of the shipped problems."""

import json

import pytest
from demo_model.tokenizer import load_tokenizer, prompt_text

from farm.builtin import demo
from farm.workloads import gsm8k
from farm.workloads.grading import grade
from farm.workloads.gsm8k import Gsm8kWorkload

SHORT = 12
"""So many short problems are asked: their accuracy is high, and they take seconds."""


@pytest.fixture(scope="module")
def answers(demo_engine):
    items = [json.loads(line) for line in demo.test_path().read_text(encoding="utf-8").splitlines()]
    found = []
    for item in [item for item in items if item["steps"] <= 3][:SHORT]:
        ids = demo_engine.chat(item["question"], enable_thinking=True)
        found.append((item, ids, demo_engine.generate(ids, temperature=0, max_new_tokens=200)))
    return found


def test_the_engine_applies_the_chat_template_that_was_trained(answers):
    tokenizer = load_tokenizer(demo.model_path())
    for item, ids, _ in answers:
        prompt = prompt_text(item["question"], thinking=True)
        assert ids == tokenizer.encode(prompt, add_special_tokens=False).ids


def test_most_short_problems_are_solved_after_thinking(answers):
    assert all("</think>" in answer.text for _, _, answer in answers)
    right = sum(
        grade(answer.text, item["answer"].rpartition("####")[2], thinking=True).correct for item, _, answer in answers
    )
    assert right >= 0.7 * len(answers)


def test_drafts_of_the_trained_nextn_layer_are_accepted(answers):
    tokens = sum(answer.meta["completion_tokens"] for _, _, answer in answers)
    rounds = sum(answer.meta["spec_verify_ct"] for _, _, answer in answers)
    assert tokens / rounds > 2.2


def test_all_gsm8k_questions_are_tokenized_with_their_shots(demo_engine, gsm8k_folder):
    """The 1,319 real questions with 5 train shots, by the engine's own tokenizer and template."""
    items = gsm8k.items(Gsm8kWorkload(kind="gsm8k", source=str(gsm8k_folder)))
    assert len({item.item_id for item in items}) == 1319
    client = demo_engine.client
    lengths = [len(demo_engine.run(client.tokenize_chat(item.messages, item.template_kwargs))) for item in items]
    assert min(lengths) > 500
