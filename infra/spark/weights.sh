#!/usr/bin/env bash
# Fetches a model's weights once and copies them to the other Sparks over the fast link, and checks every file on every
# node by its SHA-256.
#
#   bash infra/spark/weights.sh [--revision REVISION] MODEL [NODE]...
#   bash infra/spark/weights.sh inclusionAI/Ling-3.0-flash-fp4 10.0.0.2 10.0.0.3 10.0.0.4
#
# Run it on one Spark. NODE is what ssh calls the others (USER@ADDRESS where the name differs): give the addresses of the
# 200 Gb/s ports, or the copy takes the slow network. ssh must get in without a password. All is kept in Hugging Face's
# cache, HF_HOME or ~/.cache/huggingface, where engines find it by MODEL's name; another node has it in the same folder
# below its own home, or below HF_HOME if that is set here. Again: only what is missing or differs is copied.
set -euo pipefail

revision=main
if [ "${1:-}" = --revision ]; then
    revision=${2:?--revision needs a revision}
    shift 2
fi
model=${1:?usage: weights.sh [--revision REVISION] MODEL [NODE]...}
shift
export FARM_HOME=${FARM_HOME:-$HOME/.farm}
# Relative to the home of whoever logs in, unless HF_HOME says otherwise.
cache=${HF_HOME:-.cache/huggingface}/hub
folder=models--${model//\//--}

hf=$FARM_HOME/envs/engine/bin/hf
if [ ! -x "$hf" ]; then hf=$FARM_HOME/envs/farm/bin/hf; fi
echo "fetching $model ($revision)"
snapshot=$("$hf" download --quiet --revision "$revision" "$model" | tail -n 1)
cd "$HOME"
if [ "$(readlink -f "$snapshot")" != "$(readlink -f "$cache/$folder/snapshots/$(basename "$snapshot")")" ]; then
    echo "error: $snapshot is not in $cache; set HF_HOME to the cache's folder" >&2
    exit 2
fi
if find "$cache/$folder" -name '*.incomplete' | grep -q .; then
    echo "error: files of $model are incomplete in $cache/$folder/blobs; run this again" >&2
    exit 1
fi

# Weights are kept under their SHA-256 as the hub knows it, so the first copy is held against the hub's own word.
echo "checking this node"
(cd "$cache/$folder/blobs" && find . -type f -regextype posix-extended -regex '\./[0-9a-f]{64}' -printf '%f  %f\n' |
    sha256sum --check --quiet)
manifest=$(cd "$cache/$folder" && find blobs snapshots -type f -o -type l | sort | tr '\n' '\0' | xargs -0 sha256sum)
files=$(wc -l <<<"$manifest")

for node in "$@"; do
    echo "copying to $node"
    # shellcheck disable=SC2029  # the folder is meant as it is here
    ssh "$node" "mkdir -p '$cache/$folder'"
    # AES-GCM is what these CPUs do in hardware; weights do not compress.
    rsync --archive --delete --partial --rsh 'ssh -c aes128-gcm@openssh.com -o Compression=no' \
        "$cache/$folder/" "$node:$cache/$folder/"
    echo "checking $node"
    # shellcheck disable=SC2029
    if ! ssh "$node" "cd '$cache/$folder' && sha256sum --check --quiet --strict" <<<"$manifest"; then
        echo "error: files on $node differ from those here; run this again" >&2
        exit 1
    fi
done
echo "$model: $files files are the same on this node and $# others, in $cache/$folder"
