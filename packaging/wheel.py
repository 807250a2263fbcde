#!/usr/bin/env python3
"""Makes a wheel of a binary: wheel.py BINARY VERSION GLIBC OUT. `packaging/make wheel` calls it.

The form is that of https://packaging.python.org/en/latest/specifications/binary-distribution-format
and of PEP 600 (manylinux). The binary has its shared libraries inside, so it is the only one.
"""

import base64
import hashlib
import os
import platform
import re
import sys
import time
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
METADATA = """\
Metadata-Version: 2.1
Name: rdmalab
Version: {version}
Summary: A laboratory for RDMA performance, with a network adapter in software
License: MIT OR Apache-2.0
License-File: LICENSE-MIT
License-File: LICENSE-APACHE
Requires-Python: >=3.8
Provides-Extra: pandas
Requires-Dist: pandas ; extra == 'pandas'
Description-Content-Type: text/markdown

{readme}"""
WHEEL = "Wheel-Version: 1.0\nGenerator: rdmalab\nRoot-Is-Purelib: false\nTag: {tag}\n"


# The first time that a zip file can have: 1980.
EARLIEST = 315532800


def main(binary, version, glibc, out):
    if not re.fullmatch(r"\d+(\.\d+)*((a|b|rc)\d+)?", version):
        sys.exit(f"packaging/wheel.py: {version} is no version of PEP 440, such as 1.2 or 1.2rc1")
    binary = Path(binary).read_bytes()
    tag = f"py3-none-manylinux_{glibc.replace('.', '_')}_{platform.machine()}"
    info = f"rdmalab-{version}.dist-info"
    metadata = METADATA.format(version=version, readme=(HERE / "../README.md").read_text("utf-8"))
    files = {
        "rdmalab.py": (HERE / "python/rdmalab.py").read_bytes(),
        f"rdmalab-{version}.data/scripts/rdmalab": binary,
        f"{info}/LICENSE-MIT": (HERE / "../LICENSE-MIT").read_bytes(),
        f"{info}/LICENSE-APACHE": (HERE / "../LICENSE-APACHE").read_bytes(),
        f"{info}/METADATA": metadata.encode(),
        f"{info}/WHEEL": WHEEL.format(tag=tag).encode(),
    }
    record = f"{info}/RECORD"
    hashes = {name: hashlib.sha256(data).digest() for name, data in files.items()}
    lines = [
        f"{name},sha256={base64.urlsafe_b64encode(hashes[name]).rstrip(b'=').decode()},{len(data)}"
        for name, data in files.items()
    ]
    files[record] = "\n".join([*lines, f"{record},,", ""]).encode()
    date = time.gmtime(max(EARLIEST, int(os.environ["SOURCE_DATE_EPOCH"])))[:6]
    path = Path(out) / f"rdmalab-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, date)
            entry.external_attr = (0o100755 if data is binary else 0o100644) << 16
            wheel.writestr(entry, data, zipfile.ZIP_DEFLATED)
    print(path)


main(*sys.argv[1:])
