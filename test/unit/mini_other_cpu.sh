#!/bin/sh
# mini_other_cpu.sh - decoders of compressed completions on arm64: usage: mini_other_cpu.sh SOURCE_ROOT
#
# Built by Debian's cross compiler, run under QEMU's user mode.
set -eu
root=$1
for needed in aarch64-linux-gnu-gcc qemu-aarch64; do
	command -v $needed >/dev/null ||
		{ echo "SKIP mini_other_cpu: $needed is not installed: .ci/deps all installs it"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The verbs' headers are the same for every CPU, and Debian keeps them where a cross compiler does not look.
aarch64-linux-gnu-gcc -std=gnu17 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -static \
	-I"$root/include" -I"$root/lib" -idirafter /usr/include \
	"$root/test/unit/mini_other_cpu.c" "$root/test/unit/mini_ring.c" "$root/lib/drv/mlx5/mini.c" -o "$work/mini"
qemu-aarch64 "$work/mini"
