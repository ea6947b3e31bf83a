"""A toy stream processor that proves the simulated world: a coordinator, two sources, two summing tasks.

Sources send the numbers 0..N-1 to the summing tasks; barriers, alignment, a manifest, a commit log, and files that
become visible when a checkpoint is committed. It uses the host, the formats of the snapshot room, and nothing else of
FlowPoint. `bug` plants a mistake, so that a campaign can be seen to find it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

from flowpoint.errors import LinkLost
from flowpoint.host.base import Host, Link, Process
from flowpoint.sim.checkers import StorageChecker
from flowpoint.sim.faults import MACHINE_FAULTS, FaultKind, FaultMix, draw_mix
from flowpoint.sim.host import SimHost
from flowpoint.sim.output_checkers import OutputChecker
from flowpoint.sim.run import ScenarioFactory
from flowpoint.sim.world import InvariantBroken, SimProcess, SimWorld

STORAGE, OUTPUT, COORDINATOR = "/job", "/out", "coordinator"
WORKERS = [("source", 0), ("source", 1), ("summer", 0), ("summer", 1)]
INTERVAL, BATCH, PACES = 0.2, 10, (0.01, 0.03)
LOST: dict[str, Any] = {"type": "lost"}


class Box:
    """What came in: (from whom, message) pairs, in order per sender."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[tuple[Any, dict[str, Any]]] = asyncio.Queue()

    def hear(self, link: Link, who: Any) -> None:
        link.start(
            lambda frame: self.queue.put_nowait((who, json.loads(frame))),
            lambda reason: self.queue.put_nowait((who, LOST)),
        )


def send(link: Link, **message: Any) -> None:
    link.send_nowait(json.dumps(message).encode())


async def write(host: Host, path: str, data: bytes, sync: bool = True) -> None:
    with suppress(FileNotFoundError):
        await host.disk.remove(path)
    file = await host.disk.create(path)
    await file.write(data)
    if sync:
        await file.sync()
    await file.close()


# ------------------------------------------------------------------ coordinator


class Coordinator:
    def __init__(self, host: Host, bug: str) -> None:
        self.host, self.bug = host, bug
        self.number = self.attempt = self.checkpoint = 0
        self.restored: dict[str, Any] = {}

    async def run(self) -> int:
        for folder in f"{STORAGE}/commits", f"{STORAGE}/shared", OUTPUT:
            await self.host.disk.make_dirs(folder)
        while True:
            if await self.read_log() == "finished":
                return 0
            self.attempt += 1
            await self.append("attempt", self.checkpoint, "")
            if await Attempt(self).run():
                await self.append("finished", self.checkpoint, "")
                return 0

    async def read_log(self) -> str:
        kind, directory = "", ""
        names = [n for n in await self.host.disk.list(f"{STORAGE}/commits") if not n.startswith(".")]
        for name in names:
            entry = json.loads(await self.host.disk.read(f"{STORAGE}/commits/{name}"))
            self.number, self.attempt, kind = entry["number"], entry["attempt"], entry["kind"]
            if kind == "checkpoint":
                self.checkpoint, directory = entry["checkpoint_id"], entry["checkpoint"]
        if directory:
            self.restored = json.loads(await self.host.disk.read(f"{STORAGE}/{directory}/manifest.json"))["operators"]
        # An entry that the last coordinator linked and did not sync may still vanish; make what was read durable.
        await self.host.disk.sync_dir(f"{STORAGE}/commits")
        return kind

    async def append(self, kind: str, checkpoint: int, directory: str) -> None:
        self.number += 1
        entry = {"number": self.number, "kind": kind, "attempt": self.attempt, "lineage": "L"}
        entry |= {"checkpoint": directory, "checkpoint_id": checkpoint}
        temp = f"{STORAGE}/commits/.{self.host.new_id()}.tmp"
        await write(self.host, temp, json.dumps(entry).encode())
        await self.host.disk.link(temp, f"{STORAGE}/commits/{self.number:08d}.json")
        await self.host.disk.remove(temp)
        await self.host.disk.sync_dir(f"{STORAGE}/commits")


class Attempt:
    def __init__(self, coordinator: Coordinator) -> None:
        self.c, self.host = coordinator, coordinator.host
        self.box = Box()
        self.links: dict[tuple[str, int], Link] = {}
        self.acks: dict[str, Any] = {}
        self.ended: set[Any] = set()
        self.pending = 0
        self.final = 0

    async def run(self) -> bool:
        """Live until the job is finished (True) or something is lost (False)."""
        address = self.host.socket_address(f"{COORDINATOR}-{self.c.attempt}-{self.host.new_id()}")
        others: list[Link] = []

        def greet(link: Link) -> None:
            others.append(link)
            self.box.hear(link, link)

        listener = await self.host.listen(address, greet)
        children: list[Process] = []
        try:
            for kind, index in WORKERS:
                children.append(await self.host.start_process(kind, [str(index), address, str(self.c.attempt)], None))
            return await self.obey()
        finally:
            listener.close()
            for link in others:
                link.close()
            for child in children:
                child.kill()
            for child in children:
                await child.wait()

    async def obey(self) -> bool:
        addresses: dict[str, str] = {}
        confirmed: set[Any] = set()
        loop = asyncio.get_running_loop()
        due = loop.time() + INTERVAL
        while True:
            try:
                async with asyncio.timeout_at(due):
                    who, message = await self.box.queue.get()
            except TimeoutError:
                due = loop.time() + INTERVAL
                self.trigger()
                continue
            match message["type"]:
                case "lost":
                    return False
                case "hello":
                    me = (message["kind"], message["index"])
                    self.links[me] = who
                    addresses[f"{me[0]}{me[1]}"] = message["address"]
                    if len(self.links) == len(WORKERS):
                        for link in self.links.values():
                            send(link, type="deploy", addresses=addresses, restored=self.c.restored)
                case "ended":
                    self.ended.add(message["index"])
                case "ack" if message["checkpoint"] == self.pending:
                    self.acks[message["who"]] = message["state"]
                    if len(self.acks) == len(WORKERS) - (self.c.bug == "ack_missing"):
                        await self.complete()
                case "committed" if self.final and message["checkpoint"] == self.final:
                    confirmed.add(message["who"])
                    if len(confirmed) == 2:
                        return True

    def trigger(self) -> None:
        if len(self.links) < len(WORKERS) or self.pending:
            return
        self.pending, self.acks = self.c.checkpoint + 1, {}
        self.final = self.pending if len(self.ended) == 2 else 0
        for (kind, _), link in self.links.items():
            if kind == "source":
                send(link, type="barrier", checkpoint=self.pending)

    async def complete(self) -> None:
        directory = f"chk-{self.pending}-a{self.c.attempt}"
        manifest = {"id": self.pending, "attempt": self.c.attempt, "operators": self.acks}
        await self.host.disk.make_dirs(f"{STORAGE}/{directory}")
        temp = f"{STORAGE}/{directory}/.manifest.tmp"
        await write(self.host, temp, json.dumps(manifest).encode())
        await self.host.disk.rename(temp, f"{STORAGE}/{directory}/manifest.json")
        await self.host.disk.sync_dir(f"{STORAGE}/{directory}")
        await self.c.append("checkpoint", self.pending, directory)
        # From here on the checkpoint counts.
        self.c.checkpoint, self.pending = self.pending, 0
        for (kind, _), link in self.links.items():
            if kind == "summer":
                send(link, type="complete", checkpoint=self.c.checkpoint)


# ------------------------------------------------------------------ workers


class Worker:
    def __init__(self, host: Host, args: Sequence[str], kind: str) -> None:
        self.host, self.kind, self.index, self.attempt = host, kind, int(args[0]), args[2]
        self.coordinator = args[1]
        self.name = f"{kind}{args[0]}"
        self.box = Box()
        self.control: Link

    async def join(self) -> dict[str, Any]:
        self.host.start_heartbeat(self.coordinator, b'{"type": "beat"}', 0.1)
        address = self.host.socket_address(f"{self.name}-{self.attempt}-{self.host.new_id()}")
        await self.host.listen(address, lambda link: self.box.hear(link, link))
        self.control = await self.host.connect(self.coordinator)
        self.box.hear(self.control, "control")
        send(self.control, type="hello", kind=self.kind, index=self.index, address=address)
        early = []
        while True:
            who, message = await self.box.queue.get()
            if message["type"] == "lost":
                raise LinkLost("somebody is gone")
            if message["type"] == "deploy":
                break
            early.append((who, message))
        for one in early:
            self.box.queue.put_nowait(one)
        return message

    def restored(self, message: dict[str, Any]) -> dict[str, Any]:
        operator = message["restored"].get(self.name)
        return operator["subtasks"][0] if operator else {}

    def ack(self, checkpoint: int, **state: Any) -> None:
        send(self.control, type="ack", who=self.name, checkpoint=checkpoint, state={"subtasks": [state]})


async def source_main(host: Host, args: Sequence[str], count: int) -> int:
    """Sends every second number; number n goes to the summer (n // 2) % 2."""
    worker = Worker(host, args, "source")
    message = await worker.join()
    links = [await host.connect(message["addresses"][f"summer{i}"]) for i in range(2)]
    for link in links:
        worker.box.hear(link, link)
    state = worker.restored(message)
    position = state["splits"][0]["position"] if state else worker.index
    told = False
    while True:
        if position < count:
            numbers = range(position, min(count, position + 2 * BATCH), 2)
            for i, link in enumerate(links):
                send(link, type="records", numbers=[n for n in numbers if n // 2 % 2 == i])
            position = numbers[-1] + 2
        elif not told:
            told = True
            send(worker.control, type="ended", index=worker.index)
        await asyncio.sleep(PACES[worker.index])
        while not worker.box.queue.empty():
            _, message = worker.box.queue.get_nowait()
            if message["type"] == "lost":
                raise LinkLost("somebody is gone")
            if message["type"] == "barrier":
                for link in links:
                    send(link, type="barrier", checkpoint=message["checkpoint"])
                worker.ack(message["checkpoint"], splits=[{"position": position}])


class Summer:
    def __init__(self, worker: Worker, bug: str) -> None:
        self.worker, self.host, self.bug = worker, worker.host, bug
        self.total = 0
        self.fresh: list[int] = []
        self.uncommitted: list[list[Any]] = []
        self.arrived: list[Any] = []
        self.held: list[tuple[Any, dict[str, Any]]] = []
        self.done = 0

    async def restore(self, state: dict[str, Any]) -> None:
        if state:
            self.total = json.loads(await self.host.disk.read(f"{STORAGE}/{state['files'][0]['path']}"))
            self.uncommitted = state["committables"]
            await self.commit(10**9)

    async def run(self) -> None:
        while True:
            who, message = await self.worker.box.queue.get()
            if who in self.arrived and message["type"] in ("records", "barrier"):
                self.held.append((who, message))
            else:
                await self.take(who, message)

    async def take(self, who: Any, message: dict[str, Any]) -> None:
        match message["type"]:
            case "records":
                self.total += sum(message["numbers"])
                self.fresh += message["numbers"]
            case "barrier" if self.bug == "no_alignment":
                if message["checkpoint"] != self.done:
                    self.done = message["checkpoint"]
                    await self.snapshot(self.done)
            case "barrier":
                self.arrived.append(who)
                if len(self.arrived) == 2:
                    await self.snapshot(message["checkpoint"])
                    self.arrived = []
                    held, self.held = self.held, []
                    for one in held:
                        await self.take(*one)
            case "lost":
                raise LinkLost("somebody is gone")
            case "complete":
                await self.commit(message["checkpoint"])
                send(self.worker.control, type="committed", who=self.worker.name, checkpoint=message["checkpoint"])

    async def snapshot(self, checkpoint: int) -> None:
        data = json.dumps(self.total).encode()
        path = f"shared/{self.worker.name}-a{self.worker.attempt}-{checkpoint}.delta"
        await write(self.host, f"{STORAGE}/{path}", data, sync=self.bug != "ack_without_sync")
        await self.host.disk.sync_dir(f"{STORAGE}/shared")
        if self.fresh:
            part = f"part-{checkpoint:08d}-{self.worker.index:03d}-a{self.worker.attempt}-L.txt"
            await write(self.host, f"{OUTPUT}/.{part}", json.dumps(self.fresh).encode())
            await self.host.disk.sync_dir(OUTPUT)
            self.uncommitted.append([checkpoint, part])
            self.fresh = []
        file = {"path": path, "kind": "delta", "bytes": len(data), "checksum": "", "groups": [0, 0]}
        self.worker.ack(checkpoint, files=[file], committables=list(self.uncommitted))

    async def commit(self, checkpoint: int) -> None:
        for one in [part for part in self.uncommitted if part[0] <= checkpoint]:
            if await self.host.disk.stat(f"{OUTPUT}/{one[1]}") is None:
                await self.host.disk.rename(f"{OUTPUT}/.{one[1]}", f"{OUTPUT}/{one[1]}")
            self.uncommitted.remove(one)
        await self.host.disk.sync_dir(OUTPUT)


async def summer_main(host: Host, args: Sequence[str], bug: str) -> int:
    worker = Worker(host, args, "summer")
    message = await worker.join()
    summer = Summer(worker, bug)
    await summer.restore(worker.restored(message))
    await summer.run()
    return 0


# ------------------------------------------------------------------ scenario


class Toy:
    """The toy as a scenario. With `checked=False` only the final output is looked at."""

    safety_seconds, liveness_seconds = 60.0, 60.0

    def __init__(self, seed: int, bug: str = "", checked: bool = True) -> None:
        self.name, self.bug, self.checked = f"toy {bug or 'without a bug'}", bug, checked
        draw = Random(f"{seed}:workload")
        self.count = draw.choice((200, 600, 1200))
        self.mix: FaultMix = draw_mix(draw, MACHINE_FAULTS)

    def set_up(self, world: SimWorld) -> None:
        async def coordinator_main(host: SimHost, args: Sequence[str]) -> int:
            return await Coordinator(host, self.bug).run()

        world.programs[COORDINATOR] = coordinator_main
        world.programs["source"] = partial(tolerant, main=partial(source_main, count=self.count))
        world.programs["summer"] = partial(tolerant, main=partial(summer_main, bug=self.bug))
        if self.checked:
            OutputChecker(world, OUTPUT, StorageChecker(world, STORAGE))

    def root(self) -> tuple[str, Sequence[str]]:
        return COORDINATOR, ()

    def may_start_again(self, process: SimProcess) -> bool:
        # The toy does not retry anything: a disk error or a lost link ends its coordinator, and that is fine.
        return "OSError" in process.exit_reason or "FileExistsError" in process.exit_reason

    def damage(self, world: SimWorld) -> str | None:
        return None

    def ask(self, world: SimWorld, request: FaultKind) -> None:
        """The toy takes no requests."""

    def judge(self, world: SimWorld) -> None:
        parts = {name: world.files.file(f"{OUTPUT}/{name}").data for name in world.files.list(OUTPUT)}
        numbers = sorted(n for name, data in parts.items() if name.startswith("part-") for n in json.loads(data))
        if numbers != list(range(self.count)):
            raise InvariantBroken(f"{len(numbers)} numbers came out, {self.count} went in")
        newest = max(int(n.split("-")[1]) for n in world.files.list(STORAGE) if n.startswith("chk-"))
        finished = [c for c in world.files.list(STORAGE) if c.startswith(f"chk-{newest}-")]
        totals = [self.total_of(world, directory) for directory in finished]
        if sum(range(self.count)) not in totals:
            raise InvariantBroken(f"the sums are {totals}, not {sum(range(self.count))}")

    def total_of(self, world: SimWorld, directory: str) -> int:
        if world.files.find(f"{STORAGE}/{directory}/manifest.json") is None:
            return -1
        manifest = json.loads(world.files.file(f"{STORAGE}/{directory}/manifest.json").data)
        files = [f["path"] for o in manifest["operators"].values() for f in o["subtasks"][0].get("files", ())]
        return sum(json.loads(world.files.file(f"{STORAGE}/{path}").data) for path in files)


async def tolerant(host: SimHost, args: Sequence[str], main: Any) -> int:
    """A worker whose surroundings fail ends; the coordinator starts the next attempt."""
    try:
        result: int = await main(host, args)
    except (OSError, LinkLost) as error:
        raise SystemExit(3) from error
    return result


def toy(bug: str = "", checked: bool = True) -> ScenarioFactory:
    """A factory of toys with this bug."""
    return lambda seed: Toy(seed, bug, checked)


CORRECT = toy()
