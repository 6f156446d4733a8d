#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: unpack_golden.py FROM TO: unpacks each FROM/**/NAME.xz to TO/**/NAME, unless that is newer."""
import lzma
import os
import sys


def main(source, target):
    for folder, _, names in os.walk(source):
        for name in names:
            packed = os.path.join(folder, name)
            plain = os.path.join(target, os.path.relpath(packed, source))[:-3]
            if not name.endswith(".xz") or (
                    os.path.exists(plain) and os.path.getmtime(plain) >= os.path.getmtime(packed)):
                continue
            os.makedirs(os.path.dirname(plain), exist_ok=True)
            with lzma.open(packed) as f:
                data = f.read()
            # Renamed into place: two builds' tests may share the folder.
            with open(f"{plain}.{os.getpid()}", "wb") as f:
                f.write(data)
            os.rename(f"{plain}.{os.getpid()}", plain)


main(*sys.argv[1:])
