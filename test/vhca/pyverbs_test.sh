#!/bin/sh
# pyverbs_test.sh - rdma-core's Python tests that are listed in pyverbs_tests.txt, on the emulated device
#
# Usage: pyverbs_test.sh LIBVERBENA-VHCA.SO [TESTS-DIRECTORY]
# Fails where a listed test fails or is skipped; exits 77 where the tests or pyverbs are not installed.

library=$1
source=${2:-/usr/share/doc/rdma-core/tests}
list=$(dirname "$0")/pyverbs_tests.txt
python=/usr/bin/python3 # the one that Debian's pyverbs is for

if [ ! -e "$library" ]; then
	echo "pyverbs_test: no library \"$library\": give the path of libverbena-vhca.so" >&2
	exit 2
fi
if [ ! -d "$source" ] || ! $python -c 'import pyverbs.device' 2>/dev/null; then
	echo "pyverbs_test: skipped: rdma-core's tests or pyverbs are missing: install rdma-core and python3-pyverbs" >&2
	exit 77
fi

work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
cp -r "$source" "$work/tests" || exit 2
gunzip -f "$work"/tests/*.gz 2>/dev/null

library=$(realpath "$library")
listed=$(grep -v '^#' "$list")
wanted=$(echo "$listed" | wc -l)
cd "$work" || exit 2
# shellcheck disable=SC2086 # one argument for each test
PYTHONDONTWRITEBYTECODE=1 LD_PRELOAD="$library" $python tests/run_tests.py -v $listed >log 2>&1
status=$?

ran=$(sed -n 's/^Ran \([0-9]*\) tests\{0,1\} in .*/\1/p' log)
skipped=$(grep -c '\.\.\. skipped' log)
if [ $status -ne 0 ] || [ "${ran:-0}" -ne "$wanted" ] || [ "$skipped" -ne 0 ]; then
	cat log
	echo "pyverbs_test: of $wanted listed tests ${ran:-0} ran and $skipped were skipped; status $status" >&2
	exit 1
fi
echo "pyverbs_test: all $wanted listed tests passed"
