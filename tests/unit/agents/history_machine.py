"""Histories made by chance: everything that a saver offers, on a store that fails, beside a model in plain dicts.

A history is a list of steps, each a name and a number of its own that decides the rest, so that any of them can be left
out and the others still mean something. After every step what the saver shows is what the model says, through whichever
handle, and what is stored keeps its invariants. A step that fails has happened as a whole or not, and can be repeated.

`python -m scripts.agents.histories` runs many of them.

Not here: what is right (`history_model`), stores (`history_stores`), how a step is done
(`history_both`).
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, TypedDict

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import START, StateGraph

from flowpoint.agents import shell, shell_fork
from flowpoint.agents.exchange import imported
from flowpoint.agents.migrations import Rename
from flowpoint.agents.saver import READ_TOKEN, RUN, CoreSaver
from flowpoint.agents.schema import Schema
from flowpoint.errors import UsageError
from tests.unit.agents import history_values
from tests.unit.agents.history_both import Both, Reading, refused
from tests.unit.agents.history_checks import NAMESPACES, THREADS, check_entries, check_memory, model_shows, shows
from tests.unit.agents.history_model import DAY, Put, Read, name_now, named_now
from tests.unit.agents.history_stores import STORES, Clock, Options
from tests.unit.agents.stores import config, export

STEPS: Final = {
    "put": 30, "repeat": 3, "replace": 5, "put_writes": 14, "read": 6, "listing": 5, "copy": 3, "delete": 2,
    "delete_for_runs": 2, "prune": 3, "expire": 4, "sweep": 3, "exchange": 2, "fork": 3, "begin": 4, "end": 3,
    "wait": 4, "reopen": 2, "deploy": 3, "crash": 2, "look_beside": 2,
}  # fmt: skip
KEYS: Final = {"old": b"o" * 16, "new": b"n" * 32}


class Step(NamedTuple):
    """Something that happens."""

    name: str
    seed: int


def history(seed: int, length: int) -> list[Step]:
    """The steps of a seed."""
    chance = random.Random(seed)
    names = chance.choices(list(STEPS), list(STEPS.values()), k=length)
    return [Step(name, chance.getrandbits(32)) for name in names]


def options_of(seed: int) -> Options:
    """How the savers of a seed are opened."""
    return Options(
        on_conflict="raise" if seed % 2 else "branch",
        keys={"old": KEYS["old"]} if seed % 3 == 0 else None,
        schema=schema(1) if seed % 4 < 2 else None,
    )


@cache
def schema(version: int) -> Schema:
    """The schema of the code: the second version has another name for a channel."""
    names = ("a" if version == 1 else "a2", "b", "c")
    builder = StateGraph(TypedDict("State", dict.fromkeys(names, Any)))  # type: ignore[misc]
    builder.add_node("n", lambda _state: {})
    builder.add_edge(START, "n")
    return Schema.of(builder, version=version, migrations={1: [Rename("a", "a2")]} if version > 1 else None)


class Machine(Both):
    """Lets steps happen."""

    def run(self, steps: Sequence[Step]) -> None:
        """Let all steps happen, and look at everything at the end."""
        for step in steps:
            self._clock.now += 1
            self.model.now = self._clock.now
            getattr(self, f"_{step.name}")(random.Random(step.seed))
        for thread in THREADS:
            self._check(thread, self._handles)
        self._sweep(random.Random(0))
        self.close()

    # ------------------------------------------------------------------ steps: writing

    def _put(self, chance: random.Random) -> None:
        thread, ns = self._place(chance)
        run = chance.choice(sorted(self.model.runs)) if self.model.runs and chance.random() < 0.6 else None
        kept = self.model.thread(thread).checkpoints
        match chance.randrange(10):
            case 0:
                reading = Reading(config(thread, ns), thread, ns, None, None)
            case 1:
                reading = Reading(config(thread, ns, "gone"), thread, ns, "gone", None)
            case 2 | 3 if self._readings:
                reading = chance.choice(self._readings)
            case 4 if kept:
                one = chance.choice(kept)
                reading = self._reading(chance, thread, one.ns, one.id, run)
            case 5 if kept:
                one = chance.choice(kept)
                reading = Reading(config(thread, one.ns, one.id), thread, one.ns, one.id, None)
            case 6 if kept:  # a sub-graph that begins anew, with the token of its graph
                one = chance.choice(kept)
                graph = self._reading(chance, thread, one.ns, one.id, run)
                at = config(thread, ns)
                at["configurable"][READ_TOKEN] = graph.config["configurable"][READ_TOKEN]
                reading = Reading(at, thread, ns, None, graph.read)
            case _:
                reading = self._reading(chance, thread, ns, None, run)
        self._put_from(chance, reading, self._new_id(chance), run)

    def _put_from(self, chance: random.Random, reading: Reading, id: str, run: int | None = None) -> None:
        thread, ns = reading.thread, reading.ns
        before = self.model.thread(thread).find(ns, reading.id)
        tables = ({}, {}) if before is None else (before.values, before.versions)
        old = [table if before is None else named_now(before, table, self.model.version) for table in tables]
        channels = [name_now(name, ns, 1, self.model.version) for name in history_values.CHANNELS]
        values, versions, changed = history_values.changed(chance, *old, channels)
        is_migrated = before is not None and before.version != self.model.version
        if not is_migrated and chance.random() < 0.4:  # what is as it was is left out
            values = {name: value for name, value in values.items() if name in changed}
        metadata: dict[str, Any] = {"source": "loop", "step": chance.randrange(3), "parents": {}, "n": self._number}
        if chance.random() < 0.5:
            metadata["run_id"] = chance.choice(("r1", "r2", "r3"))
        if self._options.schema is None and chance.random() < 0.1:
            metadata["counters_since_delta_snapshot"] = {chance.choice(history_values.CHANNELS): [1, 1]}
        put = Put(thread, ns, id, reading.id, values, versions, changed, metadata, reading.read, run)
        self._puts.append((put, reading.config))
        self._saved(chance, put, reading.config)

    def _saved(self, chance: random.Random, put: Put, at: Any) -> None:
        at = {"configurable": dict(at["configurable"])}
        if put.run is not None:
            at["configurable"][RUN] = self._runs[put.run][1].name
        if chance.random() < 0.4:
            at["configurable"]["__pregel_durability"] = "async"
        checkpoint: Any = {
            **empty_checkpoint(),
            "ts": "then",
            "id": put.id,
            "channel_values": dict(put.values),
            "channel_versions": dict(put.versions),
        }
        changed: Any = {name: put.versions[name] for name in put.changed}

        def saver(of: CoreSaver) -> str:
            return refused(lambda: of.put(at, checkpoint, dict(put.metadata), changed))  # type: ignore[arg-type]

        handle = None if put.run is None else self.model.runs[put.run].handle
        self._do(
            chance, lambda model, of: model.put(put, of), saver, put.thread, handle=handle, may_fail=put.run is None
        )
        self._readings = [
            *self._readings[-5:],
            Reading(config(put.thread, put.ns, put.id), put.thread, put.ns, put.id, None),
        ]

    def _repeat(self, chance: random.Random) -> None:
        """A put whose answer was lost is made again."""
        puts = [(put, at) for put, at in self._puts[-6:] if put.run is None]
        if puts:
            self._saved(chance, *chance.choice(puts))

    def _replace(self, chance: random.Random) -> None:
        """Another checkpoint under an id that is there, made from whatever."""
        found = self._any(chance)
        if found is None or found[1].version != self.model.version:
            return
        thread, one = found
        parents = [kept.id for kept in self.model.thread(thread).checkpoints if kept.ns == one.ns]
        parent = chance.choice(
            [one.parent, one.parent, None, one.id, self.model.thread(thread).heads[one.ns], *parents]
        )
        self._number += 1
        self._put_from(chance, Reading(config(thread, one.ns, parent), thread, one.ns, parent, None), one.id)

    def _put_writes(self, chance: random.Random) -> None:
        thread, ns = self._place(chance)
        ids = [one.id for one in self.model.thread(thread).checkpoints if one.ns == ns]
        ahead = f"{self._number + 1:06d}"
        id_ = chance.choice([self.model.thread(thread).heads.get(ns, ahead), ahead, chance.choice(ids or [ahead])])
        task, path = chance.choice((("t1", "~1"), ("t2", "~0"), ("T/3", "")))
        old = chance.choice([one.values.get("a") for one in self.model.thread(thread).checkpoints] or [None])
        a = name_now("a", ns, 1, self.model.version)
        channels = [a, "b", a, *chance.sample(["__error__", "__interrupt__", "__resume__", "__no_writes__"], 1)]
        writes = [
            (chance.choice(channels), history_values.value(chance, old)) for _ in range(chance.choice((0, 1, 1, 2, 3)))
        ]
        self._do(
            chance,
            lambda model, _of: model.put_writes(thread, ns, id_, writes, task, path),
            lambda saver: saver.put_writes(config(thread, ns, id_), writes, task, path),
            thread,
        )

    def _fork(self, chance: random.Random) -> None:
        """As the shell does it."""
        found = self._any(chance)
        if found is None or self._options.schema is not None:  # the shell needs no schema
            return
        thread, one = found
        settable = [name for name in sorted(one.versions) if not name.startswith("branch:")]
        values = {name: chance.randrange(9) for name in settable[: chance.randrange(3)]}
        of = chance.randrange(2)
        saver = self._handles[of]
        after = self.model.copied()
        version = max(one.versions.values(), default=0) + 1
        versions = {**one.versions, **dict.fromkeys(values, version)}
        metadata = {"source": "fork", "step": one.metadata["step"] + 1, "parents": {}}
        made: list[str] = []
        why = refused(
            lambda: made.append(shell_fork.fork(saver, shell.found(saver.core, thread, one.ns, one.id), values))
        )
        put = Put(
            thread, one.ns, "".join(made), one.id, values, versions, list(values), metadata,
            Read(True, one.ns, one.id),
        )  # fmt: skip
        assert after.put(put, of) == why
        self._done(after)
        self._check(thread, self._handles)

    # ------------------------------------------------------------------ steps: reading

    def _read(self, chance: random.Random) -> None:
        """A run begins, and may put much later."""
        thread, ns = self._place(chance)
        kept = self.model.thread(thread).checkpoints
        id_, run = None, None
        if kept and chance.random() < 0.4:
            one = chance.choice(kept)
            ns, id_ = one.ns, one.id
        if self.model.runs and chance.random() < 0.5:
            run = chance.choice(sorted(self.model.runs))
        self._readings = [*self._readings[-5:], self._reading(chance, thread, ns, id_, run)]

    def _listing(self, chance: random.Random) -> None:
        thread = chance.choice([None, *THREADS[:3]])
        ns = None if thread is None else chance.choice([None, *NAMESPACES])
        found = self._any(chance)
        before = None if found is None or chance.random() < 0.5 else found[1].id
        limit = chance.choice((None, None, 0, 1, 2, 5))
        filter: dict[str, Any] = chance.choice(({}, {"run_id": "r1"}, {"step": 1}, {"step": 1, "source": "loop"}))
        asked: Any = None if thread is None else {"configurable": {"thread_id": thread}}
        if ns is not None:
            asked["configurable"]["checkpoint_ns"] = ns
        listed = chance.choice(self._handles).list(
            asked, filter=filter, before=None if before is None else config(id=before), limit=limit
        )
        there = [
            (one.config["configurable"]["thread_id"], one.config["configurable"]["checkpoint_ns"], one.checkpoint["id"])
            for one in listed
        ]
        expected = [(name, one.ns, one.id) for name, one in self.model.listed(thread, ns, before, filter, limit)]
        assert there == expected

    def _look_beside(self, chance: random.Random) -> None:
        """By one who reads beside since long, and one who opens the store just now, to read, or as another process."""
        handle = self._store.open(self._options, read_only=chance.random() < 0.5)
        try:
            for thread in THREADS:
                self._check(thread, [handle, self._reader])
            for one in self._handles:
                check_memory(one, handle)
        finally:
            handle.close()

    # ------------------------------------------------------------------ steps: runs, time, lives

    def _begin(self, _chance: random.Random) -> None:
        if len(self.model.runs) < 3:
            self._number += 1
            of = self._number % 2
            block = self._handles[of].core.runs.begun()
            self._runs[self._number] = block, block.__enter__()
            self.model.begin(self._number, of)

    def _end(self, chance: random.Random) -> None:
        if self.model.runs:
            name = chance.choice(sorted(self.model.runs))
            self._runs.pop(name)[0].__exit__(None, None, None)
            self.model.end(name)

    def _wait(self, chance: random.Random) -> None:
        self._clock.now += chance.choice((DAY // 4, DAY // 2, DAY, 3 * DAY))
        self.model.now = self._clock.now

    def _reopen(self, chance: random.Random) -> None:
        """All handles are closed, and opened again, at times with a new key in front of the old one."""
        while self.model.runs:
            self._end(chance)
        self.close()
        if self._options.keys is not None and chance.random() < 0.5:
            self._options = replace(self._options, keys={"new": KEYS["new"], "old": KEYS["old"]})
            self._puts = []  # what is put again is sealed anew, and no more the same
        self._open()
        for thread in THREADS:
            self._check(thread, [self._handles[0]])

    def _deploy(self, chance: random.Random) -> None:
        """Code of the second version takes over."""
        if self._options.schema is None:
            return
        self._options = replace(self._options, schema=schema(2))
        # Nobody puts the checkpoints that tasks of the old code have written for ahead.
        self.model.sweep(0)
        self._handles[0].sweep(timedelta(0))
        self.model.version, self._puts = 2, []
        self._reopen(chance)

    def _crash(self, chance: random.Random) -> None:
        possible = self.model.copied()
        self._failed(chance, possible, True)

    # ------------------------------------------------------------------ steps: history

    def _copy(self, chance: random.Random) -> None:
        source, target = chance.sample(THREADS, 2)
        if chance.random() < 0.4:
            self._delete_thread(chance, target)

        def copy(saver: CoreSaver) -> str:
            try:
                saver.copy_thread(source, target)
            except UsageError:
                return "there"
            return ""

        self._do(chance, lambda model, _of: model.copy(source, target), copy, source, target, may_litter=True)

    def _exchange(self, chance: random.Random) -> None:
        """Out into a store of another kind, and from there back as another thread."""
        source, target = chance.sample(THREADS, 2)
        if self.model.thread(source).checkpoints and self.model.thread(target).heads and chance.random() < 0.7:
            self._delete_thread(chance, target)
        kind = "disk" if self._store.__class__ is not STORES["disk"] else "memory"
        with STORES[kind](self._store.path, self._clock).open(Options()) as other:
            imported(other.core, export(chance.choice(self._handles), source))
            assert shows(other, source)[:2] == model_shows(self.model, source, 0)[:2]
            lines = [json.dumps({**json.loads(line), "thread": target}) for line in export(other, source)]

        def take_in(saver: CoreSaver) -> str:
            try:
                imported(saver.core, lines)
            except UsageError:
                return "there"
            return ""

        expected_there = bool(lines)
        self._do(
            chance,
            lambda model, _of: model.copy(source, target, imported=True) if expected_there else "",
            take_in,
            source,
            target,
            may_litter=True,
        )

    def _delete(self, chance: random.Random) -> None:
        self._delete_thread(chance, chance.choice(THREADS))

    def _delete_thread(self, chance: random.Random, thread: str) -> None:
        self._do(
            chance,
            lambda model, _of: model.delete(thread),
            lambda saver: saver.delete_thread(thread),
            thread,
            may_litter=True,
        )

    def _delete_for_runs(self, chance: random.Random) -> None:
        runs = chance.sample(("r1", "r2", "r3", "nobody"), chance.choice((1, 1, 2)))
        self._do(
            chance,
            lambda model, _of: model.delete_for_runs(runs),
            lambda saver: saver.delete_for_runs(runs),
            *THREADS,
            may_litter=True,
            one_by_one=True,
        )

    def _prune(self, chance: random.Random) -> None:
        thread = chance.choice(THREADS)
        self._do(
            chance,
            lambda model, _of: model.prune(thread),
            lambda saver: saver.prune([thread]),
            thread,
            may_litter=True,
        )

    def _expire(self, chance: random.Random) -> None:
        thread = chance.choice(THREADS)
        keep_last = chance.choice((None, 1, 2, 5))
        ttl = chance.choice((DAY // 4, DAY, 2 * DAY)) if keep_last is None or chance.random() < 0.5 else None
        given = None if ttl is None else timedelta(milliseconds=ttl)
        self._do(
            chance,
            lambda model, _of: model.expire(thread, keep_last, ttl),
            lambda saver: saver.expire([thread], keep_last=keep_last, ttl=given),
            thread,
            may_litter=True,
        )

    def _sweep(self, chance: random.Random) -> None:
        age = chance.choice((0, 0, DAY))

        def sweep(saver: CoreSaver) -> None:
            saver.sweep(timedelta(milliseconds=age))

        self._do(chance, lambda model, _of: model.sweep(age), sweep, *THREADS, may_fail=False)
        for thread in THREADS:
            check_entries(self._handles[0], thread, is_swept=age == 0)


def run_history(kind: str, seed: int, steps: Sequence[Step], folder: Path) -> None:
    """Let a history happen on a new store.

    Raises:
        AssertionError: saver and model differ.
    """
    clock = Clock()
    Machine(STORES[kind](folder, clock), clock, options_of(seed)).run(steps)
