"""An engine that the farm does not know: it lives in the worker itself, and says after its prompt, a word at a time."""

import time

from farm.engines.base import Engine, EngineCommand, Evidence, Facts, Generation, OwnWords, Phase, RunningEngine
from farm.errors import RequestRefused, VariantNotActive

PACES = {"slow": 0.004, "quick": 0.002}


class RunningParrot(RunningEngine):
    """One bird on its perch."""

    def __init__(self, pace):
        self.pace, self.words = pace, {}

    @property
    def facts(self):
        """Its version and what it runs with."""
        evidence = Evidence("parrot", [OwnWords(pace=self.pace)])
        return Facts(start_s=0.01, version="1.0", evidence=evidence, server_info=OwnWords(pace=self.pace))

    async def tokenize_text(self, text):
        return [ord(char) for char in text]

    async def tokenize_chat(self, messages, template_kwargs):
        return [ord(char) for message in messages for char in message["content"]]

    async def detokenize(self, token_ids):
        return "".join(map(chr, token_ids))

    async def generate(self, input_ids, sampling, *, start_timeout_s=None):
        """Its prompt again, up to the limit."""
        if 0 in input_ids:
            raise RequestRefused("a parrot says no NUL")
        tokens = sampling["max_new_tokens"]
        seconds = [PACES[self.pace] * (index + 1) for index in range(tokens)]
        began = time.perf_counter()
        time.sleep(seconds[-1])
        return Generation(
            text=await self.detokenize((input_ids * tokens)[:tokens]),
            finish_reason="length",
            prompt_tokens=len(input_ids),
            completion_tokens=tokens,
            ttft_s=seconds[0],
            latency_s=seconds[-1],
            asked_s=time.perf_counter() - began,
            chunk_times_s=seconds,
            chunk_tokens=list(range(1, tokens + 1)),
        )

    async def stop(self):
        """Nothing is left of it."""


class Parrot(Engine):
    """Variants are paces; it only knows the slow and the quick one."""

    name = "parrot"
    label = "emulated"

    def needs_gpu(self, settings):
        return False

    def command(self, sweep, variant, *, model_path, python):
        return EngineCommand(("parrot", str(sweep.args_of(variant)["pace"])), {})

    async def start(self, launch, on_phase):
        """A bird of the pace that is asked for."""
        on_phase(Phase("fetching the parrot"))
        if (pace := launch.sweep.args_of(launch.variant)["pace"]) not in PACES:
            raise VariantNotActive(f"pace {pace} is asked for and the parrot is slow")
        return RunningParrot(pace)


PARROT = Parrot()
