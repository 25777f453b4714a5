#!/bin/sh
# install.sh - an installed Verbena serves programs built out of tree, in C and in C++: usage: install.sh SOURCE BUILD
set -eu
source=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

meson install -C "$build" --no-rebuild --destdir "$work/root" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
pc=$(find "$work/root" -name verbena.pc)
[ -n "$pc" ] || { echo "meson install put no verbena.pc anywhere"; exit 1; }

# The .pc file speaks of the prefix; the staged copy of it is under $work/root. The paths of other packages stay.
export PKG_CONFIG_PATH="${pc%/*}"
prefix=$(pkg-config --variable=prefix verbena)
flags() {
	pkg-config --define-variable=prefix="$work/root$prefix" "$@" verbena
}
libdir=$(pkg-config --define-variable=prefix="$work/root$prefix" --variable=libdir verbena)

# Builds $1 by compiler $2 into $3, against the shared and the static library.
build() {
	$2 -Wall -Wextra -Werror $(flags --cflags) -o "$work/$3" "$1" $(flags --libs)
	$2 -Wall -Wextra -Werror $(flags --cflags) -o "$work/$3-static" "$1" -Wl,-Bstatic -L"$libdir" -lverbena \
		-Wl,-Bdynamic $(flags --static --libs | sed 's/-lverbena//g')
	echo "built ${1##*/} with $2"
}

runs() {
	said=$(LD_LIBRARY_PATH="$libdir" "$work/$1")
	[ "$said" = "$(pkg-config --modversion verbena)" ] || { echo "$1 says version '$said'"; exit 1; }
}

cat >"$work/version.c" <<'CODE'
#include <stdio.h>
#include <verbena.h>

int main(void)
{
	struct vbn_queue_conf queue = {};
	struct vbn_event event = {};

	(void)queue;
	(void)event;
	puts(vbn_version());
	return 0;
}
CODE
sed 's/<stdio.h>/<cstdio>/; s/(void)$/()/' "$work/version.c" >"$work/version.cc"
build "$work/version.c" "gcc -std=gnu17" c
build "$work/version.cc" "g++ -std=c++17" cxx
for program in c c-static cxx cxx-static; do
	runs $program
done
# They are installed, too, beside the README: man 7 verbena sends there.
documents=$(dirname "$(find "$work/root" -name deploying.md)")
for file in README.md LICENSE examples/hello.c examples/hello.cc examples/pingpong.c examples/channel.c examples/kv.c; do
	[ -f "$documents/$file" ] || { echo "meson install put no $file into $documents"; exit 1; }
done
for example in "$documents"/examples/*.c "$documents"/examples/*.cc; do
	case $example in
	*\**) ;;
	*.cc) build "$example" "g++ -std=c++17" example ;;
	*) build "$example" "gcc -std=gnu17" example ;;
	esac
done
