# shellcheck shell=bash
# Sourced by the scripts here: sets FARM_HOME, and refuses places with spaces before minutes are spent on them. Ray starts
# its workers by a line of shell in which the path of their Python, below FARM_HOME, stands without quotes; so does the
# path of what PyTorch compiles, below HOME.
export FARM_HOME=${FARM_HOME:-$HOME/.farm}
for place in HOME FARM_HOME; do
    case ${!place:-} in
        *[[:space:]\"\'\\\$\`\&\|\;\<\>\(\)\*\?#]*)
            echo "error: $place is '${!place}'; neither Ray nor PyTorch's compiler can use a path with a space or a" \
                "character that a shell reads as its own; set another one, as in: export $place=/var/tmp/farm" >&2
            exit 2
            ;;
    esac
done
unset place
