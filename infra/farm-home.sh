# shellcheck shell=bash
# Sourced by the scripts here: sets FARM_HOME, and refuses one that Ray cannot run from before minutes are spent on it.
# Ray starts its workers by a line of shell in which the path of their Python stands without quotes.
export FARM_HOME=${FARM_HOME:-$HOME/.farm}
case $FARM_HOME in
    *[[:space:]\"\'\\\$\`\&\|\;\<\>\(\)\*\?#]*)
        echo "error: FARM_HOME is '$FARM_HOME', and Ray cannot start from a path with a space or a character that a" \
            "shell reads as its own; set FARM_HOME to another folder, as in: export FARM_HOME=/var/tmp/farm" >&2
        exit 2
        ;;
esac
