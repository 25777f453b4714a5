#!/usr/bin/env bash
# sanitizer_test.sh - programs with ASan, TSan or UBSan, and under valgrind, run on vhca: sanitizer_test.sh LIBVERBENA-VHCA.SO PROGRAM.C
#
# Each way of building is one case: it must run to its end, and the sanitizer must have nothing to say. A compiler or valgrind
# that is not there is a named skip.
set -u
vhca=$1 source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0 passed=0

# One case: ok NAME COMMAND...
ok() {
	local name=$1
	shift
	if timeout 120 "$@" >"$work/out" 2>&1 && grep -q 'all messages arrived' "$work/out" &&
		! grep -qE 'Sanitizer|runtime error|ERROR SUMMARY: [^0]' "$work/out"; then
		echo "ok: $name"
		passed=$((passed + 1))
	else
		echo "FAILED: $name: $*"
		tail -n 30 "$work/out"
		failed=1
	fi
}

have() {
	command -v "$1" >/dev/null || { echo "SKIP $2: there is no $1"; return 1; }
}

# build COMPILER OUT OPTIONS...; the linker gets what follows the source last
build() {
	local compiler=$1 out=$2
	shift 2
	"$compiler" -g -O1 -o "$work/$out" "$source" "$@" -libverbs || { echo "FAILED: $compiler $*"; failed=1; return 1; }
}

if have gcc sanitizer_gcc; then
	build gcc plain && ok "no sanitizer, preloaded" env LD_PRELOAD="$vhca" "$work/plain"
	build gcc asan -fsanitize=address &&
		ok "gcc, ASan, its runtime preloaded first" env LD_PRELOAD="$(gcc -print-file-name=libasan.so):$vhca" "$work/asan"
	build gcc asan-static -fsanitize=address -static-libasan &&
		ok "gcc, ASan in the program" env LD_PRELOAD="$vhca" "$work/asan-static"
	build gcc asan-linked -fsanitize=address -Wl,--no-as-needed "$vhca" -Wl,-rpath,"$(dirname "$vhca")" &&
		ok "gcc, ASan, vhca linked ahead of libibverbs" "$work/asan-linked"
	build gcc ubsan -fsanitize=undefined && ok "gcc, UBSan" env LD_PRELOAD="$vhca" "$work/ubsan"
	build gcc tsan -fsanitize=thread &&
		ok "gcc, TSan, its runtime preloaded first" env LD_PRELOAD="$(gcc -print-file-name=libtsan.so):$vhca" "$work/tsan"
	build gcc tsan-linked -fsanitize=thread -Wl,--no-as-needed "$vhca" -Wl,-rpath,"$(dirname "$vhca")" &&
		ok "gcc, TSan, vhca linked ahead of libibverbs" "$work/tsan-linked"
fi
if have clang sanitizer_clang; then
	build clang clang-asan -fsanitize=address && ok "clang, ASan" env LD_PRELOAD="$vhca" "$work/clang-asan"
	build clang clang-asan-shared -fsanitize=address -shared-libasan &&
		ok "clang, ASan, its shared runtime preloaded first" \
			env LD_PRELOAD="$(clang -print-file-name=libclang_rt.asan-x86_64.so):$vhca" "$work/clang-asan-shared"
	build clang clang-ubsan -fsanitize=undefined && ok "clang, UBSan" env LD_PRELOAD="$vhca" "$work/clang-ubsan"
	build clang clang-tsan -fsanitize=thread && ok "clang, TSan" env LD_PRELOAD="$vhca" "$work/clang-tsan"
fi
if have valgrind sanitizer_valgrind && [ -e "$work/plain" ]; then
	ok "valgrind, memcheck" env LD_PRELOAD="$vhca" valgrind -q --error-exitcode=9 "$work/plain"
	ok "valgrind, callgrind" env LD_PRELOAD="$vhca" valgrind -q --tool=callgrind --callgrind-out-file=/dev/null "$work/plain"
fi
echo "sanitizer_test: $passed passed"
exit $failed
