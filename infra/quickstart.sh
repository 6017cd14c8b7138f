#!/usr/bin/env bash
# From a clone to a first comparison: sets up both environments, starts a local Ray head, submits the quick start sweep
# and shows its results. Use: bash infra/quickstart.sh
set -euo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export FARM_HOME=${FARM_HOME:-$HOME/.farm}
cd "$repository"

bash infra/setup.sh
bash infra/cpu-engine/build.sh
# Ray would run engines at niceness 15, behind every other process.
export PATH=$FARM_HOME/envs/farm/bin:$PATH RAY_USAGE_STATS_ENABLED=0 RAY_worker_niceness=0

if ! ray status >/dev/null 2>&1; then
    # On loopback, and with a token of this run alone: whoever can submit a job can run any code.
    RAY_AUTH_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(32))')
    export RAY_AUTH_MODE=token RAY_AUTH_TOKEN
    ray start --head --node-ip-address 127.0.0.1 --dashboard-host 127.0.0.1 --dashboard-port 8265 >/dev/null
    trap 'ray stop >/dev/null 2>&1' EXIT
fi
# The agents that run jobs come up a little after Ray itself.
for _ in $(seq 30); do
    if ray job submit --address http://127.0.0.1:8265 -- true >/dev/null 2>&1; then break; fi
    sleep 2
done
ray job submit --address http://127.0.0.1:8265 jobs/sweep.py
