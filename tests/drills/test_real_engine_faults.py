"""The same on real SGLang: an engine loses its scheduler amid a request, which its first process finds out and acts on;
the answers are the same. A stopped engine is silent whatever it is: emulated ones are stopped."""

import drill
import pytest
import yaml
from support import quickstart_sweep

QUESTIONS = 8


@pytest.fixture
def sweep(tmp_path, cpu_engine):
    """A small sweep on the demo model with the quick start's engine settings, and its path."""
    engine = quickstart_sweep().model_dump(mode="json")["engine"]
    settings = {
        "name": "real-drill",
        "model": {"path": "builtin:demo"},
        # The cluster's workers have the user's own FARM_HOME, wherever this run's is.
        "engine": engine | {"python": str(cpu_engine), "stall_timeout_s": 5},
        "variants": [{"name": "nextn", "parts": ["nextn"]}],
        "workloads": {
            "gsm-mini": {
                "kind": "gsm8k",
                "source": "builtin:gsm-mini",
                "questions": QUESTIONS,
                "shots": 0,
                "instruction": False,
                "sampling": {"temperature": 0, "max_new_tokens": 256},
            }
        },
        "warmup_requests": 0,
    }
    path = tmp_path / "real.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


def test_killed_amid_a_request(home, demo_engine, sweep):
    from farm.spec.loading import load_sweep
    from farm.workloads.build import build

    job = drill.start(sweep, "--nodes", "1")
    drill.wait_for_records(2, timeout_s=300)
    first = drill.an_engine()
    # Its first process only looks after this one, which generates.
    next(one for one in first.children(recursive=True) if "scheduler" in " ".join(one.cmdline())).kill()
    outcome = job.wait(timeout_s=500)
    assert outcome.status == 0, outcome.output
    table = outcome.table.set_index("item_id")
    assert len(table) == QUESTIONS
    assert table["error"].isna().all()
    assert table["engine_id"].nunique() == 2
    assert set(table["attempts"]) <= {1, 2}
    assert set(table["label"]) == {"demo-model"}
    for item in build(load_sweep(sweep).workloads)["gsm-mini"]:
        ids = demo_engine.run(demo_engine.client.tokenize_chat(item.messages, item.template_kwargs))
        answer = demo_engine.generate(ids, **item.sampling)
        assert table.loc[item.item_id, "output_text"] == answer.text
        assert table.loc[item.item_id, "completion_tokens"] == answer.completion_tokens
    drill.wait_until_nothing_runs()
