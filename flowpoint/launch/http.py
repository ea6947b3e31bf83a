"""The HTTP interface of a running job: a small HTTP/1.1 server on a Unix socket, JSON only, behind a bearer token.

    GET  /status /workers /checkpoints
    POST /checkpoint /cancel                answered when it is done
    POST /savepoint /stop {"to": folder}    the same; "" or no body: the default folder, and for stop no savepoint
                          {"drain": true}   for stop: end time first
    POST /rescale {"parallelism": number}   the same
    an error is {"error": {"kind": <class in flowpoint.errors>, "message": <for a person>}}

How it works: h11 parses and formats, asyncio streams carry the bytes. One request per connection: a client is a shell
command or a dashboard on this machine, for which a new connection costs nothing, and without keep-alive there is no
idle connection to bound.

Invariants: at most `READING_MAX` clients are sending a request and `ANSWERING_MAX` are waiting for an answer; a client
that does not send or does not read is dropped after `READ_SECONDS` or `WRITE_SECONDS`, or for a newer one. No exception
leaves a connection. A request that was accepted is carried out even when its client has gone.
Not here: what the answers say (`JobControl`), the other end (`launch.client`). Imported late: h11 takes 30 ms.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

import h11

from flowpoint.errors import FlowPointError, NotFoundError, UsageError
from flowpoint.host.kept_sockets import KeptSocket, serve_at
from flowpoint.launch.control import Data, JobControl

READING_MAX = 64
ANSWERING_MAX = 64
HEAD_BYTES_MAX = 16 * 1024
BODY_BYTES_MAX = 64 * 1024
READ_SECONDS = 10.0
WRITE_SECONDS = 10.0

Answer = tuple[HTTPStatus, Any]
Handler = Callable[[JobControl, Data], Awaitable[Any]]


async def _status(control: JobControl, _: Data) -> Any:
    return control.status()


async def _workers(control: JobControl, _: Data) -> Any:
    return control.workers()


async def _savepoint(control: JobControl, body: Data) -> Any:
    return await control.savepoint(_folder(body))


async def _stop(control: JobControl, body: Data) -> Any:
    drain = body.get("drain", False)
    if not isinstance(drain, bool):
        raise UsageError(f"cannot stop with drain={drain!r}: it must be true or false")
    return await control.stop(_folder(body), drain=drain)


async def _rescale(control: JobControl, body: Data) -> Any:
    parallelism = body.get("parallelism")
    if type(parallelism) is not int or parallelism < 1:
        raise UsageError(f"cannot rescale to {parallelism!r}: the parallelism must be a whole number from 1 on")
    return await control.rescale(parallelism)


def _folder(body: Data) -> str:
    """Only its form is looked at here, on the loop: the disk may hang."""
    folder = body.get("to", "")
    if not isinstance(folder, str) or (folder and not (folder.startswith("/") and _is_path(folder))):
        raise UsageError(f"cannot make a savepoint in {folder!r}: name a folder by its absolute path")
    return folder


def _is_path(text: str) -> bool:
    """Whether the system can be asked for a file of that name at all."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


ROUTES: dict[str, tuple[str, Handler]] = {
    "/status": ("GET", _status),
    "/workers": ("GET", _workers),
    "/checkpoints": ("GET", lambda control, _: control.checkpoints()),
    "/checkpoint": ("POST", lambda control, _: control.checkpoint()),
    "/savepoint": ("POST", _savepoint),
    "/stop": ("POST", _stop),
    "/rescale": ("POST", _rescale),
    "/cancel": ("POST", lambda control, _: control.cancel()),
}


class _BadRequest(Exception):
    """The client's fault, with the status that tells it."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class HttpServer:
    """Serves one job.

    Args:
        control: The job.
        token: What a client has to show.
        report: Takes one line for the job's log when a bug shows itself in an answer.
        read_seconds: How long a client may take to send its request.
        write_seconds: How long it may take to read the answer.
    """

    def __init__(
        self,
        control: JobControl,
        token: str,
        report: Callable[[str], None],
        *,
        read_seconds: float = READ_SECONDS,
        write_seconds: float = WRITE_SECONDS,
    ) -> None:
        self._control = control
        self._authorization = f"Bearer {token}".encode()
        self._report = report
        self._read_seconds = read_seconds
        self._write_seconds = write_seconds
        self._socket: KeptSocket | None = None
        self._reading: dict[asyncio.Task[None], None] = {}  # oldest first
        self._answering: set[asyncio.Task[None]] = set()

    async def start(self, path: str) -> None:
        """Listen on a Unix socket at `path`, at which nobody else may listen."""
        self._socket = await serve_at(
            path, lambda sock: asyncio.start_unix_server(self._serve, sock=sock, limit=HEAD_BYTES_MAX)
        )

    async def close(self, grace: float = 2.0) -> None:
        """Stop listening, let answers that are under way go out for `grace` seconds, drop everybody else."""
        if self._socket is not None:
            self._socket.close()
        for task in self._reading:
            task.cancel()
        if self._answering:
            await asyncio.wait(self._answering, timeout=grace)
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._reading, *self._answering, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, to which asyncio has given a task of its own."""
        task = asyncio.current_task()
        assert task is not None, "a connection is served outside of a task"
        if len(self._reading) >= READING_MAX:
            # Who has been silent for longest makes room: a person who asks must not wait for it.
            oldest = next(iter(self._reading))
            del self._reading[oldest]
            oldest.cancel()
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._reading[task] = None
        try:
            answer = await self._converse(connection, reader, task)
            await self._write(connection, writer, answer)
        except (ConnectionError, TimeoutError):
            pass  # The client has gone, or does not read: there is nobody left to tell.
        except asyncio.CancelledError:
            pass  # By `close`. This is the task's last act, and asyncio 3.11 reports a cancelled one as an error.
        finally:
            self._reading.pop(task, None)
            self._answering.discard(task)
            writer.transport.abort()

    async def _converse(
        self, connection: h11.Connection, reader: asyncio.StreamReader, task: asyncio.Task[None]
    ) -> Answer:
        """Read a request and carry it out; always ends in an answer unless the client has gone."""
        try:
            request, raw = await self._read(connection, reader)
            handler, body = self._handler(request), _parsed(raw)
            if len(self._answering) >= ANSWERING_MAX:
                raise _BadRequest(HTTPStatus.SERVICE_UNAVAILABLE, f"{ANSWERING_MAX} requests are waiting already")
        except _BadRequest as error:
            return error.status, _error("UsageError", str(error))
        self._reading.pop(task, None)
        self._answering.add(task)
        return await self._carry_out(handler, body)

    async def _read(self, connection: h11.Connection, reader: asyncio.StreamReader) -> tuple[h11.Request, bytes]:
        """The request's head and its body, which is read to the end in any case: so the client gets to the answer."""
        try:
            async with asyncio.timeout(self._read_seconds):
                return await _read_request(connection, reader)
        except TimeoutError:
            message = f"no whole request came within {self._read_seconds:g} s"
            raise _BadRequest(HTTPStatus.REQUEST_TIMEOUT, message) from None
        except h11.RemoteProtocolError as error:
            raise _BadRequest(HTTPStatus(error.error_status_hint), f"not a request in HTTP/1.1: {error}") from error

    def _handler(self, request: h11.Request) -> Handler:
        """What answers this request, when it may be asked."""
        authorization = next((value for name, value in request.headers if name == b"authorization"), b"")
        if not hmac.compare_digest(authorization, self._authorization):
            raise _BadRequest(HTTPStatus.UNAUTHORIZED, "the token is missing or not that of this job")
        path = request.target.decode("ascii").partition("?")[0]
        method, handler = ROUTES.get(path, ("", None))
        if handler is None:
            raise _BadRequest(HTTPStatus.NOT_FOUND, f"nothing is at {path}; there are {', '.join(ROUTES)}")
        if request.method.decode("ascii") != method:
            raise _BadRequest(HTTPStatus.METHOD_NOT_ALLOWED, f"{path} takes {method} only")
        return handler

    async def _carry_out(self, handler: Handler, body: Data) -> Answer:
        try:
            return HTTPStatus.OK, await handler(self._control, body)
        except FlowPointError as error:
            return _status_of(error), _error(type(error).__name__, str(error))
        except Exception as error:  # noqa: BLE001  a bug in answering a question must not end the job
            self._report(f"a bug in FlowPoint kept a request from being answered: {error!r}")
            return HTTPStatus.INTERNAL_SERVER_ERROR, _error("InternalError", repr(error))

    async def _write(self, connection: h11.Connection, writer: asyncio.StreamWriter, answer: Answer) -> None:
        status, data = answer
        body = json.dumps(data).encode()
        headers = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
        events = (
            h11.Response(status_code=status.value, reason=status.phrase, headers=headers),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )
        async with asyncio.timeout(self._write_seconds):
            writer.write(b"".join(connection.send(event) or b"" for event in events))
            writer.close()
            await writer.wait_closed()


def _parsed(raw: bytes) -> Data:
    """A body as JSON; none is an empty one."""
    try:
        body = json.loads(raw) if raw else {}
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise _BadRequest(HTTPStatus.BAD_REQUEST, f"the body is no JSON object: {raw[:100]!r}")
    return body


async def _read_request(connection: h11.Connection, reader: asyncio.StreamReader) -> tuple[h11.Request, bytes]:
    request: h11.Request | None = None
    body = bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            data = await reader.read(HEAD_BYTES_MAX)
            if not data and request is None and not connection.trailing_data[0]:
                raise ConnectionResetError("the client closed the connection without a request")
            connection.receive_data(data)
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > BODY_BYTES_MAX:
                message = f"the body is longer than {BODY_BYTES_MAX} bytes"
                raise _BadRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)
        elif isinstance(event, h11.EndOfMessage):
            assert request is not None, "h11 ended a message that it did not begin"
            return request, bytes(body)
        else:
            raise ConnectionResetError(f"the client closed the connection: {event!r}")


def _status_of(error: FlowPointError) -> HTTPStatus:
    if isinstance(error, NotFoundError):
        return HTTPStatus.NOT_FOUND
    return HTTPStatus.BAD_REQUEST if isinstance(error, UsageError) else HTTPStatus.CONFLICT


def _error(kind: str, message: str) -> dict[str, dict[str, str]]:
    return {"error": {"kind": kind, "message": message}}
