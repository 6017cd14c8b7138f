#!/usr/bin/env bash
# Shows that monitoring works: runs a sweep on a Ray of its own, lets a real Prometheus scrape it by the configuration
# here, and asks Prometheus every query of the dashboard while the sweep runs. Exit status 1 when one has no data.
#
#   bash infra/monitoring/check.sh [arguments of jobs/sweep.py]        default: the quick start, with real engines
#
# Needs Prometheus 2.42 or newer on the PATH or as $PROMETHEUS (Debian and Ubuntu: apt-get install prometheus), and both
# environments (infra/setup.sh, infra/cpu-engine/build.sh). Everything is on loopback and is ended afterwards.
set -euo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$repository"
export FARM_HOME=${FARM_HOME:-$HOME/.farm}
prometheus=${PROMETHEUS:-prometheus}
python=$FARM_HOME/envs/farm/bin/python
started=()
work=$(mktemp -d /tmp/farm-monitoring.XXXXXX)

# shellcheck disable=SC2329  # it is called by the trap
finish() {
    local pid
    for pid in "${started[@]}"; do kill -- "-$pid" 2>/dev/null || kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 143' TERM INT

free_port() {
    "$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

command -v "$prometheus" >/dev/null || {
    echo "error: no Prometheus: apt-get install prometheus, or name the program with PROMETHEUS=..." >&2
    exit 2
}

RAY_AUTH_TOKEN=$("$python" -c 'import secrets; print(secrets.token_hex(32))')
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN RAY_USAGE_STATS_ENABLED=0 RAY_worker_niceness=0
ray_port=$(free_port)
setsid "$FARM_HOME/envs/farm/bin/ray" start --head --block --node-ip-address 127.0.0.1 --port "$ray_port" \
    --node-name spark-1 --temp-dir "$work/ray" --dashboard-host 127.0.0.1 --dashboard-port "$(free_port)" \
    >"$work/ray.log" 2>&1 &
started+=($!)

# The configuration as it is, but for the folder that this Ray writes to and a pace for a short sweep.
sed -e "s#/tmp/ray/#$work/ray/#" -e 's/: 15s/: 2s/' infra/monitoring/prometheus.yml >"$work/prometheus.yml"
prometheus_port=$(free_port)
setsid "$prometheus" --config.file="$work/prometheus.yml" --storage.tsdb.path="$work/tsdb" \
    --web.listen-address="127.0.0.1:$prometheus_port" >"$work/prometheus.log" 2>&1 &
started+=($!)

echo "waiting until Ray tells what to scrape, for up to 60 s"
deadline=$((SECONDS + 60))
until [ -e "$work/ray/prom_metrics_service_discovery.json" ]; do
    if [ "$SECONDS" -ge "$deadline" ]; then
        echo "error: Ray did not within 60 s; the last lines of its log:" >&2
        tail -n 20 "$work/ray.log" >&2
        exit 1
    fi
    sleep 1
done
export RAY_ADDRESS=127.0.0.1:$ray_port
if [ $# = 0 ]; then set -- quickstart --fresh; fi
setsid "$python" jobs/sweep.py "$@" --results "$work/results" >"$work/sweep.log" 2>&1 &
sweep=$!
started+=("$sweep")

status=0
"$python" infra/monitoring/check.py --prometheus "http://127.0.0.1:$prometheus_port" --while "$sweep" --span 5m ||
    status=$?
if kill -0 "$sweep" 2>/dev/null; then echo "the sweep was still running"; else echo "the sweep had ended"; fi
if [ "$status" != 0 ]; then tail -n 20 "$work/sweep.log" "$work/prometheus.log" >&2; fi
exit "$status"
