#!/bin/sh
# exports.sh - only vbn_* symbols leave libverbena.so: usage: exports.sh libverbena.so
set -eu
symbols=$(nm -D --defined-only "$1" | awk '{print $NF}' | sed 's/@.*//' | sort -u)
[ -n "$symbols" ] || { echo "$1 exports nothing"; exit 1; }
others=$(echo "$symbols" | grep -vE '^(vbn_[a-z0-9]|VBN_|VERBENA_)' || true)
inner=$(echo "$symbols" | grep '^vbn__' || true)
echo "$(echo "$symbols" | wc -l) symbols leave the library"
[ -z "$others$inner" ] || { echo "these should not:"; echo "$others$inner"; exit 1; }
