#!/bin/sh
# absent.sh - says that there is no fuzzing in this build
echo "SKIP fuzz: libFuzzer comes with clang, and does not mix with other sanitizers"
exit 77
