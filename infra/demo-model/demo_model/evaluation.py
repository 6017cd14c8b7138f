"""What the model answers, and how many drafts would be accepted, computed in plain torch."""

# mypy: disable-error-code="misc,untyped-decorator"
# torch is not installed where mypy runs: its classes and decorators are untyped there.

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from demo_model.network import NextN, Trunk
from demo_model.problems import Problem
from demo_model.tokenizer import END_ID, PAD_ID, prompt_text
from demo_model.training import PASSES, Batch, draft_logits

import torch  # isort: skip  (after network, whose error says how to get it)

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class Answered:
    """Token rows of prompts with their greedy completions: `tokens` [B, T], `prompt` and `end` lengths per row."""

    tokens: torch.Tensor
    prompt: list[int]
    end: list[int]


@torch.no_grad()
def answer_greedily(trunk: Trunk, prompts: Sequence[Sequence[int]], limit: int) -> Answered:
    """Greedy completions of at most `limit` tokens. Recomputes every prefix: simple, fast enough for some hundred."""
    device = trunk.lm_head.weight.device
    lengths = torch.tensor([len(p) for p in prompts], device=device)
    width = int(lengths.max()) + limit
    tokens = torch.full((len(prompts), width), PAD_ID, device=device)
    for row, prompt in enumerate(prompts):
        tokens[row, : len(prompt)] = torch.tensor(prompt, device=device)
    start, rows, done = lengths.clone(), torch.arange(len(prompts), device=device), torch.zeros_like(lengths).bool()
    for _ in range(limit):
        shown = int(lengths.max())
        mask = torch.ones(shown, shown, dtype=torch.bool, device=device).tril()[None, None]
        features = trunk.features(tokens[:, :shown], mask)[rows, lengths - 1]
        chosen = trunk.lm_head(features).argmax(-1)
        tokens[rows[~done], lengths[~done]] = chosen[~done]
        lengths = lengths + (~done).long()
        done |= chosen == END_ID
        if bool(done.all()):
            break
    return Answered(tokens, start.tolist(), lengths.tolist())


def last_number(text: str) -> str | None:
    """What follows the last `####`; None when the answer never came."""
    _, mark, result = text.rpartition("####")
    return result.strip() if mark else None


def accuracy(
    trunk: Trunk, tokenizer: "Tokenizer", problems: Sequence[Problem], limit: int
) -> tuple[list[bool], Answered]:
    """Which problems are answered right, greedily and with thinking, and the answers."""
    prompts = [tokenizer.encode(prompt_text(p.question, thinking=True), add_special_tokens=False).ids for p in problems]
    answered = answer_greedily(trunk, prompts, limit)
    right = []
    for row, problem in enumerate(problems):
        text = tokenizer.decode(answered.tokens[row, answered.prompt[row] : answered.end[row]].tolist())
        right.append(last_number(text) == last_number(problem.answer))
    return right, answered


@torch.no_grad()
def acceptance(trunk: Trunk, nextn: NextN, answered: Answered) -> tuple[float, list[int]]:
    """Accept length (token-weighted) of greedy verification over given answers, and rounds by accepted drafts.

    Replays the rounds exactly: what a draft step proposes depends on the accepted text alone, so one pass over the
    finished answers tells every round.
    """
    width = max(answered.end)
    tokens = answered.tokens[:, :width]
    positions = torch.arange(width, device=tokens.device)
    ends = torch.tensor(answered.end, device=tokens.device)
    document = (positions < ends[:, None]).to(torch.uint8)
    batch = Batch(tokens, document, document.bool())
    mask = torch.ones(width, width, dtype=torch.bool, device=tokens.device).tril()[None, None]
    features = trunk.features(tokens, mask)
    proposed = [logits.argmax(-1) for logits in draft_logits(trunk, nextn, batch, features, PASSES)]
    # hit[k][row, s]: the k-th draft of the round whose last known token is s + 1 equals token s + 2 + k.
    hits = [(p[:, k:-1] == tokens[:, 2 + k :]).tolist() for k, p in enumerate(proposed)]
    histogram = [0] * (PASSES + 1)
    emitted = 0
    for row, (prompt, end) in enumerate(zip(answered.prompt, answered.end, strict=True)):
        last = prompt  # the prefill gives the first token; a round's drafts follow it
        while last < end - 1:
            accepted = 0
            while accepted < PASSES and last + 1 + accepted < end and hits[accepted][row][last - 1]:
                accepted += 1
            histogram[accepted] += 1
            emitted += min(accepted + 1, end - 1 - last)
            last += accepted + 1
    return emitted / max(1, sum(histogram)), histogram
