"""GSM8K as a workload: which questions, what is said to the model, and where the data comes from."""

import json
import socket

import datasets
import pytest

from farm.builtin import demo
from farm.errors import InputError
from farm.workloads import gsm8k
from farm.workloads.gsm8k import Gsm8kWorkload
from farm.workloads.items import digest

TEST = [
    {"question": f"What is {n} plus {n}?", "answer": f"{n} + {n} = <<{n}+{n}={2 * n}>>{2 * n}\n#### {2 * n}"}
    for n in range(1, 9)
]
TRAIN = [
    {"question": f"What is {n} times 3?", "answer": f"It is <<{n}*3={3 * n}>>{3 * n}.\n#### {3 * n}"}
    for n in range(1, 8)
]


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "test.jsonl", TEST)
    write(tmp_path / "train.jsonl", TRAIN)
    return tmp_path


@pytest.fixture
def no_hub(tmp_path, monkeypatch):
    """An empty cache, and a hub that refuses the connection."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setattr(datasets.config, "HF_ENDPOINT", f"http://127.0.0.1:{free.getsockname()[1]}")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.delenv("FARM_GSM8K", raising=False)


def workload(source, **settings):
    return Gsm8kWorkload(kind="gsm8k", source=str(source), **settings)


def test_a_fixed_output_length_measures_speed_and_grades_nothing(folder):
    items = gsm8k.items(workload(folder, output_tokens=128))
    assert {item.sampling["max_new_tokens"] for item in items} == {128}
    assert all(item.sampling["ignore_eos"] and item.gold is None for item in items)


def test_the_published_protocol_on_the_real_data(gsm8k_folder):
    items = gsm8k.items(workload(gsm8k_folder))
    assert len(items) == 1319
    assert len({item.item_id for item in items}) == 1319
    assert (items[0].item_id, items[0].gold) == ("test-0000", "18")
    assert items[1318].item_id == "test-1318"
    assert items[0].sampling == {"temperature": 0.6, "top_p": 0.95, "top_k": 29, "max_new_tokens": 32768}
    assert items[0].template_kwargs == {"enable_thinking": True}
    assert [message["role"] for message in items[0].messages] == ["user"]
    prompt = items[0].messages[0]["content"]
    assert prompt.count("Question: ") == 6
    assert prompt.count("#### ") == 6  # five examples and the instruction
    assert "<<" not in prompt
    assert prompt.endswith("How much in dollars does she make every day at the farmers' market?")


def test_examples_come_from_train_and_are_the_same_for_all():
    items = gsm8k.items(workload("builtin:gsm-mini"))
    tested = {item.shown_prompt.rpartition("Question: ")[2] for item in items}
    shown = {item.shown_prompt.rpartition("Question: ")[0] for item in items}
    assert len(shown) == 1
    examples = [part.partition("\nAnswer:")[0] for part in shown.pop().split("Question: ")[1:]]
    train = [json.loads(line)["question"] for line in demo.train_path().open(encoding="utf-8")]
    assert examples == train[:5]
    assert not set(examples) & tested


def test_a_question_keeps_its_name_in_every_subset_and_order(folder):
    everything = {item.item_id: item for item in gsm8k.items(workload(folder))}
    for settings in ({"questions": 3}, {"order": "shuffled"}, {"order": "shuffled", "seed": 1, "questions": 5}):
        for item in gsm8k.items(workload(folder, **settings)):
            assert item == everything[item.item_id]


def test_order_and_subset(folder):
    def names(**settings):
        return [item.item_id for item in gsm8k.items(workload(folder, **settings))]

    assert names(questions=3) == ["test-0000", "test-0001", "test-0002"]
    shuffled = names(order="shuffled")
    assert sorted(shuffled) == names()
    assert shuffled != names()
    assert names(order="shuffled", seed=7) != shuffled
    assert names(order="shuffled", questions=3) == shuffled[:3]
    # The same on every machine and Python version.
    assert shuffled[:4] == ["test-0004", "test-0000", "test-0001", "test-0003"]


def test_no_shots_need_no_train_file(folder):
    (folder / "train.jsonl").unlink()
    item = gsm8k.items(workload(folder, shots=0))[0]
    assert item.shown_prompt == f"{gsm8k.INSTRUCTION}\n\nQuestion: What is 1 plus 1?"
    with pytest.raises(InputError, match=r"source: .* holds no train file.*shots: 0"):
        gsm8k.items(workload(folder))


def test_settings_reach_the_items(folder):
    settings = workload(folder, thinking=False, sampling={"temperature": 0, "max_new_tokens": 64})
    item = gsm8k.items(settings)[0]
    assert item.template_kwargs == {"enable_thinking": False}
    assert item.sampling == {"temperature": 0.0, "top_p": 0.95, "top_k": 29, "max_new_tokens": 64}


@pytest.mark.parametrize(
    "spelling", ["{}.parquet", "main/{}-00000-of-00001.parquet", "main/{}.jsonl", "data/{}-00000-of-00001.parquet"]
)
def test_a_clone_of_the_hub_repository_is_a_source(tmp_path, folder, spelling):
    expected = digest(gsm8k.items(workload(folder)))
    clone = tmp_path / "clone"
    for split, rows in (("test", TEST), ("train", TRAIN)):
        path = clone / spelling.format(split)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".parquet":
            datasets.Dataset.from_list(rows).to_parquet(path)
        else:
            write(path, rows)
    assert digest(gsm8k.items(workload(clone))) == expected


def test_parquet_in_several_files_is_read_in_order(tmp_path, folder):
    clone = tmp_path / "clone"
    clone.mkdir()
    for number in (0, 1):
        part = TEST[:5] if number == 0 else TEST[5:]
        datasets.Dataset.from_list(part).to_parquet(clone / f"test-0000{number}-of-00002.parquet")
    assert digest(gsm8k.items(workload(clone, shots=0))) == digest(gsm8k.items(workload(folder, shots=0)))


def test_what_the_library_has_cached_needs_no_hub(tmp_path, folder, no_hub):
    # The library's own cache, as loading from the hub leaves it.
    clone = tmp_path / "gsm8k"
    for split in ("test", "train"):
        write(clone / f"{split}.jsonl", TEST if split == "test" else TRAIN)
    (clone / "README.md").write_text(
        "---\nconfigs:\n- config_name: main\n  data_files:\n  - {split: test, path: test.jsonl}\n"
        "  - {split: train, path: train.jsonl}\n---\n"
    )
    datasets.load_dataset(str(clone), "main", cache_dir=str(tmp_path / "cache"))
    (tmp_path / "cache" / "gsm8k").rename(tmp_path / "cache" / "openai___gsm8k")
    assert digest(gsm8k.items(workload("openai/gsm8k"))) == digest(gsm8k.items(workload(folder)))


@pytest.mark.parametrize("offline", [False, True])
def test_without_cache_and_hub_the_error_says_how_to_get_the_data(no_hub, monkeypatch, offline):
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", offline)
    with pytest.raises(InputError) as caught:
        gsm8k.items(workload("openai/gsm8k"))
    message = str(caught.value)
    assert message.startswith("source: train of openai/gsm8k (config main)")
    assert "hf download openai/gsm8k --repo-type dataset" in message
    assert "set `source`" in message
    assert "FARM_GSM8K" in message
    assert "builtin:gsm-mini" in message
    assert ("HF_HUB_OFFLINE" in message) is offline
    assert datasets.config.HF_HUB_OFFLINE is offline


def test_one_variable_names_the_folder_for_all_sweeps_that_ask_the_hubs_data(folder, no_hub, monkeypatch):
    monkeypatch.setenv("FARM_GSM8K", str(folder))
    assert digest(gsm8k.items(workload("openai/gsm8k"))) == digest(gsm8k.items(workload(folder)))
    with pytest.raises(InputError, match="somebody/else"):
        gsm8k.items(workload("somebody/else"))


@pytest.mark.parametrize("named", ["/nowhere/at-all", "."])
def test_a_variable_that_names_no_folder_is_named_itself(folder, monkeypatch, named):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("FARM_GSM8K", named)
    with pytest.raises(InputError, match=r"^source: FARM_GSM8K: .* is no "):
        gsm8k.items(workload("openai/gsm8k"))


def test_the_builtin_questions_have_exact_answers():
    items = gsm8k.items(workload("builtin:gsm-mini", shots=2))
    assert len(items) > 0
    assert all(item.item_id.startswith("gsm-mini-") for item in items)
    with pytest.raises(InputError, match="builtin:gsm-mini"):
        gsm8k.items(workload("builtin:gsm-maxi"))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "Q?"}, r"test.jsonl, line 9: answer: "),
        ({"question": " ", "answer": "#### 1"}, r"line 9: question: "),
        ({"question": 5, "answer": "#### 1"}, r"line 9: question: .* not 5"),
        ({"question": "Q?", "answer": "five"}, r"line 9: answer: must end in `#### N`"),
        ({"question": "Q?", "answer": "#### five"}, r"line 9: answer: must end in `#### N`"),
        ({"question": "Q?", "answer": "#### 1", "id": "a/b"}, r"line 9: id: "),
        ({"question": "Q?", "answer": "#### 1", "id": "test-0000"}, r"line 9: id: 'test-0000' is taken by .*line 1"),
        ([], r"line 9: is not a JSON object"),
    ],
)
def test_a_malformed_row_is_named(folder, row, message):
    with (folder / "test.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    with pytest.raises(InputError, match=rf"^source: .*{message}"):
        gsm8k.items(workload(folder, questions=1))


def test_a_malformed_parquet_row_is_named(tmp_path):
    path = tmp_path / "test.parquet"
    datasets.Dataset.from_list([*TEST[:1], {"question": "Q?", "answer": None}]).to_parquet(path)
    with pytest.raises(InputError, match=r"^source: .*test.parquet, row 1: answer: "):
        gsm8k.items(workload(tmp_path, shots=0))
    path.write_bytes(b"not parquet")
    with pytest.raises(InputError, match=r"^source: .*test.parquet: cannot be read as parquet"):
        gsm8k.items(workload(tmp_path, shots=0))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"questions": 9}, r"^questions: 9 are asked for and .* has 8"),
        ({"shots": 8}, r"^shots: 8 examples are asked for and .* has 7"),
    ],
)
def test_more_than_there_is(folder, settings, message):
    with pytest.raises(InputError, match=message):
        gsm8k.items(workload(folder, **settings))


def test_no_such_folder(tmp_path):
    with pytest.raises(InputError, match=r"^source: .* is no folder"):
        gsm8k.items(workload(tmp_path / "missing"))


def test_without_shots_and_instruction_the_question_stands_alone():
    spec = Gsm8kWorkload(kind="gsm8k", source="builtin:gsm-mini", shots=0, instruction=False, questions=3)
    for item in gsm8k.items(spec):
        assert item.messages is not None
        assert "####" not in item.messages[0]["content"]
        assert item.messages[0]["content"].endswith("?")
