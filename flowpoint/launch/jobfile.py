"""Loads a job file: reads it once, executes those very bytes, finds the job in it.

The coordinator calls `load_source` and hands the bytes to its workers; `build_job` does the same thing in both, so that
both mean the same job (rule 20). The file runs as the module `flowpoint_job`, whatever it is called, so that the names
of its classes do not change when it is moved. `if __name__ == "__main__":` is therefore false in it. Its neighbours can
be imported, and the package it lies in (`job_package`), but unlike a script's they come last: a job may be called
numbers.py or rich.py, and who imports the real one must get it (`host.module_path`).

Invariants: the bytes executed are the bytes of the `JobSource`, also in tracebacks, even if the file has changed since.
A failure raises UsageError; if the author's own code raised, that exception is the `__cause__`, and its traceback
begins in the job file.

Not here: whether the job makes sense (`plan.validate`), and whether its name belongs to another file (the launcher).
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import linecache
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import CodeType, ModuleType, TracebackType
from typing import Any, Protocol, runtime_checkable

from flowpoint.errors import FlowPointError, UsageError
from flowpoint.host.module_path import JOB_MODULE, put_last
from flowpoint.launch.given_files import read_given
from flowpoint.launch.job_package import import_advice, package_of
from flowpoint.launch.params import Params
from flowpoint.model.suggestions import suggestion
from flowpoint.model.texts import cut, with_article
from flowpoint.plan.graph import StreamGraph

_loading: ContextVar[bool] = ContextVar("flowpoint_job_loading", default=False)


@runtime_checkable
class JobObject(Protocol):
    """An `api.Job`, as far as launching needs it."""

    name: str
    config: dict[str, Any]

    def graph(self) -> StreamGraph:
        """What the author built."""


@dataclass(frozen=True, slots=True)
class JobSource:
    """A job file as it was read: absolute path, and content."""

    path: str
    content: bytes

    def to_data(self) -> dict[str, Any]:
        """As a dict, for messages."""
        return {"path": self.path, "content": self.content}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> JobSource:
        """The reverse of `to_data`."""
        return cls(data["path"], data["content"])


def load_source(path: str) -> JobSource:
    """Read a job file.

    Raises:
        UsageError: There is no such file, it is no regular one, or it cannot be read.
    """
    absolute = os.path.abspath(path)
    if os.path.isdir(absolute):
        raise UsageError(f"job file {path} is a folder: give the Python file in it")
    return JobSource(absolute, read_given(path, "job file"))


def build_job(source: JobSource, params: Mapping[str, str], warn: Callable[[str], None] | None = None) -> JobObject:
    """Execute a job file and return its job: its `job`, or what its `build()` or `build(params)` returns.

    `warn` takes a sentence for each thing that would surprise the author: an import, a parameter that nobody reads.

    Raises:
        UsageError: It cannot be executed, has no job, or has no use for `params`.
    """
    code = _compile(source)
    with _as_main_folder(source):
        module = _execute(source, code)
        given = Params(source.path, params)
        job = _find_job(source, vars(module), given)
    if warn is not None:
        for sentence in (*given.warnings(), *_hidden_neighbours(source)):
            warn(sentence)
    return job


def is_loading() -> bool:
    """Whether the caller is (called by) a job file that `build_job` is executing."""
    return _loading.get()


def _compile(source: JobSource) -> CodeType:
    try:
        return compile(source.content, source.path, "exec", dont_inherit=True)
    except SyntaxError as error:
        raise UsageError(f"job file {source.path}, line {error.lineno}: {error.msg}") from error
    except ValueError as error:
        raise UsageError(f"job file {source.path} is not Python text: {error}") from error


@contextmanager
def _as_main_folder(source: JobSource) -> Iterator[None]:
    """Let the job file import its neighbours and its package, now and later on; and mark that it is loading."""
    put_last(os.path.dirname(source.path))
    if (package := package_of(source.path)) is not None:
        put_last(package.root)
    token = _loading.set(True)
    try:
        yield
    finally:
        _loading.reset(token)


def _hidden_neighbours(source: JobSource) -> list[str]:
    """Modules that a job file that was built imports and that are not the neighbours of that name: one sentence each."""
    folder = os.path.dirname(source.path)
    sentences = []
    for name in sorted(_imported_names(source) - {"__main__", JOB_MODULE}):
        beside = next(
            (path for path in (f"{name}.py", f"{name}/__init__.py") if os.path.exists(f"{folder}/{path}")), ""
        )
        if not beside or os.path.join(folder, beside) == source.path:
            continue
        found = importlib.util.find_spec(name)
        if found is not None and found.origin != os.path.join(folder, beside):
            where = "Python's own" if name in sys.stdlib_module_names else f"the one in {found.origin}"
            sentences.append(
                f"`import {name}` in {source.path} takes {where}, not {beside} beside it: Python's library and installed"
                f" packages come first; to import {beside}, give it another name"
            )
    return sentences


def _imported_names(source: JobSource) -> set[str]:
    """The top-level modules that the text of a job file imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source.content)):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def _execute(source: JobSource, code: CodeType) -> ModuleType:
    module = ModuleType(JOB_MODULE)
    module.__file__ = source.path
    package = package_of(source.path)
    module.__package__ = package.name if package is not None else ""  # where `from .sibling import x` begins
    # Dataclasses and typing look up the module of a class by its name while the class is made.
    sys.modules[JOB_MODULE] = module
    _remember_lines(source)
    with _blaming(source, "could not be loaded"):
        exec(code, vars(module))  # noqa: S102  executing the author's file is the duty of this module
    return module


def _remember_lines(source: JobSource) -> None:
    """Show the lines that were executed in tracebacks, not those in the file by then."""
    lines = source.content.decode("utf-8", errors="replace").splitlines(keepends=True)
    # Without a modification time linecache never looks at the file.
    linecache.cache[source.path] = (len(source.content), None, lines, source.path)


@contextmanager
def _blaming(source: JobSource, what: str) -> Iterator[None]:
    """Turn what the author's code raises into a UsageError; what FlowPoint says about it passes through."""
    try:
        yield
    except (FlowPointError, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001  the author's code may raise anything
        own = _from_file(source.path, error.__traceback__)
        where = f", line {own.tb_lineno}" if own is not None else ""
        said = cut(str(error)) + suggestion(error) + import_advice(error, source.path)
        text = f"{type(error).__name__}: {said}" if said else type(error).__name__
        raise UsageError(f"job file {source.path}{where} {what}: {text}") from error.with_traceback(own)


def _from_file(path: str, trace: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that begins in the job file."""
    while trace is not None and trace.tb_frame.f_code.co_filename != path:
        trace = trace.tb_next
    return trace


def _find_job(source: JobSource, names: Mapping[str, object], params: Params) -> JobObject:
    job, build = names.get("job"), names.get("build")
    if isinstance(job, JobObject):
        if params:
            raise UsageError(
                f"job file {source.path} takes no parameters, but --param {' '.join(params)} was given:"
                " define build(params) instead of job"
            )
        return job
    if inspect.isfunction(build):
        return _call_build(source, build, params)
    if job is not None:
        raise UsageError(f"job in {source.path} is {with_article(type(job).__name__)}, not a Job: write job = Job(...)")
    raise UsageError(f"job file {source.path} has no job: {_hint(names)}")


def _hint(names: Mapping[str, object]) -> str:
    others = [name for name, value in names.items() if isinstance(value, JobObject) and not isinstance(value, type)]
    if others:
        return f"found a Job called {', '.join(others)}; call it job"
    return "define job = Job(...), or a function build() that returns one"


def _call_build(source: JobSource, build: Callable[..., object], params: Params) -> JobObject:
    takes_params = bool(inspect.signature(build).parameters)
    if params and not takes_params:
        raise UsageError(
            f"build() in {source.path} takes no parameters, but --param {' '.join(params)} was given:"
            " define build(params)"
        )
    with _blaming(source, "could not build its job"):
        job = build(params) if takes_params else build()
    if not isinstance(job, JobObject):
        raise UsageError(
            f"build() in {source.path} returned {with_article(type(job).__name__)}, not a Job: end it with return job"
        )
    return job
