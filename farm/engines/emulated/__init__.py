"""An emulated engine: its own process, the part of SGLang 0.5.23's HTTP protocol that the farm uses, and a time model.

    python -m farm.engines.emulated --model-path ANY --port PORT [--api-key KEY] [--emulation-speed S] [arguments]

It listens when its emulated start is over, like SGLang, and then answers `/health`, `/health_generate`, `/server_info`,
`/tokenize`, `/detokenize`, `/flush_cache` and `/generate`. No model is read. How long things take is in `model.py`,
what answers look like in `draws.py`, and both are fitted to the published figures of Ling-3.0-flash on one DGX Spark:
`python -m farm.engines.emulated.published` prints how well.

Time. `--emulation-speed S` makes everything happen S times as fast as on the emulated machine; with
`--emulation-start-speed T` the start alone has a speed of its own. Every time that the
engine reports is of that machine, not of the wall clock: `startup_time`, `e2e_latency`, `queue_time`, ... The last
chunk's `meta_info` also holds the whole answer's times without the coarseness of real arrivals, which at a high speed
are too close to be kept apart and are sent together: `emulation_speed`, `emulation_ttft_s`, `emulation_latency_s`,
and `emulation_chunk_times_s` with `emulation_chunk_tokens`, one entry for each step or verify round; and what telemetry
would read of the machine, `emulation_sm_clock_mhz` of `emulation_max_sm_clock_mhz` and the assumed `emulation_power_w`.
Arrivals closer than `--emulation-chunk-gap-ms` (2) in real time are sent together: a larger gap spares the processor
where many engines share one machine, and changes no time that is reported.

Environment:
- `FARM_EMULATION_ANSWERS`: path of the table of right answers (`answers.py`). With it, answers are right as often as
  published, and lengths are spread evenly over the table's questions; without it, answers are arbitrary numbers.
- `FARM_EMULATION_LAUNCH`: number of this launch on its node, from 0; the first start of a node is a cold one.
- `FARM_EMULATION_NODE`: name of the node.
- `FARM_EMULATION_FAULTS`: what is to go wrong, as JSON (`faults.py`).
- `FARM_EMULATION_REQUEST_LOG`: file that receives a JSON line for each request when its answer has been sent: `path`,
  and `received_s` and `finished_s` on the machine's monotonic clock, for measuring what the client does in between.
- `FARM_EVIDENCE_DIR`: folder that receives evidence of what is active, in the form of the farm's SGLang plug-in.
- `SGLANG_ENABLE_FP8_LM_HEAD=1`: FP8 LM head, as for a real engine that has it.

Not emulated: any slowing of requests by others that run beside them (`--max-running-requests` above 1 only admits
them), stop strings, and speculation other than NEXTN.
"""
