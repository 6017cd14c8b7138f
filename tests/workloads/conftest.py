"""GSM8K itself: beside the checkout, or where FARM_TEST_GSM8K says."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def gsm8k_folder() -> Path:
    beside = Path(__file__).parents[3] / "shared" / "data" / "gsm8k"
    folder = Path(os.environ.get("FARM_TEST_GSM8K") or beside)
    if not (folder / "test.jsonl").is_file():
        pytest.skip(f"GSM8K is not at {folder}: set FARM_TEST_GSM8K to a folder with test.jsonl and train.jsonl")
    return folder
