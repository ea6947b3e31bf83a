"""A simulated machine on whose disk and links a test acts by hand, under the eyes of the checkers."""

from __future__ import annotations

import asyncio
import json

from flowpoint.model.plan import JobPlan, TaskSpec
from flowpoint.sim.checkers import StorageChecker
from flowpoint.sim.output_checkers import OutputChecker
from flowpoint.sim.world import SimWorld

WRITER = object()


class Machine:
    """A world in which a test acts on the disk by hand, as a job's storage and output."""

    def __init__(self) -> None:
        self.world = SimWorld(0)
        self.files = self.world.files
        self.tasks: list[TaskSpec] = []
        for folder in "/s/commits", "/s/shared", "/o":
            self.files.make_dirs(folder)
        self.storage = StorageChecker(self.world, "/s")
        self.output = OutputChecker(self.world, "/o", self.storage)

    def write(self, path: str, data: bytes, *, sync: bool = True, sync_dir: bool = True) -> None:
        file = self.files.create(path, WRITER)
        self.files.append(file, data)
        if sync:
            self.files.sync(file, path)
        if sync_dir:
            self.files.sync_dir(path.rsplit("/", 1)[0])

    def publish(self, path: str, data: bytes, *, sync: bool = True, sync_dir: bool = True) -> None:
        folder, name = path.rsplit("/", 1)
        self.write(f"{folder}/.{name}.tmp", data, sync=sync)
        self.files.link(f"{folder}/.{name}.tmp", path)
        self.files.remove(f"{folder}/.{name}.tmp")
        if sync_dir:
            self.files.sync_dir(folder)

    def commit(self, number: int, attempt: int, checkpoint: int = 0, kind: str = "checkpoint", **options) -> None:
        directory = f"chk-{checkpoint}-a{attempt}" if checkpoint else ""
        entry = {"kind": kind, "attempt": attempt, "lineage": "L", "checkpoint": directory, "checkpoint_id": checkpoint}
        self.publish(f"/s/commits/{number:08d}.json", json.dumps(entry).encode(), **options)

    def manifest(self, checkpoint: int, attempt: int, *paths: str, size: int = 1) -> None:
        files = [{"path": path, "kind": "delta", "bytes": size, "checksum": "", "groups": [0, 1]} for path in paths]
        plan = JobPlan("job", 128, (), tuple(self.tasks), (), "").to_data()
        operators = {"uid": {"subtasks": [{"files": files}]}}
        body = {"id": checkpoint, "attempt": attempt, "plan": plan, "operators": operators}
        self.files.make_dirs(f"/s/chk-{checkpoint}-a{attempt}")
        self.publish(f"/s/chk-{checkpoint}-a{attempt}/manifest.json", json.dumps(body).encode())

    def checkpoint(self, number: int, checkpoint: int, attempt: int) -> str:
        """A whole good checkpoint; returns the path of its state file."""
        path = f"shared/f-{checkpoint}-a{attempt}"
        self.write(f"/s/{path}", b"x")
        self.manifest(checkpoint, attempt, path)
        self.commit(number, attempt, checkpoint)
        return path

    def part(self, checkpoint: int, attempt: int, data: bytes = b"row\n", **options) -> None:
        self.write(f"/o/.part-{checkpoint:08d}-000-a{attempt}-L.txt", data, **options)
        self.files.rename(f"/o/.part-{checkpoint:08d}-000-a{attempt}-L.txt", self.part_path(checkpoint, attempt))
        self.files.sync_dir("/o")

    @staticmethod
    def part_path(checkpoint: int, attempt: int) -> str:
        return f"/o/part-{checkpoint:08d}-000-a{attempt}-L.txt"

    def verdict(self) -> None:
        """Raise what a checker has found."""
        try:
            self.world.run(asyncio.sleep(0))
        finally:
            self.world.close()
