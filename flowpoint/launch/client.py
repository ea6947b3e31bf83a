"""Talks to a running job from another process, over its HTTP interface.

How it works: `run.json` tells the job's socket and token; one connection per question. A question that the job answers
only when something is done (a checkpoint, a stop) may take as long as it takes, but every `PROBE_SECONDS` the job is
asked for its status on a second connection, so that a coordinator that hangs is noticed.

A job does not listen yet when it has just been started, and no more when it is about to end. So nobody who cannot reach
it is told anything before `run.json`, the lock and the process table have said which of the two it is
(`_wait_for_start`): who holds the lock has the job, also before it stands in `run.json`; and a start that has not got so far
is announced (`launch.starting`).

Errors come back as they were raised in the job, by their class's name.
Not here: the other end (`launch.http`).
"""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Callable
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Any

from flowpoint import errors
from flowpoint.errors import FlowPointError, InternalError, NotFoundError, NotListening, TransientError
from flowpoint.launch.claim import owner_of
from flowpoint.launch.control import Data
from flowpoint.launch.home import Home, JobFolder, RunRecord
from flowpoint.launch.starting import is_starting
from flowpoint.snapshot.places import MEMORY

ANSWER_SECONDS = 10.0
PROBE_SECONDS = 10.0
PATIENCE_SECONDS = 2.0
"""After so long a person is told what is waited for."""
START_SECONDS = 5.0
"""Longer than a coordinator takes from writing `run.json` to listening."""

END_SECONDS = 3.0
"""Longer than a coordinator takes from closing its connections to saying how it ended."""

LOOK_SECONDS = 0.05

_ENDINGS = {
    "FINISHED": "it has finished",
    "STOPPED": "it was stopped",
    "CANCELLED": "it was cancelled",
    "FAILED": "it has failed",
    "KILLED": "its coordinator was killed",
    "RUNNING": "its coordinator does not listen",
}


class _OtherRun(Exception):
    """The answer came from a later run of the job."""


class JobClient:
    """Asks one running job."""

    def __init__(self, folder: JobFolder, record: RunRecord, *, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._folder = folder
        self._record = record
        self._answer_seconds = answer_seconds
        self._on_wait: Callable[[], None] | None = None

    @classmethod
    def of(cls, home: Home, name: str) -> JobClient:
        """A client of the job with this name.

        Raises:
            NotFoundError: There is no such job, or it does not run.
            NotListening: It is starting, and has not come far enough within `START_SECONDS`.
        """
        folder = home.find(name)
        until = time.monotonic() + START_SECONDS
        while (record := folder.read_run()) is None or record.outcome:
            _wait_for_start(folder, record, until)
        return cls(folder, record)

    def get(self, path: str, *, seconds: float | None = None) -> Any:
        """The answer to a GET, within `seconds` (default: as the client was made)."""
        return self._ask("GET", path, self._answer_seconds if seconds is None else seconds, patient=False)

    def post(self, path: str, body: Data | None = None, *, on_wait: Callable[[], None] | None = None) -> Data:
        """The answer to a POST, however long it takes while the job is alive.

        Args:
            on_wait: Called once if there is no answer after `PATIENCE_SECONDS`.
        """
        self._on_wait = on_wait
        answer: Data = self._ask("POST", path, self._answer_seconds, patient=True, body=body)
        return answer

    def _ask(self, method: str, path: str, seconds: float, *, patient: bool, body: Data | None = None) -> Any:
        until = time.monotonic() + min(seconds, START_SECONDS)
        while True:
            try:
                return self._ask_once(method, path, seconds, patient=patient, body=body)
            except (FileNotFoundError, ConnectionRefusedError, _OtherRun):
                self._look_again(until)
            except TimeoutError:
                raise TransientError(
                    f"job {self._record.name!r} (pid {self._record.process.pid}) did not answer within {seconds:g} s: its"
                    " coordinator is stopped or overloaded; try again, or look at"
                    f" `flowpoint logs {self._record.name}`"
                ) from None
            except (OSError, HTTPException):
                # It may have done what it was asked to do, so it is not asked again.
                self._wait_for_end(time.monotonic() + END_SECONDS)
                raise TransientError(
                    f"job {self._record.name!r} closed the connection before it answered; look at"
                    f" `flowpoint logs {self._record.name}`, and try again"
                ) from None

    def _ask_once(self, method: str, path: str, seconds: float, *, patient: bool, body: Data | None) -> Any:
        connection = _UnixConnection(self._record.socket, seconds)
        try:
            headers = {"Authorization": f"Bearer {self._record.token}"}
            connection.request(method, path, json.dumps(body) if body else None, headers)
            if patient:
                self._wait_for_answer(connection)
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        if response.status == HTTPStatus.UNAUTHORIZED and self._is_other_run():
            raise _OtherRun
        return _content(response.status, content)

    def _is_other_run(self) -> bool:
        """Whether the job has been started again since this client was made: then it wants another token."""
        return self._newest().token != self._record.token

    def _newest(self) -> RunRecord:
        return self._folder.read_run() or self._record

    def _look_again(self, until: float) -> None:
        """Nobody listens: go on with the run that there is by now, if there is one and it is not too late.

        Raises:
            NotFoundError: The job has ended.
            NotListening: It does not listen in time.
        """
        self._record = self._newest()
        _wait_for_start(self._folder, self._record, until)

    def _wait_for_end(self, until: float) -> None:
        """The connection broke: most likely the job is ending. Raises NotFoundError as soon as it has ended."""
        while time.monotonic() < until:
            record = self._newest()
            if record.state != "RUNNING":
                raise not_running(record)
            time.sleep(LOOK_SECONDS)

    def _wait_for_answer(self, connection: HTTPConnection) -> None:
        if self._on_wait is not None and not select.select([connection.sock], [], [], PATIENCE_SECONDS)[0]:
            self._on_wait()
            self._on_wait = None
        while not select.select([connection.sock], [], [], PROBE_SECONDS)[0]:
            try:
                self.get("/status")
            except NotFoundError:
                return  # the job has ended: the answer is here by now, or never comes


class _UnixConnection(HTTPConnection):
    """An HTTP connection over a Unix socket."""

    def __init__(self, path: str, seconds: float) -> None:
        super().__init__("localhost", timeout=seconds)
        self._path = path

    def connect(self) -> None:
        """Raises TimeoutError: nobody takes the connection in time."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        until = time.monotonic() + (self.timeout or 0)
        while True:
            try:
                self.sock.connect(self._path)
            except BlockingIOError:
                # More wait there already than the kernel keeps: of a socket of this kind it tells that at once.
                if time.monotonic() > until:
                    raise TimeoutError from None
                time.sleep(LOOK_SECONDS)
            else:
                return


def _wait_for_start(folder: JobFolder, record: RunRecord | None, until: float) -> None:
    """Wait a moment for a run that is starting. `record`: what is known of the newest one.

    Raises:
        NotFoundError: None is starting.
        NotListening: It is too late.
    """
    # In this order: a start is withdrawn only when it holds the job, so between the two none is missed.
    is_announced = is_starting(folder, record)
    owner = owner_of(folder)
    if owner is None and not is_announced:
        if record is None:
            raise NotFoundError(f"job {folder.name!r} is not running; `flowpoint run` with its job file starts it")
        raise not_running(record)
    if time.monotonic() > until:
        pid = f" (pid {owner.pid})" if owner is not None else ""
        raise NotListening(
            f"job {folder.name!r} is starting or ending{pid} and does not listen; try again in a moment, or look at"
            f" `flowpoint logs {folder.name}`"
        )
    time.sleep(LOOK_SECONDS)


def not_running(record: RunRecord) -> NotFoundError:
    """The error for a job that is known but has no coordinator; it says how to go on."""
    ending = _ENDINGS.get(record.state, record.state.lower())
    if record.state == "FAILED" and record.reason:
        ending = f"{ending} ({record.reason})"
    advice = f"; `{record.resume}` {_what_it_does(record)}" if record.resume and record.state != "FINISHED" else ""
    return NotFoundError(f"job {record.name!r} is not running: {ending}{advice}")


def _what_it_does(record: RunRecord) -> str:
    """What the command does with which a person goes on."""
    if record.storage == MEMORY and " --from " not in record.resume:
        return (
            "starts it from the beginning, as its checkpoints went with it (a FileSink that has published needs"
            " another folder then, or --take-output)"
        )
    if " --resume-drained" in record.resume and record.state == "STOPPED":
        return "continues it although it was drained: event time begins anew"
    return "tries again" if record.state == "FAILED" else "continues it"


def _content(status: int, body: bytes) -> Any:
    """The data of an answer; an error in it is raised as the class it was in the job."""
    try:
        data = json.loads(body)
        error = data["error"] if status >= 400 else None
        kind, message = (error["kind"], error["message"]) if error else ("", "")
    except (ValueError, KeyError, TypeError) as problem:
        raise InternalError(f"the job gave an answer that cannot be understood: {body[:200]!r}") from problem
    if not error:
        return data
    found = getattr(errors, kind, None)
    if isinstance(found, type) and issubclass(found, FlowPointError):
        raise found(message)
    raise InternalError(message)
