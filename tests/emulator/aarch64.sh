#!/bin/sh
# Runs the emulator's tests as AArch64 code, on any machine: Debian's cross compiler
# makes the kernels (apt-get install g++-aarch64-linux-gnu qemu-user), qemu runs them,
# and the tests themselves stay Python of this machine. Arguments go to pytest.
# The result of the last run is recorded in csrc/emulator/aarch64.txt.
set -eu
cd "$(dirname "$0")/../.."
export CXX=aarch64-linux-gnu-g++
export CXX_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu"
date --utc +%Y-%m-%d
$CXX --version | head -n 1
qemu-aarch64 --version | head -n 1
exec python -m pytest tests/test_emulator.py tests/test_emulator_kernels.py \
    tests/test_emulator_hopper.py "$@"
