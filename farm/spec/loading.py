"""A sweep from its YAML file and `--set` overrides. Every error names the file, the field and the fix."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, get_args

import yaml
from pydantic import BaseModel, ValidationError

from farm.errors import InputError
from farm.paths import not_shipped
from farm.redaction import is_secret
from farm.spec.models import Sweep, argument_name

MAX_SWEEP_BYTES: Final = 1 << 20


class _OneOfEachKey(yaml.SafeLoader):
    """YAML's safe loader, which of two equal keys would silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"):
            if key.value in seen:
                raise yaml.YAMLError(f"line {key.start_mark.line + 1}: '{key.value}' is given twice; keep one of them")
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def load_sweep(
    path: Path, overrides: list[str] | None = None, problem_of: Callable[[Sweep], str | None] = lambda sweep: None
) -> Sweep:
    """Read a sweep file, lay `dotted.key=value` overrides over it, and check it.

    `problem_of` says what else may be wrong with it: what its engine makes of it, for one, which is not known here.

    Raises:
        InputError: naming the file, the field and the fix.
    """
    try:
        if path.stat().st_size > MAX_SWEEP_BYTES:
            raise InputError(
                f"{path}: larger than 1 MiB; a sweep file holds settings, data belongs in files of its own"
            )
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}{not_shipped()}") from error
    raw = _parsed(text, str(path))
    if not isinstance(raw, dict):
        raise InputError(f"{path}: a sweep is a mapping with at least name, model, variants and workloads")
    for override in overrides or []:
        _override(raw, override)
    try:
        sweep = Sweep.model_validate(raw)
    except ValidationError as error:
        raise InputError(f"{path}: {_first_problem(error)}") from error
    except InputError as error:
        raise InputError(f"{path}: variants: {error}") from error
    if (problem := problem_of(sweep)) is not None:
        raise InputError(f"{path}: {problem}")
    # A job's working directory is a temporary copy.
    workloads = {name: workload.beside(path.parent) for name, workload in sweep.workloads.items()}
    return sweep.model_copy(update={"workloads": workloads})


def _parsed(text: str, where: str) -> Any:
    """YAML of a file or of an override, by the same rules."""
    try:
        return yaml.load(text, _OneOfEachKey)  # noqa: S506 - a safe loader
    except yaml.YAMLError as error:
        raise InputError(f"{where}: is not valid YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise InputError(f"{where}: is nested too deeply to be a sweep") from error


def _override(raw: dict[Any, Any], override: str) -> None:
    dotted, separator, text = override.partition("=")
    keys = dotted.split(".")
    if not separator or not all(keys):
        raise InputError(f"--set {override}: write it as dotted.key=value, for example engine.concurrency=2")
    value = _parsed(text, f"--set {dotted}")
    location: Any = raw
    for depth, key in enumerate(keys):
        here = ".".join(keys[:depth]) or "the sweep"
        if isinstance(location, list):
            if not key.isdigit() or int(key) >= len(location):
                raise InputError(
                    f"--set {override}: {here} is a list of {len(location)}; '{key}' is not one of its indices"
                )
            step: Any = int(key)
        elif isinstance(location, dict):
            step = key
        else:
            raise InputError(f"--set {override}: {here} is a plain value and has no '{key}'")
        if depth == len(keys) - 1:
            if isinstance(location, dict) and keys[-2:-1] == ["args"]:
                for known in [name for name in location if argument_name(str(name)) == argument_name(key)]:
                    del location[known]  # the same argument, written in another way
            location[step] = value
        else:
            if isinstance(location, dict) and location.get(step) is None:
                location[step] = {}
            location = location[step]


def _first_problem(error: ValidationError) -> str:
    # A misspelt field is the cause of the one that is then missing.
    problem = min(error.errors(include_url=False), key=lambda one: one["type"] != "extra_forbidden")
    where = [str(part) for part in problem["loc"]]
    if where[:1] == ["workloads"] and len(where) > 2:
        del where[2]  # pydantic's own: the kind of the workload
    location = ".".join(where)
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if problem["type"] == "extra_forbidden":
        near = get_close_matches(where[-1], _known_fields(), n=1)
        hint = f"; did you mean '{near[0]}'?" if near else "; remove it"
        return f"{location}: unknown field{hint}{more}"
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "missing":
        message = "is missing; add it"
    elif problem["type"] != "value_error" and not any(is_secret(part) for part in where):
        message = f"{message}, not {problem['input']!r:.80}"
    return f"{location}: {message}{more}" if location else f"{message}{more}"


def _known_fields() -> set[str]:
    return set(_fields_of(Sweep))


def _fields_of(annotation: Any) -> Iterator[str]:
    """Names of the fields of a model, and of the models within it."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items():
            yield name
            yield from _fields_of(field.annotation)
    for inner in get_args(annotation):
        yield from _fields_of(inner)
