#!/usr/bin/env bash
# build.sh PRESET [TARGET...]: configures (again, if something changed) and builds one preset.
# shellcheck source=src/cmake/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$source_dir"
mkdir -p build

preset=$1
shift
options=()
# The sanitizers do not know the CUDA libraries.
if wants_cuda && [[ $preset != *san* ]]; then nccl=ON; else nccl=OFF; fi
options+=("-DACCEL_WITH_NCCL=$nccl" "-DACCEL_DEPS=$ACCEL_DEPS")
if [[ -n ${ACCEL_LIBTORCH:-} ]]; then options+=("-DACCEL_LIBTORCH=$ACCEL_LIBTORCH"); fi
cmake --preset "$preset" "${options[@]}" >"build/configure-$preset.log" 2>&1 || {
  cat "build/configure-$preset.log" >&2
  exit 1
}
if (($#)); then set -- --target "$@"; fi
# Ninja goes on after an error, so that one run shows all of them.
cmake --build --preset "$preset" --parallel "$(build_jobs)" "$@" -- -k 0
