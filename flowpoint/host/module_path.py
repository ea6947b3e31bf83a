"""Where modules are looked for: Python's library first, what is installed next, the folder of a job last.

Jobs are called numbers.py, queue.py or rich.py. Whoever imports the module of that name, now or later, in the coordinator
or in a worker, must get the library's. Python itself offers many ways for the folder of a job to come first: the working
directory under `python -m`, `PYTHONPATH`, a checkout that is installed in place. So the order is made here, once, and a
child looks where its parent does, in the same order.

Invariants: nothing is imported here but what Python has loaded before it looks anywhere; so this can be imported first.
Not here: which folder is the job's (`launch.jobfile`), starting processes (`host.processes`).
"""

import os
import sys

JOB_MODULE = "flowpoint_job"
"""The module that a job file is, whatever it is called."""

_LIBRARY = os.path.dirname(os.__file__)
_LIBRARY_ZIP = f"python{sys.version_info.major}{sys.version_info.minor}.zip"
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
"""The folder that FlowPoint itself is in."""


def put_in_order() -> None:
    """Look in Python's own library before everything else, and in the working directory, if at all, at the end."""
    sys.path.sort(key=lambda entry: not _is_library(entry))  # a stable sort: the order of the others stays
    try:
        working = os.path.realpath(os.getcwd())
    except FileNotFoundError:  # it has been deleted: nothing can be found there
        return
    if any(os.path.realpath(entry) == working for entry in sys.path):
        put_last(working)


def put_last(folder: str) -> None:
    """Look in a folder, wherever it stood before, after everything else."""
    real = os.path.realpath(folder)
    sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry) != real]
    sys.path.append(folder)


def command_of(module: str) -> list[str]:
    """A command that calls `main()` of a module in another interpreter, which looks for modules where this one does.

    FlowPoint is found first, where it was found here, even if that folder is the job's and therefore comes last.
    """
    library = [entry for entry in sys.path if _is_library(entry)]
    program = (
        f"import sys; sys.path[:] = {[*library, _ROOT]}; import flowpoint;"
        f" sys.path[:] = {sys.path}; from {module} import main; main()"
    )
    return [sys.executable, "-P", "-c", program]


def _is_library(entry: str) -> bool:
    return entry in {_LIBRARY, os.path.join(_LIBRARY, "lib-dynload")} or os.path.basename(entry) == _LIBRARY_ZIP
