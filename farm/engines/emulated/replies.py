"""What the emulated engine says: `/server_info` and the `meta_info` of a generation, in SGLang 0.5.23's form. Pure.

All seconds are the model's, so that they read the same at every speed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Required

from pydantic import JsonValue, SerializerFunctionWrapHandler, model_serializer
from typing_extensions import TypedDict

from farm.engines.emulated import shapes, tokenizer
from farm.engines.emulated.arguments import VERSION, ServerArgs
from farm.engines.emulated.schedule import Demand, Schedule
from farm.engines.emulated.startup import StartupTime

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


class MemoryUsage(TypedDict):
    """GB, and tokens of the KV cache."""

    weight: float
    kvcache: float
    token_capacity: int
    token_capacity_swa: int | None
    graph: dict[str, float]


class InternalState(ServerArgs):
    """What the scheduler says of itself."""

    startup_time: StartupTime
    effective_max_running_requests_per_dp: int
    last_gen_throughput: float
    memory_usage: MemoryUsage
    avg_spec_accept_length: float | None = None
    env_vars: dict[str, str] | None = None

    @model_serializer(mode="wrap")
    def _only_what_is_known(self, serialize: SerializerFunctionWrapHandler) -> dict[str, JsonValue]:
        optional = ("avg_spec_accept_length", "env_vars")
        return {name: value for name, value in serialize(self).items() if value is not None or name not in optional}


class ServerInfo(ServerArgs):
    """The whole of `/server_info`."""

    launch_command: str
    status: str = "ready"
    max_total_num_tokens: int
    max_req_input_len: int
    startup_time: StartupTime
    internal_states: list[InternalState]
    version: str = VERSION
    frontend: str = "python"
    emulation: dict[str, int]


def server_info(
    args: ServerArgs,
    totals: Totals,
    *,
    launch_command: str,
    startup_time: StartupTime,
    slow_clock: float,
    env_vars: Mapping[str, str] | None,
) -> ServerInfo:
    """What `/server_info` tells after these totals."""
    given = args.model_dump()
    state = InternalState(
        **given,
        startup_time=startup_time,
        effective_max_running_requests_per_dp=args.max_running_requests,
        last_gen_throughput=round(totals.last_gen_throughput, 2),
        memory_usage={
            "weight": WEIGHTS_GB,
            "kvcache": round(TOKEN_CAPACITY * shapes.MLA_LAYERS * shapes.KV_OF_TOKEN / 1e9, 3),
            "token_capacity": token_capacity(args),
            "token_capacity_swa": None,
            "graph": dict.fromkeys(startup_time["cuda_graph"], 0.0),
        },
        avg_spec_accept_length=totals.tokens_under_speculation / totals.verify_rounds if totals.verify_rounds else None,
        env_vars=None if env_vars is None else dict(env_vars),
    )
    return ServerInfo(
        **given,
        launch_command=launch_command,
        max_total_num_tokens=token_capacity(args),
        max_req_input_len=longest_prompt(args),
        startup_time=startup_time,
        internal_states=[state],
        emulation={"sm_clock_mhz": round(NORMAL_CLOCK_MHZ * slow_clock)},
    )


def token_capacity(args: ServerArgs) -> int:
    """Tokens that the KV cache holds."""
    return int(args.max_total_tokens or TOKEN_CAPACITY)


def longest_prompt(args: ServerArgs) -> int:
    """Tokens of the longest prompt that is not aborted: SGLang keeps a few of the cache for the answer."""
    return min(int(args.context_length), token_capacity(args)) - _RESERVED_TOKENS


class RefusedBody(TypedDict):
    """Why a request is not accepted."""

    message: str
    type: str
    code: int
    retryable: bool


class Refused(TypedDict):
    """The only event of a stream whose request is not accepted."""

    error: RefusedBody


class FinishReason(TypedDict, total=False):
    """Why an answer ended; `type` says which of the others are there."""

    type: Required[str]
    matched: int
    length: int
    message: str
    status_code: int
    err_type: str


class WeightVersion(TypedDict):
    """Which weights gave which tokens."""

    version: str
    start: int
    end: int


class Meta(TypedDict, total=False):
    """`meta_info` of a chunk: what every chunk tells, the first, the last, one under speculation, and what the
    emulation adds."""

    id: Required[str]
    finish_reason: Required[FinishReason | None]
    prompt_tokens: Required[int]
    weight_version: Required[str]
    num_retractions: Required[int]
    reasoning_tokens: Required[int]
    completion_tokens: Required[int]
    cached_tokens: Required[int]
    cached_tokens_details: dict[str, int] | None
    dp_rank: int | None
    storage_prefetch_wait: float
    storage_staging_wait: float
    forward_entry_time: float
    prefill_finished_time: float
    queue_time: float
    response_sent_to_client_ts: float
    weight_versions: list[WeightVersion]
    e2e_latency: float
    request_received_ts: float
    api_server_dispatch_finish_ts: float
    request_finished_ts: float
    first_token_latency: float
    decode_throughput: float
    spec_accept_rate: float
    spec_accept_length: float
    spec_num_correct_drafts: int
    spec_num_proposed_drafts: int
    spec_verify_ct: int
    spec_correct_drafts_histogram: list[int]
    emulation_speed: float
    emulation_ttft_s: float
    emulation_latency_s: float
    emulation_chunk_times_s: list[float]
    emulation_chunk_tokens: list[int]
    emulation_power_w: float
    emulation_sm_clock_mhz: int
    emulation_max_sm_clock_mhz: int


class Chunk(TypedDict):
    """One event of a stream, or a whole answer."""

    text: str
    output_ids: list[int]
    meta_info: Meta


def refused(message: str) -> Refused:
    """The event for a request that is not accepted."""
    return {"error": {"message": message, "type": "invalid_request_error", "code": 400, "retryable": False}}


def aborted(args: ServerArgs, message: str) -> Chunk:
    """The only event of a stream whose request is accepted and then given up: it looks like an answer of one token."""
    meta: Meta = {
        "id": "",
        "finish_reason": {"type": "abort", "message": message, "status_code": 400, "err_type": "BadRequestError"},
        "prompt_tokens": 1,
        "weight_version": args.weight_version,
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


def chunk_meta(args: ServerArgs, job: Generation, completion_tokens: int, *, first: bool) -> Meta:
    """`meta_info` of any chunk; the first one says when it was sent."""
    cached = job.demand.cached_tokens
    meta: Meta = {
        "id": job.rid,
        "finish_reason": None,
        "prompt_tokens": job.demand.prompt_tokens,
        "weight_version": args.weight_version,
        "num_retractions": 0,
        "reasoning_tokens": 0,
        "completion_tokens": completion_tokens,
        "cached_tokens": cached,
        "cached_tokens_details": {"device": cached, "host": 0} if cached else None,
        "dp_rank": None,
    }
    if args.enable_metrics:
        meta["storage_prefetch_wait"] = meta["storage_staging_wait"] = 0.0
        meta["forward_entry_time"] = job.received_ts + job.queue_s
        meta["prefill_finished_time"] = job.received_ts + job.first_token_s
        meta["queue_time"] = job.queue_s
    if first:
        meta["response_sent_to_client_ts"] = job.received_ts + job.first_token_s
    return meta


def final_meta(args: ServerArgs, job: Generation, *, first: bool = False, slow_clock: float = 1.0) -> Meta:
    """`meta_info` of the last chunk; `slow_clock` is the clock's share of the normal one."""
    answer = job.answer
    tokens = len(answer.ids)
    decode_s = answer.latency_s - answer.ttft_s
    meta = chunk_meta(args, job, tokens, first=first)
    meta["finish_reason"] = (
        {"type": "stop", "matched": tokenizer.END}
        if answer.finish == "stop"
        else {"type": "length", "length": job.demand.limit}
    )
    meta["weight_versions"] = [{"version": args.weight_version, "start": 0, "end": tokens}]
    meta["e2e_latency"] = job.latency_s
    meta["response_sent_to_client_ts"] = job.received_ts + job.first_token_s
    if args.enable_metrics:
        meta["request_received_ts"] = meta["api_server_dispatch_finish_ts"] = job.received_ts
        meta["request_finished_ts"] = job.received_ts + job.latency_s
        meta["first_token_latency"] = job.first_token_s
        if decode_s > 0:
            meta["decode_throughput"] = (tokens - 1) / decode_s
    if answer.verify_rounds:
        proposed = answer.verify_rounds * ((args.speculative_num_draft_tokens or 1) - 1)
        meta["spec_accept_rate"] = answer.accepted / proposed
        meta["spec_accept_length"] = tokens / answer.verify_rounds
        meta["spec_num_correct_drafts"] = answer.accepted
        meta["spec_num_proposed_drafts"] = proposed
        meta["spec_verify_ct"] = answer.verify_rounds
        meta["spec_correct_drafts_histogram"] = answer.accept_histogram or []
    meta["emulation_speed"] = args.emulation_speed
    meta["emulation_ttft_s"] = round(job.first_token_s, 6)
    meta["emulation_latency_s"] = round(job.latency_s, 6)
    meta["emulation_chunk_times_s"] = [round(job.queue_s + time_s, 6) for time_s in answer.times_s]
    meta["emulation_chunk_tokens"] = answer.tokens
    meta["emulation_power_w"] = DECODE_POWER_W * (_STATIC_POWER_SHARE + (1 - _STATIC_POWER_SHARE) * slow_clock)
    meta["emulation_sm_clock_mhz"] = round(NORMAL_CLOCK_MHZ * slow_clock)
    meta["emulation_max_sm_clock_mhz"] = MAX_CLOCK_MHZ
    return meta
