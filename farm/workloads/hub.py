"""Data sets through the `datasets` library: the local cache first, then the hub, and a clear word within seconds.

The library asks the hub even for what it has cached, and retries a hub that it cannot reach for half a minute.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from farm.errors import InputError
from farm.workloads.jsonl import Row

PROBE_TIMEOUT_S: Final = 5.0


def rows(name: str, config: str, split: str) -> list[Row]:
    """The rows of one split of a hub data set, each with its place for error messages.

    Raises:
        InputError: it is neither cached nor to be had from the hub; the message says how to get it.
    """
    import datasets
    from huggingface_hub import HfApi

    try:
        with _offline():
            data = datasets.load_dataset(name, config, split=split)
    except Exception:
        # Whatever the cache lacked, the hub may have: what the hub says is what the user needs to hear.
        try:
            if datasets.config.HF_HUB_OFFLINE:
                raise ConnectionError("HF_HUB_OFFLINE or HF_DATASETS_OFFLINE is set") from None
            HfApi(endpoint=datasets.config.HF_ENDPOINT).dataset_info(name, timeout=PROBE_TIMEOUT_S)
            data = datasets.load_dataset(name, config, split=split)
        except Exception as error:
            raise InputError(_how_to_get(name, config, split, error)) from error
    return [Row(f"{name}, {split} row {number}", dict(row)) for number, row in enumerate(data)]


def parquet_rows(paths: list[Path]) -> list[Row]:
    """The rows of the parquet files of one split, in order, each with its place for error messages.

    Raises:
        InputError: a file cannot be read.
    """
    import datasets

    found = []
    for path in paths:
        try:
            # Streamed: a copy in the library's cache would be kept for ever, and would need a home to write to.
            data = list(datasets.load_dataset("parquet", data_files=str(path), split="train", streaming=True))
        except Exception as error:
            raise InputError(f"source: {path}: cannot be read as parquet: {_short(error)}") from error
        found += [Row(f"{path}, row {number}", dict(row)) for number, row in enumerate(data)]
    return found


@contextmanager
def _offline() -> Iterator[None]:
    import datasets

    before = datasets.config.HF_HUB_OFFLINE, datasets.logging.get_verbosity()
    datasets.config.HF_HUB_OFFLINE = True
    datasets.logging.set_verbosity_error()  # it warns that it uses its cache, which is what is asked of it here
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE = before[0]
        datasets.logging.set_verbosity(before[1])


def _how_to_get(name: str, config: str, split: str, error: Exception) -> str:
    return (
        f"source: {split} of {name} (config {config}) is not in the local cache and cannot be loaded from the hub: "
        f"{_short(error)}. On a machine with internet, run `hf download {name} --repo-type dataset --local-dir gsm8k`, "
        "copy the folder here and set `source` to its absolute path; a folder with test.jsonl and train.jsonl does as "
        "well. FARM_GSM8K names such a folder once for all sweeps, in the environment that Ray was started with. "
        "`source: builtin:gsm-mini` needs no download"
    )


def _short(error: Exception) -> str:
    return f"{' '.join(str(error).split()) or type(error).__name__:.200}"
