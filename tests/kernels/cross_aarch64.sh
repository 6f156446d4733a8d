#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: cross_aarch64.sh SOURCE_DIR BUILD_DIR
# Builds the kernel checker for aarch64 with a cross compiler and runs it under an emulator. Exit 77,
# a skip, where one of them is missing. Each file has the flags that src/chip/CMakeLists.txt gives it.
set -eu -o pipefail
src=$1
out=$2/aarch64
cc=${ECH_AARCH64_CC:-aarch64-linux-gnu-gcc}
qemu=$(command -v qemu-aarch64-static || command -v qemu-aarch64 || true)
command -v "$cc" >/dev/null || { echo "skipped: there is no $cc"; exit 77; }
[ -n "$qemu" ] || { echo "skipped: there is no qemu-aarch64"; exit 77; }
mkdir -p "$out"
cd "$src"
flags=(-std=gnu17 -O2 -D_GNU_SOURCE -DNDEBUG -I. -Iinclude -fno-math-errno -ffp-contract=off -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wno-missing-field-initializers -Werror)
objects=()
build() { # MARCH FILE...
  local march=$1 file object
  shift
  for file in "$@"; do
    object=$out/${file//\//_}.o
    "$cc" "${flags[@]}" -march="$march" -c "$file" -o "$object"
    objects+=("$object")
  done
}
build armv8-a src/chip/cpu/ops.c src/chip/cpu/ref/*.c src/chip/cpu/arm/cpu_arm.c src/chip/cpu/arm/mm_neon.c \
  src/chip/quant.c src/chip/pack_ops.c src/chip/image.c src/base/error.c tests/kernels/{main,check_mm,check_pack,check_vector,bench,peak}.c
build armv8.2-a+dotprod src/chip/cpu/arm/mm_dotprod.c
build armv8.2-a+dotprod+i8mm src/chip/cpu/arm/mm_i8mm.c
"$cc" -static "${objects[@]}" -lm -o "$out/kernels"
"$qemu" -cpu max "$out/kernels" --rows 24
