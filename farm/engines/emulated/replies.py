"""What the emulated engine says: `/server_info` and the `meta_info` of a generation, in SGLang 0.5.23's form. Pure.

All seconds are the model's, so that they read the same at every speed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from farm.engines.emulated import shapes, tokenizer
from farm.engines.emulated.arguments import SPEED, VERSION
from farm.engines.emulated.schedule import Demand, Schedule

WEIGHTS_GB: Final = 63.0
TOKEN_CAPACITY: Final = 1_000_000
_RESERVED_TOKENS: Final = 6
NORMAL_CLOCK_MHZ: Final = 2418
MAX_CLOCK_MHZ: Final = 3003
DECODE_POWER_W: Final = 45.0  # assumed, of the GPU at its normal clock: nothing is published
_STATIC_POWER_SHARE: Final = 0.3  # of it, whatever the clock; assumed too


@dataclass
class Totals:
    """What an engine has done since its start."""

    last_gen_throughput: float = 0.0
    tokens_under_speculation: int = 0
    verify_rounds: int = 0

    def add(self, answer: Schedule) -> None:
        """Count a finished answer."""
        decode_s = answer.latency_s - answer.ttft_s
        if decode_s > 0:
            self.last_gen_throughput = (len(answer.ids) - 1) / decode_s
        self.tokens_under_speculation += len(answer.ids) if answer.verify_rounds else 0
        self.verify_rounds += answer.verify_rounds


def server_info(
    args: Mapping[str, Any],
    totals: Totals,
    *,
    launch_command: str,
    startup_time: Mapping[str, Any],
    slow_clock: float,
    env_vars: Mapping[str, str] | None,
) -> dict[str, Any]:
    """The whole of `/server_info`."""
    state: dict[str, Any] = {
        **args,
        "startup_time": startup_time,
        "effective_max_running_requests_per_dp": args["max_running_requests"],
        "last_gen_throughput": round(totals.last_gen_throughput, 2),
        "memory_usage": {
            "weight": WEIGHTS_GB,
            "kvcache": round(TOKEN_CAPACITY * shapes.MLA_LAYERS * shapes.KV_OF_TOKEN / 1e9, 3),
            "token_capacity": token_capacity(args),
            "token_capacity_swa": None,
            "graph": dict.fromkeys(startup_time["cuda_graph"], 0.0),
        },
    }
    if totals.verify_rounds:
        state["avg_spec_accept_length"] = totals.tokens_under_speculation / totals.verify_rounds
    if env_vars is not None:
        state["env_vars"] = dict(env_vars)
    return {
        **args,
        "launch_command": launch_command,
        "status": "ready",
        "max_total_num_tokens": token_capacity(args),
        "max_req_input_len": longest_prompt(args),
        "startup_time": startup_time,
        "internal_states": [state],
        "version": VERSION,
        "frontend": "python",
        "emulation": {"sm_clock_mhz": round(NORMAL_CLOCK_MHZ * slow_clock)},
    }


def token_capacity(args: Mapping[str, Any]) -> int:
    """Tokens that the KV cache holds."""
    return int(args["max_total_tokens"] or TOKEN_CAPACITY)


def longest_prompt(args: Mapping[str, Any]) -> int:
    """Tokens of the longest prompt that is not aborted: SGLang keeps a few of the cache for the answer."""
    return min(int(args["context_length"]), token_capacity(args)) - _RESERVED_TOKENS


def refused(message: str) -> dict[str, Any]:
    """The only event of a stream whose request is not accepted."""
    return {"error": {"message": message, "type": "invalid_request_error", "code": 400, "retryable": False}}


def aborted(args: Mapping[str, Any], message: str) -> dict[str, Any]:
    """The only event of a stream whose request is accepted and then given up: it looks like an answer of one token."""
    reason = {"type": "abort", "message": message, "status_code": 400, "err_type": "BadRequestError"}
    meta = {
        "id": "",
        "finish_reason": reason,
        "prompt_tokens": 1,
        "weight_version": args["weight_version"],
        "num_retractions": 0,
        "reasoning_tokens": 0,
        "completion_tokens": 1,
        "cached_tokens": 0,
        "e2e_latency": 0.0,
    }
    return {"text": " a", "output_ids": tokenizer.encode(" a"), "meta_info": meta}


@dataclass(frozen=True)
class Generation:
    """One request and its answer, as its chunks report them.

    Attributes:
        received_ts: when it came, UNIX seconds. Later time stamps count on from there, on the model's clock.
        queue_s: how long it waited for a place, on the model's clock.
    """

    rid: str
    demand: Demand
    answer: Schedule
    received_ts: float
    queue_s: float

    @property
    def first_token_s(self) -> float:
        """Seconds from the request to its first token, the wait for a place included."""
        return self.queue_s + self.answer.ttft_s

    @property
    def latency_s(self) -> float:
        """Seconds from the request to its last token, the wait for a place included."""
        return self.queue_s + self.answer.latency_s


def chunk_meta(args: Mapping[str, Any], job: Generation, completion_tokens: int, *, first: bool) -> dict[str, Any]:
    """`meta_info` of any chunk; the first one says when it was sent."""
    cached = job.demand.cached_tokens
    meta: dict[str, Any] = {
        "id": job.rid,
        "finish_reason": None,
        "prompt_tokens": job.demand.prompt_tokens,
        "weight_version": args["weight_version"],
        "num_retractions": 0,
        "reasoning_tokens": 0,
        "completion_tokens": completion_tokens,
        "cached_tokens": cached,
        "cached_tokens_details": {"device": cached, "host": 0} if cached else None,
        "dp_rank": None,
    }
    if args["enable_metrics"]:
        meta |= {
            "storage_prefetch_wait": 0.0,
            "storage_staging_wait": 0.0,
            "forward_entry_time": job.received_ts + job.queue_s,
            "prefill_finished_time": job.received_ts + job.first_token_s,
            "queue_time": job.queue_s,
        }
    if first:
        meta["response_sent_to_client_ts"] = job.received_ts + job.first_token_s
    return meta


def final_meta(args: Mapping[str, Any], job: Generation, slow_clock: float = 1.0) -> dict[str, Any]:
    """What the last chunk's `meta_info` adds to `chunk_meta`; `slow_clock` is the clock's share of the normal one."""
    answer = job.answer
    tokens = len(answer.ids)
    decode_s = answer.latency_s - answer.ttft_s
    meta: dict[str, Any] = {
        "finish_reason": (
            {"type": "stop", "matched": tokenizer.END}
            if answer.finish == "stop"
            else {"type": "length", "length": job.demand.limit}
        ),
        "weight_versions": [{"version": args["weight_version"], "start": 0, "end": tokens}],
        "e2e_latency": job.latency_s,
        "response_sent_to_client_ts": job.received_ts + job.first_token_s,
    }
    if args["enable_metrics"]:
        meta |= {
            "request_received_ts": job.received_ts,
            "api_server_dispatch_finish_ts": job.received_ts,
            "request_finished_ts": job.received_ts + job.latency_s,
            "first_token_latency": job.first_token_s,
        }
        if decode_s > 0:
            meta["decode_throughput"] = (tokens - 1) / decode_s
    if answer.verify_rounds:
        proposed = answer.verify_rounds * (args["speculative_num_draft_tokens"] - 1)
        meta |= {
            "spec_accept_rate": answer.accepted / proposed,
            "spec_accept_length": tokens / answer.verify_rounds,
            "spec_num_correct_drafts": answer.accepted,
            "spec_num_proposed_drafts": proposed,
            "spec_verify_ct": answer.verify_rounds,
            "spec_correct_drafts_histogram": answer.accept_histogram,
        }
    return meta | {
        SPEED: args[SPEED],
        "emulation_ttft_s": round(job.first_token_s, 6),
        "emulation_latency_s": round(job.latency_s, 6),
        "emulation_chunk_times_s": [round(job.queue_s + time_s, 6) for time_s in answer.times_s],
        "emulation_chunk_tokens": answer.tokens,
        "emulation_power_w": DECODE_POWER_W * (_STATIC_POWER_SHARE + (1 - _STATIC_POWER_SHARE) * slow_clock),
        "emulation_sm_clock_mhz": round(NORMAL_CLOCK_MHZ * slow_clock),
        "emulation_max_sm_clock_mhz": MAX_CLOCK_MHZ,
    }
