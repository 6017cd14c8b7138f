"""Starts one emulated engine; see the package's docstring for its arguments and environment."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from aiohttp import web

from farm.engines.emulated import evidence, replies
from farm.engines.emulated.answers import Answers
from farm.engines.emulated.arguments import ServerArgs, resolve, setup_of
from farm.engines.emulated.faults import Faults, faults_from
from farm.engines.emulated.model import Setup
from farm.engines.emulated.server import Engine
from farm.engines.emulated.startup import Startup, startup
from farm.text import is_on

_STAYS_BEHIND_S: Final = "600"


def main(argv: list[str], environment: Mapping[str, str]) -> int:
    """Serve until SIGTERM; the exit status is 2 for arguments that cannot be emulated."""
    began = _launched_s()
    try:
        args = resolve(argv)
        faults = faults_from(environment)
        table = environment.get("FARM_EMULATION_ANSWERS")
        answers = Answers.read(Path(table)) if table else Answers({})
    except (ValueError, OSError) as error:
        print(f"farm.engines.emulated: error: {error}", file=sys.stderr)
        return 2
    setup = setup_of(args, environment)
    if faults.silent_fallback:
        args, setup = _fallen_back(args, setup)
    if faults.refuse_sigterm or faults.grandchild:
        _ignore_end()
    if faults.grandchild:
        subprocess.Popen(["sleep", _STAYS_BEHIND_S], start_new_session=True)
    started = startup(
        setup,
        launch=int(environment.get("FARM_EMULATION_LAUNCH", "0")),
        node=environment.get("FARM_EMULATION_NODE", ""),
    )
    _log(f"Load weight begin. avail mem=102.00 GB (emulated, at {args.emulation_speed:g} times real time)")
    _wait_until(began + started.total_s / args.emulation_start_speed)
    if faults.fail_start:
        raise RuntimeError("Not enough memory. Please try to increase --mem-fraction-static.")
    _log(f"Load weight end. elapsed={started.load_weight_s:.2f} s, type=BailingMoeV3ForCausalLM, mem usage=63.00 GB.")
    if environment.get("FARM_EVIDENCE_DIR"):
        evidence.write(Path(environment["FARM_EVIDENCE_DIR"]), args, setup)
    engine = _engine(argv, args, setup, faults, answers, started, environment)
    asyncio.run(_serve(engine, args, refuses_to_end=faults.refuse_sigterm))
    return 0


def _launched_s() -> float:
    """When this process was created, on the monotonic clock: its own imports are part of the emulated start's."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.monotonic() - age_s


def _engine(
    argv: list[str],
    args: ServerArgs,
    setup: Setup,
    faults: Faults,
    answers: Answers,
    started: Startup,
    environment: Mapping[str, str],
) -> Engine:
    exposed = None
    if is_on(environment, "SGLANG_EXPOSE_OWN_ENV_VARS"):
        exposed = {name: value for name, value in environment.items() if name.startswith("SGLANG_")}
    info = partial(
        replies.server_info,
        args,
        launch_command=shlex.join(["python", "-m", "farm.engines.emulated", *argv]),
        startup_time=started.report(),
        slow_clock=faults.slow_clock,
        env_vars=exposed,
    )
    log = environment.get("FARM_EMULATION_REQUEST_LOG")
    request_log = open(log, "a", encoding="utf-8", buffering=1) if log else None  # noqa: SIM115 - open until the end
    return Engine(args, setup, faults, answers, info, request_log)


async def _serve(engine: Engine, args: ServerArgs, *, refuses_to_end: bool) -> None:
    # A client that goes away ends its request, as SGLang aborts it.
    runner = web.AppRunner(engine.app(), handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, args.host, args.port).start()
    _log("The server is fired up and ready to roll!")
    ended = asyncio.Event()
    if not refuses_to_end:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await ended.wait()
    await runner.cleanup()


def _fallen_back(args: ServerArgs, setup: Setup) -> tuple[ServerArgs, Setup]:
    """The outermost optimisation is not active; failing drafts change no setting."""
    if setup.speculation is not None:
        return args, setup
    if setup.experts != "flashinfer_mxfp4":
        return args.model_copy(update={"moe_runner_backend": "flashinfer_mxfp4"}), replace(
            setup, experts="flashinfer_mxfp4"
        )
    return args, replace(setup, fp8_head=False)


def _ignore_end() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def _wait_until(deadline: float) -> None:
    time.sleep(max(0.0, deadline - time.monotonic()))


def _log(message: str) -> None:
    print(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
