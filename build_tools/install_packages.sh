#!/usr/bin/env bash
# Installs the Debian packages that building and testing need and that are missing. Silent where all are there.
# LLVM_DIR, where set, names an LLVM and MLIR of the user's own, which then replaces Debian's.
set -euo pipefail

llvm_packages=(
  clang-22 clang-format-22 clang-tidy-22 lld-22 # the compiler, the linker and the lints
  libclang-rt-22-dev                            # PRESET=asan
  libmlir-22-dev llvm-22-dev mlir-22-tools      # libraries, CMake packages, mlir-tblgen
  llvm-22-tools                                 # FileCheck, not, count
)
other_packages=(
  ccache cmake git ninja-build
  g++                           # tests: torch.compile calls it
  libgmock-dev libgtest-dev     # tests: test/unit
  libzstd-dev zlib1g-dev        # PRESET=release: LLVM's archives refer to them
  python3-dev python3-venv
)

fail() {
  echo "stretto: $*" >&2
  exit 1
}
elsewhere="install LLVM and MLIR 22 and name their CMake folder, as in: make demo LLVM_DIR=/opt/llvm-22/lib/cmake/llvm"

if [[ -n ${LLVM_DIR:-} ]]; then
  [[ -f $LLVM_DIR/LLVMConfig.cmake && -f $LLVM_DIR/../mlir/MLIRConfig.cmake ]] ||
    fail "LLVM_DIR=$LLVM_DIR holds no LLVMConfig.cmake, or there is no ../mlir/MLIRConfig.cmake beside it"
  wanted=("${other_packages[@]}")
else
  wanted=("${llvm_packages[@]}" "${other_packages[@]}")
fi

if ! command -v apt-get >/dev/null; then
  [[ -n ${LLVM_DIR:-} ]] || fail "there is no apt-get here: $elsewhere"
  for tool in ccache cmake git ninja python3; do
    command -v $tool >/dev/null || fail "$tool is missing; install it and run this again"
  done
  exit
fi

# dpkg-query fails where it knows nothing of a package.
installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${wanted[@]}" 2>/dev/null | sed -n 's/ installed$//p') || :
mapfile -t missing < <(comm -23 <(printf '%s\n' "${wanted[@]}" | sort) <(sort <<<"$installed"))
((${#missing[@]})) || exit 0

as_root=()
if ((EUID)); then
  command -v sudo >/dev/null || fail "run as root: apt-get install ${missing[*]}"
  as_root=(sudo)
fi
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=600 "$@"; }

echo "Installing Debian packages: ${missing[*]}"
"${as_root[@]}" dpkg --configure -a # completes an installation that was interrupted
apt update || : # one source that does not answer need not matter; what is then missing is named here
for package in "${missing[@]}"; do
  [[ -n $(apt-cache madison "$package") ]] && continue
  [[ $package == *-22* ]] || fail "this system's package sources do not offer $package"
  fail "this system's package sources do not offer $package, which Debian 12 has in its security updates: $elsewhere"
done
apt install -y --no-install-recommends "${missing[@]}"
