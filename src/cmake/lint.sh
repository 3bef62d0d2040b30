#!/usr/bin/env bash
# Everything about the text of the project that a machine can judge; the quick checks first, all of them before it fails.
# shellcheck source=src/cmake/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$source_dir"

# What git tracks or would: a new file is checked before it is added.
files() { git ls-files --cached --others --exclude-standard -- "$@" | while read -r f; do [[ -f $f ]] && echo "$f"; done; }
failed=()
check() { # name command...
  local name=$1
  shift
  "$@" || failed+=("$name")
}

format() {
  local file changed=0
  local tool=clang-format-14
  command -v $tool >/dev/null || tool=clang-format
  while read -r file; do
    diff -u --label "$file" --label "$file (formatted)" "$file" <($tool "$file") || changed=1
  done < <(files '*.cpp' '*.hpp')
  ((changed == 0)) || {
    say "format these files: $tool -i <file>"
    return 1
  }
}

scripts() {
  local all
  mapfile -t all < <(files '*.sh' .ci/run)
  local script
  for script in "${all[@]}"; do bash -n "$script" || return 1; done
  shellcheck -x "${all[@]}"
}

# Finished work only, and nothing that names one machine.
words() {
  local found=0
  # The pattern is in two parts, or it would find itself.
  files include src accel examples tests docs '*.md' Makefile '*.txt' |
    xargs -d '\n' grep -nE "\b(TO""DO|FIX""ME|XX""X)\b|(^|[^[:alnum:]_.])/(ro""ot|ho""me)/" && found=1
  ((found == 0)) || {
    say "unfinished words, or paths of one machine, in the lines above"
    return 1
  }
}

tidy() {
  [[ -e build/release/compile_commands.json ]] || src/cmake/build.sh release help >/dev/null
  python3 src/cmake/tidy.py build/release "$(nproc)"
}

check format format
check scripts scripts
check words words
check layers python3 tests/support/layer_check.py .
check sizes python3 tests/support/size_check.py . --verbose
check clang-tidy tidy
((${#failed[@]} == 0)) || fail "lint failed: ${failed[*]}"
say "lint passed"
