"""A store, two handles of it, and the model: whatever is done, both do, and then the same is to be seen.

What a saver does may fail: then it has happened as a whole or not, and is done once more. When the power goes, what was
not synced may be lost, too.

Not here: what is done (`history_machine`).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from flowpoint.agents.running import Run
from flowpoint.agents.saver import RUN, CoreSaver
from flowpoint.errors import BadRecordError, ConcurrentRunError, StorageError
from tests.unit.agents.faulty_files import PowerLost
from tests.unit.agents.history_checks import NAMESPACES, THREADS, check_entries, difference, model_shows, shows
from tests.unit.agents.history_model import Kept, Model, Put, Read
from tests.unit.agents.history_stores import FAULTS, POWER, POWER_AFTER, Clock, Options, Store
from tests.unit.agents.stores import config


class Reading(NamedTuple):
    """A config that a run carries along, and what the model knows of it."""

    config: Any
    thread: str
    ns: str
    id: str | None
    read: Read | None


class Both:
    """A store, two handles of it, one that only reads, and the model."""

    def __init__(self, store: Store, clock: Clock, options: Options) -> None:
        self._store = store
        self._clock = clock
        self._options = options
        self.model = Model(options.on_conflict, 0 if options.schema is None else options.schema.version)
        self._handles: list[CoreSaver] = []
        self._runs: dict[int, tuple[Any, Run]] = {}
        self._puts: list[tuple[Put, Any]] = []
        self._readings: list[Reading] = []
        self._unsynced: list[Model] = []
        self._number = 0
        self._open()

    def _open(self) -> None:
        self._handles = [self._store.open(self._options) for _ in range(2)]
        self._reader = self._store.open(self._options, read_only=True)
        self.model.counts = {0: Counter(), 1: Counter()}

    def close(self) -> None:
        """Let go of the store."""
        for handle in (*self._handles, self._reader):
            handle.close()

    # ------------------------------------------------------------------ doing

    def _do(
        self,
        chance: random.Random,
        model: Callable[[Model, int], Any],
        saver: Callable[[CoreSaver], Any],
        *threads: str,
        handle: int | None = None,
        may_fail: bool = True,
        may_litter: bool = False,
        one_by_one: bool = False,
    ) -> None:
        """Let model and saver do the same, the saver perhaps failing, and then once more."""
        of = chance.randrange(2) if handle is None else handle
        after = self.model.copied()
        expected = model(after, of)
        fault = chance.choice(FAULTS) if may_fail and chance.random() < 0.15 else None
        if fault is not None:
            self._store.fail(chance.choice((1, 1, 2, 3, 5)), fault)
        try:
            actual = saver(self._handles[of])
        except (StorageError, PowerLost):
            assert self._store.heal(), "nothing was told to fail"
            self._failed(chance, after, fault in (POWER, POWER_AFTER), may_litter, one_by_one)
            self._do(chance, model, saver, *threads, handle=of, may_fail=False)
            return
        self._store.heal()
        assert actual == expected, f"{actual!r} is not {expected!r}"
        self._done(after)
        for thread in threads:
            self._check(thread, [chance.choice(self._handles)])

    def _done(self, after: Model) -> None:
        self._unsynced = [] if self._store.is_synced else [*self._unsynced, self.model]
        self.model = after
        for number, handle in enumerate(self._handles):
            counts = Counter(handle.counts)
            del counts["note"]
            assert counts == self.model.counts[number]

    def _failed(
        self, chance: random.Random, after: Model, is_off: bool, may_litter: bool = False, one_by_one: bool = False
    ) -> None:
        """What failed has happened as a whole, or not; when the power went, nor may what was not synced.

        Args:
            after: how it is if it has happened.
            is_off: whether the power went.
            may_litter: whether it may leave writes behind that nobody is shown.
            one_by_one: whether that is so for each thread by itself.
        """
        possible = [self.model, after]
        if is_off:
            possible += self._unsynced
            self._lose_power(chance)
        seen = 2 if may_litter else 3
        found = {thread: shows(self._handles[0], thread)[:seen] for thread in THREADS}
        counts, version = self.model.counts, self.model.version
        for one in possible:
            one.version = version
        if one_by_one:
            possible = [self._mixed(possible, found, seen)]
        for one in possible:
            if found == {thread: model_shows(one, thread)[:seen] for thread in THREADS}:
                runs = {} if is_off else self.model.runs
                self._unsynced = [] if is_off or self._store.is_synced else [*self._unsynced, self.model]
                self.model = one.copied()
                self.model.counts, self.model.runs, self.model.now = counts, runs, self._clock.now
                if may_litter:
                    self._handles[0].sweep(timedelta(0))
                    self.model.sweep(0)
                return
        raise AssertionError(f"what failed has happened in part: {found}")

    def _mixed(self, possible: Sequence[Model], found: dict[str, Any], seen: int) -> Model:
        """For each thread the one of these that it is as."""
        mixed = self.model.copied()
        for thread, shown in found.items():
            like = [one.thread(thread) for one in possible if model_shows(one, thread)[:seen] == shown]
            if like:
                mixed.threads[thread] = like[0].copied()
        return mixed

    def _lose_power(self, chance: random.Random) -> None:
        self._store.heal()
        self._store.lose_power(chance)
        self.close()
        self._runs, self.model.runs = {}, {}
        self._readings = []
        self._open()

    def _check(self, thread: str, handles: Sequence[CoreSaver]) -> None:
        expected = model_shows(self.model, thread)
        for handle in handles:
            shown = shows(handle, thread)
            assert shown == expected, difference(shown, expected)
        check_entries(handles[0], thread)

    # ------------------------------------------------------------------ choosing

    def _place(self, chance: random.Random) -> tuple[str, str]:
        return chance.choice(THREADS[:3]), chance.choice(NAMESPACES)

    def _any(self, chance: random.Random) -> tuple[str, Kept] | None:
        found = [(name, one) for name, thread in self.model.threads.items() for one in thread.checkpoints]
        return chance.choice(found) if found else None

    def _new_id(self, chance: random.Random) -> str:
        self._number += 1
        match chance.randrange(12):
            case 0:
                return f"{chance.randrange(self._number):06d}-{self._number}"
            case 1:
                return chance.choice(("Ä/", "zz", "B")) + str(self._number)
        return f"{self._number:06d}"

    def _reading(self, chance: random.Random, thread: str, ns: str, id: str | None, run: int | None = None) -> Reading:
        """Read as a run does, and compare; what it carries to its puts."""
        of = chance.randrange(2) if run is None else self.model.runs[run].handle
        asked = config(thread, ns, id)
        if run is not None:
            asked["configurable"][RUN] = self._runs[run][1].name
        found = self._handles[of].get_tuple(asked)
        kept, read = self.model.get(thread, ns, id, run)
        assert (found is None) == (kept is None)
        if found is None or kept is None:
            return Reading(config(thread, ns), thread, ns, None, None)
        assert found.checkpoint["id"] == kept.id
        return Reading(found.config, thread, ns, kept.id, read)


def refused(put: Callable[[], object]) -> str:
    """Why a put is refused, in a word of the model's."""
    try:
        put()
    except BadRecordError:
        return "circle"
    except ConcurrentRunError as error:
        told = str(error)
        return "late" if "was deleted while" in told else "lost" if "has lost the thread" in told else "conflict"
    return ""
