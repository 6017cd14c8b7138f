#!/usr/bin/env bash
# Sets up one DGX Spark as a node of the farm: what engines and Ray need, where compiled kernels are kept, and the guards
# that unified memory calls for. DGX OS (Ubuntu 24.04, arm64). Run it on every Spark, from the repository, as the user
# that will run Ray; it calls sudo for packages and for files in /etc.
#
#   bash infra/spark/setup.sh            set up, or bring up to date; a second run changes nothing and says so
#   bash infra/spark/setup.sh --check    only say what is missing; exit status 1 when something is
#
# Then, for the model's weights infra/spark/weights.sh, and for Ray one of
#   sudo systemctl enable --now farm-ray-head          on the first Spark (see infra/spark/farm-ray-head.service)
#   sudo systemctl enable --now farm-ray-worker        on the others
#   ray up infra/spark/ray-cluster.yaml                from anywhere, for all of them
#
# FARM_HOME (default ~/.farm) is where all of it goes, and must be the same path on every node.
# Two options are for trying the steps on another machine: --any-platform takes any Debian or Ubuntu on arm64 or x86-64,
# and --skip-engine leaves the engine's environment out, a download of several gigabytes.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../.." && pwd)
export FARM_HOME=${FARM_HOME:-$HOME/.farm}
engine=$FARM_HOME/envs/engine
packages=(build-essential earlyoom ninja-build openssh-client python3-dev python3-venv rsync)
needed_driver=580   # the first with CUDA 13
needed_disk_gib=120 # the weights (65), both environments (15), kernels, and room for results

check_only=
any_platform=
skip_engine=
problems=0
changes=0

main() {
    local argument
    for argument in "$@"; do
        case $argument in
            --check) check_only=1 ;;
            --any-platform) any_platform=1 ;;
            --skip-engine) skip_engine=1 ;;
            *) stop "unknown argument '$argument'; known are --check, --any-platform and --skip-engine" ;;
        esac
    done
    check_platform
    check_gpu
    check_disk
    if [ "$problems" != 0 ]; then stop "$problems of these must be fixed first; nothing was changed"; fi
    if [ -n "$check_only" ]; then
        check_done
        exit $((problems > 0))
    fi
    install_packages
    install_farm
    if [ -z "$skip_engine" ]; then install_engine; fi
    make_folders
    guard_memory
    install_units
    if [ "$changes" = 0 ]; then say "nothing to do: this node is set up"; else say "set up; $changes changes"; fi
}

check_platform() {
    local id version
    # shellcheck source=/dev/null
    id=$(. /etc/os-release && echo "$ID") version=$(. /etc/os-release && echo "${VERSION_ID:-}")
    case $id-$version-${any_platform:-0} in
        ubuntu-24.04-* | ubuntu-*-1 | debian-*-1) ok "system $id $version" ;;
        *) problem "system $id $version: this is for DGX OS 7 (Ubuntu 24.04)" ;;
    esac
    case $(uname -m)-${any_platform:-0} in
        aarch64-* | x86_64-1) ok "architecture $(uname -m)" ;;
        *) problem "architecture $(uname -m): a DGX Spark is aarch64" ;;
    esac
}

check_gpu() {
    local name driver
    if ! command -v nvidia-smi >/dev/null; then
        problem "nvidia-smi is missing: install the NVIDIA driver (DGX OS brings it)"
        return
    fi
    if ! IFS=, read -r name driver < <(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>&1) ||
        [ -z "${driver:-}" ]; then
        problem "nvidia-smi finds no GPU: ${name:-no answer}; update the driver and restart"
        return
    fi
    driver=${driver// /}
    if [ "${driver%%.*}" -lt "$needed_driver" ] 2>/dev/null; then
        problem "driver $driver is older than $needed_driver, which CUDA 13 needs: update DGX OS and restart"
    else
        ok "GPU $name, driver $driver"
    fi
    case $name-${any_platform:-0} in
        *GB10* | *-1) ;;
        *) problem "the GPU is $name, not the GB10 of a DGX Spark" ;;
    esac
    if [ -x "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" ]; then
        ok "CUDA toolkit in ${CUDA_HOME:-/usr/local/cuda}"
    elif [ -n "$any_platform" ]; then
        ok "no CUDA toolkit: skipped, since --any-platform is set"
    else
        problem "no nvcc in ${CUDA_HOME:-/usr/local/cuda}: FlashInfer compiles its kernels here; install cuda-toolkit-13-0"
    fi
}

check_disk() {
    local free_gib where=$FARM_HOME
    while [ ! -d "$where" ]; do where=$(dirname "$where"); done
    free_gib=$(($(df --output=avail -k "$where" | tail -1) / 1024 / 1024))
    if [ -d "$engine" ] || [ -n "$any_platform" ] || [ "$free_gib" -ge "$needed_disk_gib" ]; then
        ok "disk: $free_gib GiB free at $where"
    else
        problem "disk: $free_gib GiB free at $where, $needed_disk_gib are needed: free some, or set FARM_HOME"
    fi
}

# What --check says of the steps below.
check_done() {
    local package
    for package in "${packages[@]}"; do installed "$package" || problem "package $package is not installed"; done
    if [ -x "$FARM_HOME/envs/farm/bin/ray" ]; then
        ok "Ray $("$FARM_HOME/envs/farm/bin/python" -c 'import ray; print(ray.__version__)')"
    else
        problem "no environment of the farm in $FARM_HOME/envs/farm"
    fi
    if [ -n "$skip_engine" ]; then
        ok "the engine's environment: skipped, since --skip-engine is set"
    elif [ -f "$engine/.stamp" ] && [ "$(cat "$engine/.stamp")" = "$(engine_stamp)" ]; then
        ok "the engine's environment is that of engine.lock"
    else
        problem "the engine's environment in $engine is missing or of another version"
    fi
    if [ -f /etc/farm/ray.env ] && cmp -s <(ray_settings) /etc/farm/ray.env; then
        ok "settings of Ray"
    else
        problem "/etc/farm/ray.env is missing or differs"
    fi
    if cmp -s <(guard_settings) /etc/default/earlyoom; then ok "memory guard"; else problem "earlyoom is not set up"; fi
    if [ "$problems" != 0 ]; then say "$problems things are missing; run this without --check"; fi
}

install_packages() {
    local package missing=()
    for package in "${packages[@]}"; do installed "$package" || missing+=("$package"); done
    if [ ${#missing[@]} = 0 ]; then return; fi
    changed "installing ${missing[*]}"
    as_root apt-get update -q >/dev/null
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null
}

# The farm's environment has Ray from the lock file, so that its version is the same on every node. Ray refuses
# a node of another version.
install_farm() {
    local before
    before=$(cat "$FARM_HOME/envs/farm/.stamp" 2>/dev/null || true)
    bash "$repository/infra/setup.sh"
    if [ "$before" != "$(cat "$FARM_HOME/envs/farm/.stamp")" ]; then changed "the farm's environment is new"; fi
}

install_engine() {
    if [ "$(cat "$engine/.stamp" 2>/dev/null)" != "$(engine_stamp)" ]; then
        changed "setting up the engine's environment in $engine (several gigabytes)"
        "$FARM_HOME/envs/farm/bin/python" -m venv --clear "$engine"
        VIRTUAL_ENV=$engine "$FARM_HOME/envs/farm/bin/uv" pip install -q --compile-bytecode --require-hashes \
            -r "$here/engine.lock"
        engine_stamp >"$engine/.stamp"
    fi
    if [ -n "$(bash "$repository/infra/install-plugin.sh" "$engine/bin/python")" ]; then
        changed "the farm's SGLang plug-in is new"
    fi
}

engine_stamp() {
    { cat "$here/engine.lock"; "$FARM_HOME/envs/farm/bin/python" --version; } | sha256sum | cut -c1-16
}

# Kernels are compiled once and kept beside the environments, whatever HOME Ray's service has.
make_folders() {
    mkdir -p "$FARM_HOME"/cache/{flashinfer,humming,triton} "$FARM_HOME/results"
    put /etc/farm/ray.env 644 < <(ray_settings)
}

ray_settings() {
    cat <<EOF
# Written by infra/spark/setup.sh, and read by farm-ray-head.service and farm-ray-worker.service. Your own settings go
# into /etc/farm/local.env, which is read after this.
FARM_HOME=$FARM_HOME
PATH=$FARM_HOME/envs/farm/bin:/usr/local/bin:/usr/bin:/bin
CUDA_HOME=${CUDA_HOME:-/usr/local/cuda}
FLASHINFER_WORKSPACE_BASE=$FARM_HOME/cache/flashinfer
HUMMING_CACHE_DIR=$FARM_HOME/cache/humming
TRITON_CACHE_DIR=$FARM_HOME/cache/triton
# Ray would kill engines for filling the unified memory, which is what they are for.
RAY_memory_monitor_refresh_ms=0
# Ray would run engines at niceness 15, behind every other process.
RAY_worker_niceness=0
# Whoever can submit a job can run any code: all nodes ask for the token in ~/.ray/auth_token.
RAY_AUTH_MODE=token
RAY_USAGE_STATS_ENABLED=0
# In bytes. By default Ray takes 30 % of the memory, which engines need; records are small.
FARM_OBJECT_STORE_BYTES=2147483648
EOF
}

# Memory that runs out wedges a Spark until its power is cut. Control groups do not see what CUDA takes of the unified
# memory, so the guard looks at what the whole system has left, and ends the largest engine process first. Below 5 %
# it asks, below 3 % it kills; swap does not count.
guard_memory() {
    put /etc/default/earlyoom 644 < <(guard_settings)
    if [ -d /run/systemd/system ] && ! systemctl --quiet is-active earlyoom; then
        changed "starting earlyoom"
        as_root systemctl enable --quiet --now earlyoom
    fi
}

guard_settings() {
    cat <<'EOF'
# Written by infra/spark/setup.sh. SGLang's processes are called sglang::...; what must live is named after --avoid.
EARLYOOM_ARGS="-r 3600 -m 5,3 -s 100,100 --prefer '^(sglang|python)' --avoid '^(raylet|gcs_server|ray|sshd|systemd.*|dockerd|containerd)$'"
EOF
}

install_units() {
    local unit before=$changes
    for unit in farm-ray-head farm-ray-worker; do
        put "/etc/systemd/system/$unit.service" 644 <"$here/$unit.service"
        put "/etc/systemd/system/$unit.service.d/user.conf" 644 <<EOF
[Service]
User=$(id -un)
EOF
    done
    if [ "$before" != "$changes" ] && [ -d /run/systemd/system ]; then as_root systemctl daemon-reload; fi
}

# put FILE MODE: standard input becomes the file's content, unless it is that already.
put() {
    local new
    new=$(mktemp)
    cat >"$new"
    if ! cmp -s "$new" "$1"; then
        changed "writing $1"
        as_root install -D -m "$2" "$new" "$1"
        if [ "$1" = /etc/default/earlyoom ] && [ -d /run/systemd/system ]; then as_root systemctl try-restart earlyoom; fi
    fi
    rm "$new"
}

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
say() { echo "farm: $*"; }
ok() { say "ok: $*"; }
changed() {
    changes=$((changes + 1))
    say "$*"
}
problem() {
    problems=$((problems + 1))
    say "MISSING: $*" >&2
}
stop() {
    echo "error: $*" >&2
    exit 2
}

main "$@"
