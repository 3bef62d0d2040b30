# Sourced by the scripts beside it: where things are, and whether this is a build with CUDA.
# shellcheck shell=bash
set -euo pipefail

source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# The same rule as in LibTorch.cmake.
export ACCEL_DEPS=${ACCEL_DEPS:-${XDG_CACHE_HOME:-$HOME/.cache}/accel}
case $ACCEL_DEPS in
  /*) ;;
  *) ACCEL_DEPS=$source_dir/$ACCEL_DEPS ;;
esac
export torch_version=2.15.0

say() { printf 'accel: %s\n' "$*"; }
fail() {
  printf 'accel: %s\n' "$*" >&2
  exit 1
}

# ACCEL_CUDA=1 or 0 decides; otherwise an NVIDIA driver does.
wants_cuda() {
  case ${ACCEL_CUDA:-} in
    1) return 0 ;;
    0) return 1 ;;
    '') [[ -e /proc/driver/nvidia/version ]] || { command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1; } ;;
    *) fail "ACCEL_CUDA: expected 1 or 0, found '$ACCEL_CUDA'; unset it to let the NVIDIA driver decide" ;;
  esac
}

# Compiling against LibTorch takes up to 2 GiB a job, so memory limits the jobs as well as cores do.
build_jobs() {
  local cores gib
  cores=$(nproc)
  gib=$(awk '/^MemTotal/ {print int($2 / 1048576)}' /proc/meminfo)
  local jobs=$((gib / 2))
  ((jobs < 1)) && jobs=1
  echo $((jobs < cores ? jobs : cores))
}
