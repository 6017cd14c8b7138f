"""`comparison.schema.json`, the JSON Schema of `--format json`: `python -m farm.compare.schema` writes it anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from farm.compare.model import Comparison

PATH: Final = Path(__file__).with_name("comparison.schema.json")


def schema_text() -> str:
    """The schema of what the model writes, as it is checked in."""
    schema = Comparison.model_json_schema(mode="serialization")
    # It is there only where it was asked for.
    schema["required"] = [name for name in schema["required"] if name != "published"]
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema
    return json.dumps(schema, indent=2) + "\n"


if __name__ == "__main__":
    PATH.write_text(schema_text(), encoding="utf-8")
