#!/bin/sh
# one.sh - runs one fuzz target for a while: one.sh TARGET SEEDS SECONDS [OPTIONS OF LIBFUZZER]
#
# What it finds on its way is kept in a directory of its own and thrown away; a finding is left where the target was started.
set -eu
target=$1 seeds=$2 seconds=$3
shift 3
corpus=$(mktemp -d)
trap 'rm -rf "$corpus"' EXIT
mkdir -p "$corpus/new"
[ -d "$seeds" ] || seeds=
"$target" -max_total_time="$seconds" -max_len=8192 -timeout=10 -verbosity=0 -print_final_stats=1 "$@" "$corpus/new" $seeds
