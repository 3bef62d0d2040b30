#!/usr/bin/env bash
# Every test that this machine can run: the release build, the build without MPI, the sanitizers.
# test.sh [PRESET...]: these builds only.
# shellcheck source=src/cmake/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$source_dir"
(($#)) || set -- release no-mpi asan-ubsan

failed=()
for preset in "$@"; do
  say "$preset: building"
  src/cmake/build.sh "$preset" || {
    failed+=("$preset (build)")
    continue
  }
  # A test that is skipped is named at the end of ctest's output; only those that want a GPU may be.
  ctest --preset "$preset" --parallel "$(nproc)" || failed+=("$preset (tests)")
done
((${#failed[@]} == 0)) || fail "failed: ${failed[*]}"
say "all tests passed: $*"
