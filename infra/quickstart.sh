#!/usr/bin/env bash
# From a clone to a first comparison: sets up both environments, starts a local Ray head, submits the quick start sweep
# and shows its results. Use: bash infra/quickstart.sh        The exit status is the sweep's.
#
# The Ray is one of its own, with free ports and a folder of its own: another one may run on this machine, of any version
# and with any token, and stays as it is. What was started here is ended here, also by Ctrl-C.
set -euo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=infra/farm-home.sh
. "$repository/infra/farm-home.sh"
cd "$repository"
patience_s=180
sweep=quickstart # how Ray knows the job
work=
head=
submitted=

main() {
    bash infra/setup.sh
    bash infra/cpu-engine/build.sh
    trap finish EXIT
    trap 'interrupted 130' INT
    trap 'interrupted 143' TERM HUP
    # The paths of Unix sockets may have 107 characters: Ray's folder is short, wherever HOME and TMPDIR are.
    work=$(mktemp -d /tmp/farm.XXXXXX)
    start_ray
    wait_for_jobs
    "${ours[@]}" ray job submit --address "$address" --submission-id "$sweep" -- jobs/sweep.py &
    submitted=$!
    local status=0
    wait "$submitted" || status=$?
    # `ray job submit` says 1 of whatever failed.
    if [ "$status" != 0 ]; then status=$(exit_status_of_job || echo "$status"); fi
    exit "$status"
}

start_ray() {
    local port client_port dashboard_port agent_port agent_grpc_port runtime_env_port metrics_port token
    read -r port client_port dashboard_port agent_port agent_grpc_port runtime_env_port metrics_port < <(free_ports 7)
    address=http://127.0.0.1:$dashboard_port
    echo "starting a Ray of its own at $address (any other Ray on this machine stays as it is)"
    # On loopback, and with a token of this run alone: whoever can submit a job can run any code.
    token=$("$FARM_HOME/envs/farm/bin/python" -c 'import secrets; print(secrets.token_hex(32))')
    # Ray would run engines at niceness 15, behind every other process, and hold a job's output back.
    ours=(env -u RAY_ADDRESS -u RAY_API_SERVER_ADDRESS "PATH=$FARM_HOME/envs/farm/bin:$PATH" "RAY_TMPDIR=$work"
        RAY_AUTH_MODE=token "RAY_AUTH_TOKEN=$token" RAY_USAGE_STATS_ENABLED=0 RAY_worker_niceness=0 PYTHONUNBUFFERED=1
        RAY_JOB_STOP_WAIT_TIME_S=60)
    setsid "${ours[@]}" ray start --head --block --node-ip-address 127.0.0.1 --port "$port" \
        --ray-client-server-port "$client_port" --min-worker-port 0 --max-worker-port 0 \
        --dashboard-host 127.0.0.1 --dashboard-port "$dashboard_port" --dashboard-agent-listen-port "$agent_port" \
        --dashboard-agent-grpc-port "$agent_grpc_port" --runtime-env-agent-port "$runtime_env_port" \
        --metrics-export-port "$metrics_port" >"$work/ray.log" 2>&1 &
    head=$!
}

# The agents that run jobs come up a little after Ray itself.
wait_for_jobs() {
    echo "waiting until it takes jobs, for up to $patience_s s"
    local deadline=$((SECONDS + patience_s))
    until in_turn timeout 60 ray job submit --address "$address" -- true >"$work/submit.log" 2>&1; do
        if ! kill -0 "$head" 2>/dev/null; then give_up "Ray ended"; fi
        if [ "$SECONDS" -ge "$deadline" ]; then give_up "Ray took no job within $patience_s s"; fi
        in_turn sleep 1
    done
}

give_up() {
    {
        echo "error: $1. The last lines of its log and of the last attempt:"
        tail -n 20 "$work/ray.log" "$work/submit.log"
    } >&2
    exit 1
}

# A signal is acted on at once while bash waits for a child behind it, and else only after the child.
in_turn() {
    "${ours[@]}" "$@" &
    wait $!
}

exit_status_of_job() {
    "${ours[@]}" python - "$address" "$sweep" 2>/dev/null <<'PYTHON'
import sys

from ray.job_submission import JobSubmissionClient

address, job = sys.argv[1:]
print(JobSubmissionClient(address).get_job_info(job).driver_exit_code or 1)
PYTHON
}

free_ports() {
    "$FARM_HOME/envs/farm/bin/python" - "$1" <<'PYTHON'
import socket, sys

held = [socket.create_server(("127.0.0.1", 0)) for _ in range(int(sys.argv[1]))]
print(*(one.getsockname()[1] for one in held))
PYTHON
}

# The sweep ends as it does by Ctrl-C anywhere: its results are written, and it says how to go on.
# shellcheck disable=SC2329  # it is called by a trap
interrupted() {
    trap '' INT TERM HUP
    if [ -n "$submitted" ]; then
        "${ours[@]}" ray job stop --address "$address" "$sweep" >/dev/null 2>&1 || true
        wait "$submitted" || true
    fi
    exit "$1"
}

# shellcheck disable=SC2329  # it is called by a trap
finish() {
    trap '' INT TERM HUP
    local pids deadline=$((SECONDS + 30))
    # shellcheck disable=SC2046  # one word a process
    kill $(jobs -p) 2>/dev/null || true
    while pids=$(started_here) && [ -n "$pids" ]; do
        # shellcheck disable=SC2086
        if [ "$SECONDS" -ge "$deadline" ]; then kill -KILL $pids 2>/dev/null || true; fi
        sleep 0.2
    done
    rm -rf "$work"
}

# What was started here, and nothing else, has this Ray's folder in its environment.
# shellcheck disable=SC2329
started_here() {
    # Other users' processes cannot be read, which is no failure.
    { grep --files-with-matches --no-messages --null-data --line-regexp --fixed-strings "RAY_TMPDIR=$work" \
        /proc/[0-9]*/environ || true; } | cut -d / -f 3
}

main
