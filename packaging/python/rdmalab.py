"""Reads the run records of rdmalab. The binary comes in the same wheel.

    import rdmalab
    table = rdmalab.read("rdmalab-records")      # a pandas.DataFrame
    rows = rdmalab.rows("rdmalab-records")       # the same as a list, without pandas
"""

import csv
import importlib.metadata
import io
import re
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["binary", "read", "rows"]


def binary():
    """The path of the rdmalab that came with this module, or else of the one in PATH."""
    places = [Path(__file__).with_name("bin") / "rdmalab"]  # pip install --target
    try:
        files = importlib.metadata.files("rdmalab") or []
        places += [Path(file.locate()).resolve() for file in files if file.match("bin/rdmalab")]
    except importlib.metadata.PackageNotFoundError:
        pass  # This file was copied, not installed.
    found = next((str(place) for place in places if place.is_file()), shutil.which("rdmalab"))
    if found is None:
        raise FileNotFoundError("rdmalab is neither beside this module nor in PATH")
    return found


def read(directory):
    """A pandas.DataFrame of a record, or of all records in a directory.

    It has one row for each series of each point, and one for a point without series.
    The columns are those of `rdmalab report DIRECTORY --format csv`; their names end in units.
    Without pandas the result is that of rows().
    """
    try:
        import pandas
    except ImportError:
        return rows(directory)
    return pandas.read_csv(io.StringIO(_csv(directory)))


def rows(directory):
    """The rows of read() as dictionaries.

    A column of numbers has int or float, any other str; an empty cell is None.
    """
    head, *lines = csv.reader(io.StringIO(_csv(directory)))
    columns = [_typed(column) for column in zip(*lines)]
    return [dict(zip(head, row)) for row in zip(*columns)]


def _csv(directory):
    command = [binary(), "report", "--format", "csv", "--", str(directory)]
    ended = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8"
    )
    if ended.returncode != 0:
        raise ValueError(ended.stderr.strip())
    sys.stderr.write(ended.stderr)  # warnings
    return ended.stdout


def _typed(cells):
    kinds = [(int, r"-?\d+"), (float, r"-?\d+(\.\d+)?(e[-+]?\d+)?")]
    filled = [cell for cell in cells if cell]
    for kind, form in kinds:
        if all(re.fullmatch(form, cell) for cell in filled):
            return [kind(cell) if cell else None for cell in cells]
    return [cell or None for cell in cells]
