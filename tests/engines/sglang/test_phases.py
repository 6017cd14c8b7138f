"""What a starting engine's log says it is doing."""

import pytest

from farm.engines.base import Phase
from farm.engines.sglang.phases import LogFollower, phase_of

LINES = {
    "[2026-11-30 23:09:26] Load weight begin. avail mem=102.00 GB": Phase("loading weights"),
    "Loading safetensors checkpoint shards:  38% Completed | 10/26 [00:52<01:20,  5.03s/it]": Phase(
        "loading weights", 0.38
    ),
    "Multi-thread loading shards: 100% Completed | 26/26 [02:11<00:00,  5.03s/it]": Phase("loading weights", 1.0),
    "[2026-11-30 23:09:26] Load weight end. elapsed=343.12 s, type=BailingMoeV3ForCausalLM": Phase(
        "preparing weights and memory"
    ),
    "[2026-11-30 23:09:27] Preparing DSv4 MXFP4 experts for Humming backend (layer: 3)": Phase(
        "preparing weights and memory"
    ),
    "Building JIT module fused_moe_90; this can take several minutes on first use.": Phase("compiling kernels"),
    "[2026-11-30 23:30:28] Triton kernel 'chunk_kda_fwd_kernel_inter_solve_fused' took 6.93 s to compile after serving "
    "started. Serving-time compilation can stall the engine; pre-compile it during engine init.": Phase(
        "compiling kernels"
    ),
    "[2026-11-30 23:12:01] Capture target decode CUDA graph begin. backend=full": Phase("capturing graphs"),
    "Capturing batches (bs=1 avail_mem=31.20 GB):  50%|#####     | 1/2 [00:01<00:01,  1.04s/it]": Phase(
        "capturing graphs", 0.5
    ),
    "[2026-11-30 23:12:10] The server is fired up and ready to roll!": Phase("generating its first tokens"),
    "[2026-11-30 23:09:27] KV Cache is allocated. dtype: torch.float32, #tokens: 8192": None,
    "[2026-11-30 23:09:11] server_args={'load_format': 'auto', 'note': 'Load 50%'}": None,
    "": None,
}


@pytest.mark.parametrize("line", LINES)
def test_sglangs_lines_name_the_phase_and_how_much_of_it_is_done(line):
    assert phase_of(line) == LINES[line]


def test_a_log_is_read_as_it_grows_and_a_bar_that_rewrites_its_line_too(tmp_path):
    log = tmp_path / "engine.log"
    follower = LogFollower(log)
    assert follower.news() is None
    with log.open("ab") as out:
        for written, reported in (
            (b"Load weight begin. avail mem\nMulti-thread loading sh", Phase("loading weights")),
            (b"ards:   0% Completed | 0/4 \xe2\x96", None),
            (b"\x88\rMulti-thread loading shards:  25% Completed | 1/4\r", Phase("loading weights", 0.25)),
            (b"", None),
            (b"Load weight end. \xff\nready to roll!\n", Phase("generating its first tokens")),
        ):
            out.write(written)
            out.flush()
            assert follower.news() == reported


def test_a_phase_reads_as_words():
    assert [str(Phase("loading weights", 0.375)), str(Phase("compiling kernels"))] == [
        "loading weights, 38%",
        "compiling kernels",
    ]
