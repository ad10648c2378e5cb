#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Debian's adb out of the packages that `make adb-clients` unpacked, with their libraries.
root="$(dirname "$0")/../debian/usr/lib"
LD_LIBRARY_PATH="$(echo "$root"/*-linux-gnu | tr ' ' ':'):$(echo "$root"/*-linux-gnu/android)" \
    exec "$root/android-sdk/platform-tools/adb" "$@"
