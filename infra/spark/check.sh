#!/usr/bin/env bash
# Shows that infra/spark/setup.sh works and that a second run changes nothing, in a clean Debian or Ubuntu that is made for
# it below /tmp and removed again. As root; needs debootstrap (or its path in $DEBOOTSTRAP) and 25 GB of disk.
#
#   bash infra/spark/check.sh [--skip-engine] [SUITE [MIRROR]]       default: noble from Ubuntu's own mirror
#
# The clean system has no GPU. It gets a nvidia-smi that only says what a Spark's would say; it exists nowhere else.
set -euo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
options=(--any-platform)
if [ "${1:-}" = --skip-engine ]; then
    options+=(--skip-engine)
    shift
fi
suite=${1:-noble}
case $(dpkg --print-architecture) in
    amd64) mirror=${2:-http://archive.ubuntu.com/ubuntu} ;;
    *) mirror=${2:-http://ports.ubuntu.com/ubuntu-ports} ;;
esac
root=$(mktemp -d /tmp/farm-spark.XXXXXX)

# shellcheck disable=SC2329  # it is called by the trap
finish() { rm -rf --one-file-system "$root"; }
trap finish EXIT
trap 'exit 143' TERM INT

echo "== a clean $suite"
"${DEBOOTSTRAP:-debootstrap}" --variant=minbase --include=ca-certificates "$suite" "$root/system" "$mirror" >"$root/log" 2>&1 ||
    { tail "$root/log" >&2; exit 1; }
system=$root/system
if [ "$suite" = noble ]; then sed -i 's/ main$/ main universe/' "$system/etc/apt/sources.list"; fi
# This machine's resolver and certificates, for networks that have their own.
cp /etc/resolv.conf /etc/hosts "$system/etc/"
cp /etc/ssl/certs/ca-certificates.crt "$system/etc/ssl/certs/"
# Services are not to be started in there.
printf '#!/bin/sh\nexit 101\n' >"$system/usr/sbin/policy-rc.d"
chmod 755 "$system/usr/sbin/policy-rc.d"
mkdir "$system/farm"
(cd "$repository" && tar --exclude=.git --exclude=__pycache__ --exclude='.*_cache' -c .) | tar -x -C "$system/farm"

driver() {
    printf '#!/bin/sh\necho "NVIDIA GB10, %s"\n' "$1" >"$system/usr/local/bin/nvidia-smi"
    chmod 755 "$system/usr/local/bin/nvidia-smi"
}

inside() {
    # A mount and process namespace of its own: whatever is left running or mounted in there ends with it.
    # shellcheck disable=SC2016  # the inner shell expands
    unshare --mount --pid --fork --kill-child sh -c '
        mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"' "$system" \
        env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        ${SSL_CERT_FILE:+SSL_CERT_FILE="$SSL_CERT_FILE"} "$@"
}

expect() { # STATUS TEXT COMMAND...: the command ends so, and says so
    local wanted=$1 text=$2 status=0
    shift 2
    "$@" >"$root/output" 2>&1 || status=$?
    sed 's/^/  /' "$root/output"
    if [ "$status" != "$wanted" ] || ! grep -q -- "$text" "$root/output"; then
        echo "error: expected exit status $wanted and '$text', seen $status" >&2
        exit 1
    fi
}

files() { # every file of the system with its size, mode and time, but for logs
    find "$system" -xdev \( -path "$system/tmp" -o -path "$system/var/log" -o -path "$system/proc" -o -path "$system/dev" \) \
        -prune -o -type f -printf '%p %s %m %T@\n' | sort
}

driver 570.86
echo "== refusals: not a Spark, an old driver, no driver"
if [ "$(uname -m)" != aarch64 ]; then
    expect 2 "a DGX Spark is aarch64" inside bash /farm/infra/spark/setup.sh
fi
expect 2 "driver 570.86 is older" inside bash /farm/infra/spark/setup.sh "${options[@]}"
rm "$system/usr/local/bin/nvidia-smi"
expect 2 "nvidia-smi is missing" inside bash /farm/infra/spark/setup.sh "${options[@]}"
driver 580.95.05
echo "== what is missing on the clean system"
expect 1 "things are missing" inside bash /farm/infra/spark/setup.sh "${options[@]}" --check
echo "== first run"
started=$SECONDS
expect 0 "set up; [0-9]* changes" inside bash /farm/infra/spark/setup.sh "${options[@]}"
echo "$((SECONDS - started)) s"
files >"$root/before"
echo "== second run"
started=$SECONDS
expect 0 "nothing to do" inside bash /farm/infra/spark/setup.sh "${options[@]}"
echo "$((SECONDS - started)) s"
files >"$root/after"
if ! diff "$root/before" "$root/after"; then
    echo "error: the second run changed these files" >&2
    exit 1
fi
echo "$(wc -l <"$root/before") files, none changed by the second run"
echo "== and now"
expect 0 "memory guard" inside bash /farm/infra/spark/setup.sh "${options[@]}" --check
echo "== all as it should be"
