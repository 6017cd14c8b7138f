"""Train the demo model end to end: tokenizer, trunk, NEXTN layer, checkpoint, report.

    python infra/demo-model/train.py --out DIR                   the shipped model: one GPU, 8 minutes on an H200
    python infra/demo-model/train.py --out DIR --small           a smaller form, minutes on a CPU
    python infra/demo-model/train.py --write-data DIR            the shipped problems; needs no torch

Needs torch, numpy, safetensors and tokenizers. Run again with the same arguments to go on after an interruption.
Exit status: 0 done, 3 stopped at the time limit.
"""

import argparse
import os
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[2])]


def parse() -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder of checkpoints, log and the finished model (DIR/model)")
    parser.add_argument("--write-data", type=Path, help="write the shipped problems to this folder and stop")
    parser.add_argument("--small", action="store_true", help="a tiny model and few steps")
    parser.add_argument("--device", help="cuda or cpu (default: cuda where there is one)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rows", type=int, help="rows of a batch (default 64, small 8)")
    parser.add_argument("--length", type=int, default=512, help="tokens of a row")
    parser.add_argument("--trunk-steps", type=int, help="default 11300, small 150")
    parser.add_argument("--nextn-steps", type=int, help="default 1000, small 100")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--limit-minutes", type=float, default=600.0)
    parser.add_argument("--save-every-s", type=float, default=60.0)
    parser.add_argument("--evaluated", type=int, help="shipped problems answered for the report (default 200, small 8)")
    return parser.parse_args()


def main() -> int:
    """Run the command line."""
    args = parse()
    if args.write_data:
        from demo_model.workload import write_shipped

        write_shipped(args.write_data)
        return 0
    if not args.out:
        raise SystemExit("--out or --write-data is needed")
    from demo_model.runner import OutOfTimeError, Settings, train_demo_model
    from demo_model.shape import TINY, Shape

    import torch  # isort: skip  (after farm.demo, whose error says how to get it)

    small = args.small
    settings = Settings(
        out=args.out,
        shape=TINY if small else Shape(),
        device=args.device or ("cuda" if torch.cuda.is_available() else "cpu"),
        seed=args.seed,
        rows=args.rows or (8 if small else 64),
        length=args.length,
        trunk_steps=args.trunk_steps or (150 if small else 11_300),
        nextn_steps=args.nextn_steps or (100 if small else 1_000),
        trunk_peak=3e-3,
        nextn_peak=3e-3,
        workers=args.workers,
        limit_s=60 * args.limit_minutes,
        save_every_s=args.save_every_s,
        evaluated=args.evaluated or (8 if small else 200),
    )
    try:
        train_demo_model(settings)
    except OutOfTimeError as stopped:
        print(stopped, file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
