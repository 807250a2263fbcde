"""Reads the run records of rdmalab. The binary comes in the same wheel.

    import rdmalab
    table = rdmalab.read("rdmalab-records")      # a pandas.DataFrame
    rows = rdmalab.rows("rdmalab-records")       # the same as a list, without pandas
"""

import csv
import importlib.metadata
import io
import shutil
import subprocess
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
    """A pandas.DataFrame of a record, or of all records in a directory: one row for each series.

    The columns are those of `rdmalab report DIRECTORY --format csv`; their names end in units.
    Without pandas the result is that of rows().
    """
    try:
        import pandas
    except ImportError:
        return rows(directory)
    return pandas.read_csv(io.StringIO(_csv(directory)))


def rows(directory):
    """The rows of read() as dictionaries: numbers are int or float, empty cells are None."""
    table = csv.DictReader(io.StringIO(_csv(directory)))
    return [{name: _value(cell) for name, cell in row.items()} for row in table]


def _csv(directory):
    command = [binary(), "report", str(directory), "--format", "csv"]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if ended.returncode != 0:
        raise ValueError(ended.stderr.strip())
    return ended.stdout


def _value(cell):
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            pass
    return cell or None
