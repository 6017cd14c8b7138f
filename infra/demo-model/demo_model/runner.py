"""The whole training run: tokenizer, trunk, NEXTN layer, export and a report, each part resumed where it stopped."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from demo_model import checkpoint
from demo_model.corpus import RowSource
from demo_model.evaluation import acceptance, accuracy
from demo_model.network import NextN, Trunk, initialise
from demo_model.problems import MAX_STEPS, problems
from demo_model.shape import Shape
from demo_model.tokenizer import (
    END_ID,
    PAD_ID,
    completion_text,
    load_tokenizer,
    prompt_text,
    save_tokenizer,
    train_tokenizer,
)
from demo_model.training import Batch, make_optimiser, nextn_loss, run_steps, to_device, trunk_loss
from demo_model.workload import SCALES, SEED, TEST_ITEMS, shipped, tokenizer_corpus

import torch  # isort: skip  (after network, whose error says how to get it)
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Settings:
    """One training run. Two runs with the same settings on the same kind of machine train on the same batches."""

    out: Path
    shape: Shape
    device: str
    seed: int
    rows: int
    length: int
    trunk_steps: int
    nextn_steps: int
    trunk_peak: float
    nextn_peak: float
    workers: int
    limit_s: float
    """Stop after so many seconds, with a checkpoint to go on from."""
    save_every_s: float
    evaluated: int
    """How many shipped problems are answered for the report."""


class OutOfTimeError(Exception):
    """The time limit came first; run again to go on."""


class Run:
    """State that the phases share: where the checkpoints are, the clock, and the log."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.began = time.monotonic()
        self.device = torch.device(settings.device)
        self.model_folder = settings.out / "model"
        self.model_folder.mkdir(parents=True, exist_ok=True)
        self.log_file = settings.out / "log.jsonl"

    def log(self, **values: Any) -> None:
        """Append a line to the log and print it."""
        line = json.dumps({"seconds": round(time.monotonic() - self.began, 1), **values})
        print(line, flush=True)
        with self.log_file.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def batches(self, first: int, seed: int) -> tuple[Iterator[Batch], Callable[[], None]]:
        """Training batches from number `first` on, and what stops their workers."""
        s = self.settings
        source = RowSource(self.model_folder, seed, rows=s.rows, length=s.length, workers=s.workers, first=first)
        return (to_device(source.next(), self.device) for _ in iter(int, 1)), source.close

    def train(self, phase: str, module: nn.Module, loss_of: Callable[[Batch], Tensor], steps: int, peak: float) -> None:
        """Train one module to its number of steps, from its checkpoint where there is one."""
        path = self.settings.out / f"{phase}.pt"
        optimiser = make_optimiser(module, peak)
        first = 0
        if path.exists():
            stored = torch.load(path, map_location=self.device, weights_only=True)
            module.load_state_dict(stored["module"])
            optimiser.load_state_dict(stored["optimiser"])
            first = int(stored["step"])
        if first >= steps:
            return
        saved_at = started = time.monotonic()
        shown_at = first

        def save(step: int) -> None:
            part = path.with_suffix(".part")
            state = {"module": module.state_dict(), "optimiser": optimiser.state_dict(), "step": step}
            torch.save(state, part)
            part.replace(path)

        def after(step: int, loss: Tensor) -> bool:
            nonlocal saved_at, shown_at, started
            if step % 100 == 99 or step + 1 == steps:
                now = time.monotonic()
                rate = (step + 1 - shown_at) / (now - started)
                self.log(phase=phase, step=step + 1, loss=round(float(loss), 4), steps_per_s=round(rate, 2))
                shown_at, started = step + 1, now
            now = time.monotonic()
            if now - saved_at > self.settings.save_every_s:
                save(step + 1)
                saved_at = now
            return now - self.began < self.settings.limit_s

        batches, close = self.batches(first, self.settings.seed + (phase == "nextn"))
        try:
            module.train()
            done = run_steps(module, loss_of, batches, optimiser, first=first, steps=steps, peak=peak, after=after)
        finally:
            close()
        save(done)
        if done < steps:
            raise OutOfTimeError(f"{phase} stopped at step {done} of {steps}")


def make_tokenizer(run: Run) -> None:
    """Learn the tokenizer, unless the folder has one."""
    if (run.model_folder / "tokenizer.json").exists():
        return
    texts = [
        prompt_text(p.question, thinking=True) + completion_text(p.answer, thinking=True) for p in tokenizer_corpus()
    ]
    tokenizer = train_tokenizer(texts, run.settings.shape.vocab)
    if tokenizer.get_vocab_size() != run.settings.shape.vocab:
        raise ValueError(f"the corpus gave {tokenizer.get_vocab_size()} tokens, not {run.settings.shape.vocab}")
    save_tokenizer(tokenizer, run.model_folder, run.settings.shape.context)


def survey(run: Run, trunk: Trunk, count: int) -> dict[str, dict[str, float]]:
    """Accuracy by size of numbers and by worked steps, on test-split problems other than the shipped ones."""
    tokenizer = load_tokenizer(run.model_folder)
    drawn = list(islice(problems(SEED + 1, "test", dict.fromkeys(SCALES, 1.0)), count))
    right: list[bool] = []
    for start in range(0, count, 256):
        right += accuracy(trunk, tokenizer, drawn[start : start + 256], limit=280)[0]
    table: dict[str, dict[str, float]] = {}
    for scale in SCALES:
        for steps in range(1, MAX_STEPS + 1):
            cell = [ok for ok, p in zip(right, drawn, strict=True) if (p.scale, p.steps) == (scale, steps)]
            if cell:
                table.setdefault(scale, {})[str(steps)] = round(sum(cell) / len(cell), 3)
    return table


def report(run: Run, trunk: Trunk, nextn: NextN) -> dict[str, Any]:
    """Accuracy and accept length on the shipped test problems, in plain torch with the exported weights."""
    asked = shipped("test", TEST_ITEMS)[: run.settings.evaluated]
    right, answered = accuracy(trunk, load_tokenizer(run.model_folder), asked, limit=280)
    length, histogram = acceptance(trunk, nextn, answered)
    tokens = [end - prompt for end, prompt in zip(answered.end, answered.prompt, strict=True)]
    return {
        "items": len(asked),
        "accuracy": round(sum(right) / len(right), 4),
        "accept_length": round(length, 3),
        "accept_histogram": histogram,
        "mean_tokens": round(sum(tokens) / len(tokens), 1),
        "survey": survey(run, trunk, 8 * run.settings.evaluated),
    }


def train_demo_model(settings: Settings) -> dict[str, Any]:
    """Do whatever of the run is still to do; returns the report. Raises `OutOfTimeError` at the time limit."""
    run = Run(settings)
    torch.set_float32_matmul_precision("high")
    make_tokenizer(run)
    generator = torch.Generator().manual_seed(settings.seed)
    trunk, nextn = Trunk(settings.shape), NextN(settings.shape)
    initialise(trunk, settings.shape.layers, generator)
    initialise(nextn, 1, generator)
    trunk.to(run.device)
    nextn.to(run.device)
    trained = sum(p.numel() for p in trunk.parameters()), sum(p.numel() for p in nextn.parameters())
    run.log(shape=asdict(settings.shape), trunk_parameters=trained[0], nextn_parameters=trained[1])
    run.train("trunk", trunk, partial(trunk_loss, trunk), settings.trunk_steps, settings.trunk_peak)
    trunk.eval().requires_grad_(False)
    run.train("nextn", nextn, partial(nextn_loss, trunk, nextn), settings.nextn_steps, settings.nextn_peak)
    nextn.eval()
    checkpoint.round_to_bf16(trunk, nextn)
    checkpoint.save(run.model_folder, trunk, nextn, pad_id=PAD_ID, end_id=END_ID)
    result = report(run, trunk, nextn)
    run.log(report=result)
    return result
