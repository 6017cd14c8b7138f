"""What the telemetry costs, and how near its energy comes to the board's own counter.

    python tests/benchmarks/telemetry.py [--seconds 30] [--gpu 0]

On a GPU: the processor time of the sampler over an idle span and over a loop of device-to-device copies, and over that
loop the integral of power against the counter, as a whole and in pieces as long as short requests. Needs nvidia-ml-py,
and torch with CUDA for the loop. Prints tables, then one line of JSON. Goals: under 1 % of one core, within 3 %.
Exit status: 0 goals met, 1 missed, 2 there is no GPU to read.
"""

import argparse
import json
import statistics
import sys
import threading
import time
from dataclasses import replace

import _paths  # noqa: F401 - makes farm importable

from farm.engines.nvml import open_gpu
from farm.node.telemetry import Telemetry
from farm.node.telemetry.samples import energy_j

PIECES_S = (1.0, 3.0, 10.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30.0, help="of the idle span and of the loop, each")
    parser.add_argument("--gpu", default="0", help="index or UUID")
    options = parser.parse_args()
    name = int(options.gpu) if options.gpu.isdigit() else options.gpu
    gpu = open_gpu(name)
    if gpu is None:
        print("no GPU, or no NVML: nothing to measure")
        return 2
    found = {"gpu": gpu.name, "seconds": options.seconds} | reading_cost(gpu)
    found["idle_core_share"] = idle_cost(name, options.seconds)
    if not _has_cuda():
        print("torch with CUDA is missing: no loop")
    else:
        found |= loop(name, gpu, options.seconds)
    gpu.close()
    return show(found)


def reading_cost(gpu, count=50):
    """Milliseconds of one reading on the clock and of the processor."""
    walls, processors = [], []
    for _ in range(count):
        wall, processor = time.perf_counter(), time.thread_time()
        gpu.read()
        walls.append(1000 * (time.perf_counter() - wall))
        processors.append(1000 * (time.thread_time() - processor))
        time.sleep(0.02)
    return {
        "reading_ms": statistics.median(walls),
        "reading_ms_max": max(walls),
        "reading_processor_ms": statistics.mean(processors),
    }


def idle_cost(name, seconds):
    """Share of one core that the whole process takes while only the sampler works in it."""
    telemetry = Telemetry.start(name)
    time.sleep(1.0)  # NVML's initialisation is not part of the cost of a second
    before, started = time.process_time(), time.perf_counter()
    time.sleep(seconds)
    share = (time.process_time() - before) / (time.perf_counter() - started)
    telemetry.stop()
    return share


def _has_cuda():
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


def loop(name, gpu, seconds):
    """Copy within the GPU's memory while telemetry runs; both energies over the same span."""
    import torch

    device = torch.device("cuda:0")
    source = torch.empty(2**30, dtype=torch.uint8, device=device).random_(0, 255)
    target = torch.empty_like(source)
    torch.cuda.synchronize()
    telemetry = Telemetry.start(name)
    time.sleep(1.5)
    sampler = next(thread for thread in threading.enumerate() if thread.name == "farm-telemetry")
    processor_before = _thread_processor_s(sampler)
    started, copies = time.perf_counter(), 0
    counter_before = gpu.read().counter_j
    while time.perf_counter() - started < seconds:
        for _ in range(100):
            target.copy_(source)
        torch.cuda.synchronize()
        copies += 100
    counter_after = gpu.read().counter_j
    ended = time.perf_counter()
    record = telemetry.between(started, ended)
    processor_s = _thread_processor_s(sampler) - processor_before
    samples = telemetry.stop()
    powers = [replace(sample, counter_j=None) for sample in samples]
    integral, _ = energy_j(powers, started, ended)
    counter = None if counter_before is None else counter_after - counter_before
    return {
        "bandwidth_gb_per_s": 2 * copies * source.nbytes / (ended - started) / 1e9,
        "loop_core_share": processor_s / (ended - started),
        "samples": len(samples),
        "memory_source": samples[-1].memory_source,
        "record": record,
        "counter_j": counter,
        "integral_j": integral,
        "integral_error": None if not counter else integral / counter - 1,
        "pieces": [] if not counter else [piece(samples, powers, started, ended, length) for length in PIECES_S],
    }


def _thread_processor_s(thread):
    """Processor seconds of one thread, by /proc, whose ticks are 10 ms."""
    fields = open(f"/proc/self/task/{thread.native_id}/stat").read().rpartition(")")[2].split()  # noqa: SIM115
    return (int(fields[11]) + int(fields[12])) / 100


def piece(samples, powers, started, ended, length):
    """How far the integral is from the counter over all whole pieces of one length."""
    errors = []
    begin = started + 1.0  # the clocks have risen by then
    while begin + length < ended:
        counted, method = energy_j(samples, begin, begin + length)
        integral, _ = energy_j(powers, begin, begin + length)
        assert method == "board-counter"
        errors.append(integral / counted - 1)
        begin += length
    if not errors:
        return {"length_s": length, "count": 0}
    return {
        "length_s": length,
        "count": len(errors),
        "mean_error": statistics.mean(errors),
        "largest_error": max(errors, key=abs),
    }


def show(found):
    error = found.get("integral_error")
    rows = [
        ("GPU", found["gpu"], ""),
        ("one reading", f"{found['reading_ms']:.2f} ms (longest {found['reading_ms_max']:.1f})", ""),
        ("sampler, idle GPU", f"{100 * found['idle_core_share']:.3f} % of a core", "< 1 %"),
    ]
    shares = [found["idle_core_share"]]
    if "loop_core_share" in found:
        shares.append(found["loop_core_share"])
        rows += [
            ("sampler, loop", f"{100 * found['loop_core_share']:.3f} % of a core", "< 1 %"),
            ("bandwidth, read + written", f"{found['bandwidth_gb_per_s']:.0f} GB/s", ""),
            ("energy by the board's counter", _joules(found["counter_j"]), ""),
            ("energy by integral of power", _joules(found["integral_j"]), ""),
            ("integral against counter", "-" if error is None else f"{100 * error:+.2f} %", "within 3 %"),
        ]
        rows += [
            (
                f"the same, pieces of {one['length_s']:g} s",
                f"mean {100 * one['mean_error']:+.2f} %, largest {100 * one['largest_error']:+.2f} % of {one['count']}",
                "",
            )
            for one in found["pieces"]
            if one["count"]
        ]
        rows += [(f"record: {name}", f"{value}", "") for name, value in found["record"].items()]
    for what, value, goal in rows:
        print(f"{what:32} {value:44} {goal}")
    print(json.dumps(found))
    return int(max(shares) >= 0.01 or (error is not None and abs(error) > 0.03))


def _joules(value):
    return "the board has none" if value is None else f"{value:.1f} J"


if __name__ == "__main__":
    sys.exit(main())
