"""The package that a job file lies in, so that it can import its siblings the way other modules of the package do.

A folder with an `__init__.py` is a package, as for pytest; so are the folders above it that have one. `from .sibling
import x` and `from package.sibling import x` then work in the job file, wherever `flowpoint run` is typed. Without
`__init__.py` the neighbours are modules of their own: `from sibling import x`.

Not here: the order in which folders are looked in (`host.module_path`).
"""

from __future__ import annotations

import os
from typing import NamedTuple


class Package(NamedTuple):
    """The dotted name of a package, and the folder that its first part is in."""

    name: str
    root: str


def package_of(path: str) -> Package | None:
    """The package that a file (absolute path) is in, or None when its folder is none."""
    folder, names = os.path.dirname(path), []
    while os.path.isfile(os.path.join(folder, "__init__.py")) and os.path.basename(folder).isidentifier():
        folder, name = os.path.split(folder)
        names.append(name)
    return Package(".".join(reversed(names)), folder) if names else None


def import_advice(error: BaseException, path: str) -> str:
    """What to say behind an import of a job file that failed: where modules are looked for. Nothing for other errors."""
    folder = os.path.dirname(path)
    if isinstance(error, ImportError) and "no known parent package" in str(error):
        return (
            f"; {folder} is no package, as it has no __init__.py: add one, or write `from sibling import ...`, since"
            " modules beside the job file can be imported"
        )
    if isinstance(error, ModuleNotFoundError) and error.name:
        first = error.name.partition(".")[0]
        if os.path.isdir(os.path.join(os.path.dirname(folder), first)) or os.path.exists(first):
            return (
                f"; modules are looked for beside the job file ({folder}), in the package that it lies in (folders with"
                f" __init__.py) and among what is installed: add the __init__.py, or install {first} (pip install -e .)"
            )
    return ""
