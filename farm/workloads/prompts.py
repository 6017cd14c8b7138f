"""The user's own prompts: a JSONL file, one request a line.

Exactly one of these says what is sent:
    prompt: a text, sent as one user message through the model's chat template;
    messages: a list of {"role": system | user | assistant, "content": text}, through the chat template too;
    text: a text that the model continues as it is, without any chat template.

Everything else is optional:
    id: a name of the request, unique in the file; without it, `line-N` after the line;
    answer: the number that is right; a row with it is graded as GSM8K is;
    temperature, top_p, top_k, max_new_tokens: in place of the workload's own `sampling`, for this row.
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import ValidationError

from farm.errors import InputError
from farm.paths import absolute, expand
from farm.types import Item
from farm.workloads.base import Sampling, WorkloadBase, laid_over
from farm.workloads.jsonl import Row, checked_id, read_rows
from farm.workloads.numbers import number

CONTENT: Final = ("prompt", "messages", "text")
LIMITS: Final = tuple(Sampling.model_fields)
FIELDS: Final = (*CONTENT, "id", "answer", *LIMITS)
ROLES: Final = ("system", "user", "assistant")


_PROMPTS_SAMPLING: Final = Sampling(temperature=0.6, top_p=0.95, max_new_tokens=2048)


class PromptsWorkload(WorkloadBase):
    """The user's own prompts, a JSONL file."""

    kind: Literal["prompts"]
    file: str
    thinking: bool | None = None
    sampling: Annotated[Sampling, laid_over(_PROMPTS_SAMPLING)] = _PROMPTS_SAMPLING

    def items(self) -> list[Item]:
        """The requests of the file."""
        return items(self)

    @property
    def title(self) -> str:
        """The file's name."""
        return f"prompts of {self.source_name}"

    @property
    def source_name(self) -> str:
        """The file's name."""
        return Path(self.file).name

    def beside(self, folder: Path) -> Self:
        """The same with the file's absolute path."""
        return self.model_copy(update={"file": absolute(folder, self.file)})


def items(spec: PromptsWorkload) -> list[Item]:
    """The requests of the file, in its order.

    Raises:
        InputError: naming the file, the line, the field and the fix.
    """
    found: list[Item] = []
    locations: dict[str, str] = {}
    try:
        for row in read_rows(Path(expand(spec.file))):
            location, item = row.place, _item(row, spec)
            if item.item_id in locations:
                raise InputError(
                    f"{location}: id: '{item.item_id}' is taken by {locations[item.item_id].rpartition(', ')[2]}; "
                    "give each row an id of its own"
                )
            locations[item.item_id] = location
            found.append(item)
    except InputError as error:
        raise InputError(f"file: {error}") from error
    return found


def _item(read: Row, spec: PromptsWorkload) -> Item:
    location, row = read
    for name in row:
        if name not in FIELDS:
            near = get_close_matches(name, FIELDS, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"a row may hold {', '.join(FIELDS)}"
            raise InputError(f"{location}: {name!r:.80}: unknown field; {hint}")
    given = [name for name in CONTENT if name in row]
    if len(given) != 1:
        what = f"both {given[0]} and {given[1]}: keep one" if given else "nothing to ask: add prompt, messages or text"
        raise InputError(f"{location}: holds {what}")
    messages = text = None
    if given == ["messages"]:
        messages = _messages(location, row["messages"])
    elif given == ["prompt"]:
        messages = [{"role": "user", "content": _text(f"{location}: prompt", row["prompt"])}]
    else:
        text = _text(f"{location}: text", row["text"])
    line = location.rpartition(" ")[2]
    return Item(
        item_id=checked_id(location, row["id"]) if "id" in row else f"line-{line}",
        sampling=_sampling(read, spec),
        messages=messages,
        text=text,
        template_kwargs={} if spec.thinking is None or text else {"enable_thinking": spec.thinking},
        gold=_gold(location, row["answer"]) if row.get("answer") is not None else None,
    )


def _messages(location: str, value: Any) -> list[dict[str, str]]:
    if not isinstance(value, list) or not value:
        raise InputError(f"{location}: messages: must be a list with at least one message, not {value!r:.80}")
    for index, message in enumerate(value):
        where = f"{location}: messages.{index}"
        if not isinstance(message, dict) or set(message) != {"role", "content"}:
            raise InputError(f'{where}: must be {{"role": ..., "content": ...}} and nothing else, not {message!r:.80}')
        if message["role"] not in ROLES:
            raise InputError(f"{where}.role: must be one of {', '.join(ROLES)}, not {message['role']!r:.80}")
        _text(f"{where}.content", message["content"])
    if value[-1]["role"] != "user":
        raise InputError(f"{location}: messages: the last one must be the user's, the model answers it")
    return value


def _text(where: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{where}: must be a text that is not empty, not {value!r:.80}")
    return value


def _sampling(read: Row, spec: PromptsWorkload) -> dict[str, float]:
    location, row = read
    own = {name: row[name] for name in LIMITS if name in row}
    try:
        return Sampling.model_validate(spec.sampling.model_dump() | own, strict=True).model_dump()
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        field = problem["loc"][0]
        raise InputError(f"{location}: {field}: {problem['msg']}, not {problem['input']!r:.80}") from error


def _gold(location: str, value: Any) -> str:
    gold = None if isinstance(value, bool) else number(str(value))
    if gold is None:
        raise InputError(
            f"{location}: answer: only numbers can be graded, not {value!r:.80}; write a number, or leave answer out"
        )
    return gold
