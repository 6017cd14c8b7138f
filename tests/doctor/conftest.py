import json
import shutil
import struct

import pytest
from support import REPOSITORY

from farm.builtin.catalogue import builtin_model
from farm.spec.loading import load_sweep

QUICKSTART = REPOSITORY / "jobs" / "sweeps" / "quickstart.yaml"


@pytest.fixture
def quickstart(farm_home, cpu_engine):
    """The quick start with some fields set."""

    def load(*overrides):
        return load_sweep(QUICKSTART, list(overrides))

    return load


@pytest.fixture
def sharded_model(tmp_path):
    """The demo model as large models come: in two files with an index."""
    source, folder = builtin_model("demo"), tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(source / name, folder / name)
    content = (source / "model.safetensors").read_bytes()
    start = 8 + struct.unpack("<Q", content[:8])[0]
    tensors = {name: entry for name, entry in json.loads(content[8:start]).items() if name[:2] != "__"}
    shards = {f"model-0000{index}-of-00002.safetensors": sorted(tensors)[index - 1 :: 2] for index in (1, 2)}
    for shard, names in shards.items():
        header, data = {}, b""
        for name in names:
            low, high = tensors[name]["data_offsets"]
            header[name] = tensors[name] | {"data_offsets": [len(data), len(data) + high - low]}
            data += content[start + low : start + high]
        text = json.dumps(header).encode()
        (folder / shard).write_bytes(struct.pack("<Q", len(text)) + text + data)
    places = {name: shard for shard, names in shards.items() for name in names}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return folder
