"""Run by the engine's own interpreter: `python -c SOURCE SECONDS`; copies within the GPU's memory and prints the rate.

Prints JSON: bytes read and written per second, and when the copies began and ended on `time.perf_counter`, which all
processes of a Linux machine share, so that the clock seen meanwhile can be laid beside them.
"""

import json
import sys
import time

import torch


def main(seconds: float) -> None:
    """Copy for some seconds."""
    free, _ = torch.cuda.mem_get_info()
    size = min(1 << 30, free // 8)
    source = torch.empty(size, dtype=torch.uint8, device="cuda").fill_(7)
    target = torch.empty_like(source)
    target.copy_(source)
    torch.cuda.synchronize()
    copies, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        for _ in range(20):
            target.copy_(source)
        torch.cuda.synchronize()
        copies += 20
    ended = time.perf_counter()
    print(json.dumps({"bytes_per_s": 2 * copies * size / (ended - began), "began_s": began, "ended_s": ended}))


if __name__ == "__main__":
    main(float(sys.argv[1]))
