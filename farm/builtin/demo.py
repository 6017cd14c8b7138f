"""The demo model and its workload: a small trained mixture of experts with a NEXTN layer, and problems to solve.

Everything measured with it carries the label `demo-model`: it shows that the farm works, and says nothing about a
large model.
"""

from pathlib import Path

_HERE = Path(__file__).resolve().parent


def model_path() -> Path:
    """The folder of the demo model, as SGLang's `--model-path` takes it."""
    return _HERE / "demo-model"


def test_path() -> Path:
    """The `gsm-mini` workload, JSONL: `id`, `question`, `answer` and what the problem is like. It is not GSM8K."""
    return _HERE / "gsm-mini" / "gsm-mini.jsonl"


def train_path() -> Path:
    """Problems of the training templates in the same format, for few-shot examples."""
    return _HERE / "gsm-mini" / "gsm-mini-train.jsonl"
