#!/usr/bin/env bash
# All that needs a GPU, on a machine with CUDA and a Python that has torch >= 2.11: gpu_check.sh [build folder].
# Takes LibTorch from that Python, so nothing is downloaded; the build goes to build/gpu unless named. One line a check;
# whole logs in <build folder>/logs. Ends with 1 if a check failed. Under 8 minutes on 16 cores.
# Header libraries (Boost, doctest, nlohmann-json) that the machine lacks may lie anywhere: CMAKE_PREFIX_PATH and
# CPLUS_INCLUDE_PATH are honoured.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

build=${1:-build/gpu}
logs=$build/logs
mkdir -p "$logs"
python=${PYTHON:-python3}
failures=0
began=$SECONDS

# check NAME SECONDS COMMAND...: one line; on failure the end of its log as well.
check() {
  local name=$1 limit=$2 start=$SECONDS status
  shift 2
  timeout --kill-after=10 "$limit" "$@" >"$logs/$name.log" 2>&1
  status=$?
  if ((status == 0)); then
    printf 'ok      %-28s %4d s\n' "$name" $((SECONDS - start))
  else
    failures=$((failures + 1))
    if ((status == 124 || status == 137)); then status="no end in $limit s"; else status="status $status"; fi
    printf 'FAILED  %-28s %4d s  (%s)\n' "$name" $((SECONDS - start)) "$status"
    tail -n 40 "$logs/$name.log" | sed 's/^/        /'
    return 1
  fi
}
end() {
  printf '%s failed, %d s\n' "$failures" $((SECONDS - began))
  exit $((failures > 0))
}

# find_spec does not import torch, which takes seconds.
torch=$("$python" -c 'import importlib.util, os; print(os.path.dirname(importlib.util.find_spec("torch").origin))') || {
  echo "FAILED  python: expected torch in $python, found none; set PYTHON to one that has it"
  exit 1
}
check driver 30 nvidia-smi || end
echo "        LibTorch of $torch"

mpi=OFF
if command -v mpirun >/dev/null && command -v mpicc >/dev/null; then mpi=ON; fi
echo "        MPI $mpi"
generator=()
if command -v ninja >/dev/null; then generator=(-G Ninja); fi

check configure 120 cmake -S . -B "$build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DACCEL_LIBTORCH="$torch" \
  -DACCEL_WITH_NCCL=ON -DACCEL_WITH_MPI=$mpi -DACCEL_BUILD_BENCHMARKS=OFF -DACCEL_BUILD_EXAMPLES=OFF -DACCEL_BUILD_TOOLS=OFF || end
check build 300 cmake --build "$build" --target accel_gpu_tests --parallel "$(nproc)" || end

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# Lets several ranks share one GPU, which NCCL refuses otherwise.
export NCCL_MULTI_RANK_GPU_ENABLE=1

# One by one: each gets its line, and they would wait for the same GPU anyway.
mapfile -t tests < <(ctest --test-dir "$build" -L '^gpu$' --show-only | sed -n 's/^ *Test *#[0-9]*: *//p')
if ((${#tests[@]} == 0)); then
  echo "FAILED  tests: expected tests with the label gpu, found none"
  failures=$((failures + 1))
fi
for test in "${tests[@]}"; do
  check "$test" 120 ctest --test-dir "$build" -R "^${test//./\\.}\$" --output-on-failure --no-tests=error || continue
  # A test that finds no GPU ends with 77, which ctest counts as skipped and not as failed.
  if grep -q '(Skipped)' "$logs/$test.log"; then
    printf 'FAILED  %-28s was skipped: it found no GPU\n' "$test"
    failures=$((failures + 1))
  fi
done
end
