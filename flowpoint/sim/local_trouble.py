"""What may be wrong with the local state files of a simulated job, while the storage's are well.

It is drawn from a stream of its own, and so changes no other draw of a run.

Not here: when they are hurt (`fault_injector`), what must hold of them (`local_checker`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from flowpoint.sim.faults import FaultKind, FaultMix
from flowpoint.sim.files import File, FileSystem
from flowpoint.sim.jobs import STORAGE, WORK_DIR
from flowpoint.sim.world import SimWorld
from flowpoint.snapshot.local_files import local_folder

LOCAL = local_folder(WORK_DIR)


@dataclass(frozen=True, slots=True)
class LocalTrouble:
    """What is wrong with the local files of one run.

    apart: the work folder is on a file system of its own, so that nothing can be linked.
    full: and that has no room, until faults end.
    hurt: their being damaged, removed and replaced is among the faults.
    """

    apart: bool = False
    full: bool = False
    hurt: bool = False

    def set_up(self, world: SimWorld) -> None:
        """Make the machine so."""
        if self.apart:
            world.files.volume = WORK_DIR
            world.disk_faults.volume_full = self.full
            world.trace.mark("work folder apart, full" if self.full else "work folder apart")

    def added_to(self, mix: FaultMix) -> FaultMix:
        """The faults of a run, with what happens to local files: about a third of them."""
        often = (FaultKind.LOCAL_FILES,) * max(1, len(mix.kinds) // 2)
        return replace(mix, kinds=(*mix.kinds, *often)) if self.hurt else mix


def draw_local_trouble(random: Random) -> LocalTrouble:
    """Draw what is wrong in one run: nothing, in a quarter of them."""
    apart = random.random() < 0.4
    return LocalTrouble(apart, apart and random.random() < 0.3, random.random() < 0.6)


def hurt_local_files(files: FileSystem, random: Random) -> str:
    """Damage, remove or replace some of the local files, and say what was done; "" when there are none.

    Each becomes a file of its own first: what was a link of the storage's file stays whole there.
    """
    found = [(path, file) for path, file in files.walk(LOCAL) if "/." not in path]
    if not found:
        return ""
    chosen = random.sample(found, random.randint(1, len(found)))
    match random.choice(("damaged", "removed", "replaced")):
        case "removed":
            for path, _ in chosen:
                files.remove(path)
            done = "removed"
        case "damaged":
            for path, file in chosen:
                files.write_whole(path, _rotten(bytes(file.data), random))
            done = "damaged"
        case _:
            others = [file for _, file in files.walk(f"{STORAGE}/shared")]
            for path, file in chosen:
                files.write_whole(path, _another(file, others, random))
            done = "replaced by another's"
    return f"{done}: {', '.join(path for path, _ in chosen)}"


def remove_local_copy(files: FileSystem, stored: str) -> None:
    """Remove the local file of one in the storage, if it is a copy and not a link to the same bytes."""
    path = f"{LOCAL}{stored.removeprefix(STORAGE)}"
    if files.find(path) not in (None, files.find(stored)):
        files.remove(path)


def _rotten(data: bytes, random: Random) -> bytes:
    """With one bit flipped: anywhere, or near the start, which the index at the end does not show."""
    rotten = bytearray(data)
    if data:
        rotten[random.randrange(random.choice((len(data), len(data) // 3 + 1)))] ^= 1 << random.randrange(8)
    return bytes(rotten)


def _another(file: File, others: list[File], random: Random) -> bytes:
    """What another run may have left under the name of a file: another state file, whole."""
    unlike = [bytes(other.data) for other in others if other.data != file.data]
    return random.choice(unlike) if unlike else b"what another run has left"
