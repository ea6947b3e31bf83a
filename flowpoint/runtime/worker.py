"""A worker process: greet the coordinator, run what it deploys, end when it is gone.

One loop takes control messages in order. Everything of an attempt runs in one task of its own, so that a `Release` is
heard even while state is being restored. A message of another attempt than the current one is dropped.

The job's own code comes in through `load`, so that this room knows neither job files nor the plan compiler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from flowpoint.codec.values import Codec, TypeRegistry
from flowpoint.errors import LinkLost
from flowpoint.host.base import Host, Link
from flowpoint.model import messages
from flowpoint.runtime.attempt import Attempt, describe_failure
from flowpoint.runtime.contracts import OperatorDef
from flowpoint.runtime.failures import USER_RAISED
from flowpoint.runtime.surroundings import Surroundings
from flowpoint.snapshot.local_files import LocalFiles, local_folder
from flowpoint.snapshot.places import open_storage
from flowpoint.state.database import Database, OpenDatabase
from flowpoint.transport.control import decode_message, encode_message
from flowpoint.transport.exchange import Exchange, Reception

Load = Callable[[messages.Deploy], Mapping[str, OperatorDef]]
STATS_SECONDS = 1.0


async def worker_main(
    host: Host,
    coordinator_address: str,
    index: int,
    incarnation: str,
    heartbeat_interval: float,
    load: Load,
    log: Callable[[str], None] = print,
    open_database: OpenDatabase = Database,
) -> None:
    """Run worker `index` until the coordinator says `Exit` or its link is lost.

    `open_database`: RocksDB writes its own files outside of any host; a simulated world has its own.
    """
    await _Worker(host, index, incarnation, load, log, open_database).run(coordinator_address, heartbeat_interval)


class _Worker:
    def __init__(
        self,
        host: Host,
        index: int,
        incarnation: str,
        load: Load,
        log: Callable[[str], None],
        open_database: OpenDatabase,
    ) -> None:
        self._host = host
        self._index = index
        self._incarnation = incarnation
        self._load = load
        self._log = log
        self._open_database = open_database
        self._mailbox: asyncio.Queue[messages.Message | None] = asyncio.Queue()
        self._attempt: Attempt | None = None
        self._running: asyncio.Task[None] | None = None
        self._link: Link | None = None
        self._reception = Reception()

    async def run(self, coordinator_address: str, heartbeat_interval: float) -> None:
        host = self._host
        address = host.socket_address(f"w{self._index}-{self._incarnation}")
        listener = await host.listen(address, self._reception.on_link)
        try:
            self._link = await host.connect(coordinator_address)
            self._link.start(self._on_frame, lambda _: self._mailbox.put_nowait(None))
            beat = encode_message(messages.Heartbeat(self._index, self._incarnation))
            stop_heartbeat = host.start_heartbeat(coordinator_address, beat, heartbeat_interval)
            try:
                self._send(messages.Hello(self._index, host.pid, host.start_time, self._incarnation, listener.address))
                await self._obey_to_the_end()
            finally:
                stop_heartbeat()
                self._link.close()
        finally:
            listener.close()
            self._reception.close()

    async def _obey_to_the_end(self) -> None:
        async with asyncio.TaskGroup() as group:
            stats = group.create_task(self._report_stats(), name="stats")
            await self._obey(group)
            await self._release()
            stats.cancel()

    def _on_frame(self, frame: bytes) -> None:
        self._mailbox.put_nowait(decode_message(frame))

    def _send(self, message: messages.Message) -> None:
        assert self._link is not None
        self._link.send_nowait(encode_message(message))

    def _report(self, message: messages.Message) -> None:
        """What a subtask has to say. Before the last word of this worker upon which the job may end go the numbers, whole."""
        if self._attempt is not None and self._attempt.ends_round(message):
            self._send_stats(self._attempt)
        self._send(message)

    async def _obey(self, group: asyncio.TaskGroup) -> None:
        """Take orders in turn until `Exit` or the end of the link."""
        while True:
            message = await self._mailbox.get()
            if message is None or isinstance(message, messages.Exit):
                return
            if isinstance(message, messages.Deploy):
                await self._deploy(message, group)
            elif isinstance(message, messages.Release):
                if self._attempt is None or self._attempt.number <= message.attempt:
                    await self._release()
                self._send(messages.Released(message.attempt, self._index))
            elif self._attempt is not None and self._attempt.number == getattr(message, "attempt", 0):
                self._order(self._attempt, message)

    @staticmethod
    def _order(attempt: Attempt, message: messages.Message) -> None:
        match message:
            case messages.Start():
                attempt.start()
            case messages.Trigger():
                attempt.trigger(message)
            case messages.Abort():
                attempt.abort(message.checkpoint)
            case messages.Complete():
                attempt.complete(message.checkpoint)
            case messages.Resume():
                attempt.resume()
            case _:
                raise AssertionError(f"worker: unexpected message {message}")

    async def _deploy(self, message: messages.Deploy, group: asyncio.TaskGroup) -> None:
        if self._attempt is not None and self._attempt.number >= message.attempt:
            return
        await self._release()
        try:
            functions = self._load(message)
            self._attempt = Attempt(message, self._surroundings(message, functions))
        except USER_RAISED as error:  # nothing is awaited here; the job's own code may raise anything
            self._send(describe_failure(error, message.attempt, self._index, []))
            return
        self._running = group.create_task(self._attempt.run(), name=f"attempt {message.attempt}")

    def _surroundings(self, message: messages.Deploy, functions: Mapping[str, OperatorDef]) -> Surroundings:
        exchange = self._exchange(message, functions)
        host, folder = self._host, local_folder(message.work_dir)
        local = LocalFiles(host.disk, host.new_id, folder, self._log, is_used=message.uses_local)
        return Surroundings(
            host=host,
            worker=self._index,
            storage=open_storage(host, message.storage, local),
            local=local,
            exchange=exchange,
            admit=lambda: self._reception.begin(exchange),
            functions=functions,
            report=self._report,
            log=self._log,
            open_database=self._open_database,
        )

    def _exchange(self, message: messages.Deploy, functions: Mapping[str, OperatorDef]) -> Exchange:
        types = [t for definition in functions.values() for t in definition.types]
        peers = {int(worker): address for worker, address in message.peers.items()}

        def on_lost(reason: str) -> None:
            self._send(describe_failure(LinkLost(reason), message.attempt, self._index, []))

        return Exchange(self._host, message.attempt, self._index, Codec(TypeRegistry(types)), peers, on_lost)

    async def _release(self) -> None:
        """End the current attempt and wait until nothing of it is left."""
        if self._running is None:
            return
        running, self._running, self._attempt = self._running, None, None
        self._reception.end()
        running.cancel()
        await asyncio.wait([running])
        if not running.cancelled() and (error := running.exception()) is not None:
            self._log(f"worker {self._index}: an attempt did not end in order: {type(error).__name__}: {error}")

    async def _report_stats(self) -> None:
        while True:
            await asyncio.sleep(STATS_SECONDS)
            if self._attempt is not None:
                self._send_stats(self._attempt)

    def _send_stats(self, attempt: Attempt) -> None:
        self._send(messages.Stats(attempt.number, self._index, attempt.counters(asyncio.get_running_loop().time())))
