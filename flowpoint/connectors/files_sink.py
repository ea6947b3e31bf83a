"""FileSink: files of lines as an exactly-once output.

Life of a part: written hidden (`part_writer`), made durable by `prepare`, its committable kept in the checkpoint;
once the checkpoint counts, `commit` renames it to `part-...`, which is when readers see it. A part whose checkpoint
never counts stays hidden and is removed by the next attempt's `clean` (or by `abort`, which nobody calls today).

After going back to an older checkpoint `begin` deletes the visible parts that are newer than it: their records are
read and written again. They are deleted, not kept aside, because the same output comes again and nothing else would
ever remove them. A part that a reader has taken away meanwhile cannot be taken back; that is logged.

Invariants: only this lineage's and this sink's files are ever renamed or deleted. `begin`, `commit`, `abort` and
`clean` may be interrupted anywhere and repeated.
Not here: names (`part_names`), the owner's marker (`folder_owner`), the marks of what was published (`published`).
"""

from __future__ import annotations

import os
from typing import Any

from flowpoint.connectors.durable_files import copy_output, naming_errors
from flowpoint.connectors.folder_owner import check_owner, claim_folder, noticing_loss
from flowpoint.connectors.line_formats import line_format
from flowpoint.connectors.part_names import TAKEN_IN, Part, final_name, hidden_name, parse_final, parse_hidden
from flowpoint.connectors.part_writer import PartWriter
from flowpoint.connectors.published import announce, lower_marks, published_up_to
from flowpoint.errors import LostOutputError, SnapshotError
from flowpoint.runtime.contracts import ConnectorContext


class FileSink:
    """Writes records into a folder, one file per subtask and checkpoint. Exactly-once: read only files named `part-*`.

    Files whose name begins with a dot are unfinished or FlowPoint's own. A relative folder is relative to the working
    directory of `run`. Several sinks of one job may share a folder; sinks of different jobs may not: a folder with
    files of another job, or of an earlier job that started over, is refused unless `--take-output` is given (then the
    files that are there stay, beside the new ones).

    `lines` takes str records without line breaks, or what else reading would take away; `jsonl` takes what JSON can
    give back: None, bool, int, finite float, str, lists and tuples (as arrays), dicts with str keys. Everything else
    fails the job with the value and a hint. The text is UTF-8.

    >>> FileSink("out", format="jsonl")
    FileSink('out', format='jsonl')
    """

    guarantee = "exactly-once"

    def __init__(self, folder: str | os.PathLike[str], format: str = "lines") -> None:
        """Raises PlanError for a format that there is not (yet)."""
        self._given = os.fspath(folder)
        self._folder = os.path.abspath(os.path.expanduser(self._given))
        self._format = line_format(format, "FileSink")

    def __repr__(self) -> str:
        return f"FileSink({self._given!r}, format={self._format.name!r})"

    @property
    def can_take_back(self) -> bool:
        """Parts carry their checkpoint's number, so that newer ones can be deleted."""
        return True

    async def begin(self, ctx: ConnectorContext) -> None:
        """Claims the folder, then takes back what this sink published after `ctx.restored_checkpoint`."""
        with naming_errors(f"claim the output folder {self._folder}"):
            await claim_folder(self._folder, ctx)
            await self._take_back(ctx)

    async def open(self, ctx: ConnectorContext) -> PartWriter:
        """A writer for `ctx.subtask`."""
        return PartWriter(self._folder, self._format, ctx)

    async def commit(self, committable: Any, ctx: ConnectorContext) -> None:
        """Makes the part visible. Raises LostOutputError when it is gone although it was never published."""
        folder, final = committable["folder"], committable["final"]
        hidden_path, final_path = os.path.join(folder, committable["hidden"]), os.path.join(folder, final)
        with naming_errors(f"publish {final_path}"), noticing_loss(folder, ctx):
            await check_owner(folder, ctx)
            if await ctx.disk.stat(hidden_path) is not None:
                await announce(folder, committable["subtask"], committable["checkpoint"], ctx)
                await ctx.disk.rename(hidden_path, final_path)
            elif await ctx.disk.stat(final_path) is None:
                await self._explain_absence(committable, ctx)
                return
            # Also when the rename happened before: the crash may have come between it and this.
            await ctx.disk.sync_dir(folder)

    async def abort(self, committable: Any, ctx: ConnectorContext) -> None:
        """Removes the hidden part."""
        path = os.path.join(committable["folder"], committable["hidden"])
        with naming_errors(f"remove {path}"):
            await ctx.disk.remove(path)

    async def clean(self, ctx: ConnectorContext) -> None:
        """Removes the hidden parts of older attempts of this lineage: none of them can be committed any more."""

        def is_left_over(part: Part) -> bool:
            return part.belongs_to(ctx.uid, ctx.lineage) and part.attempt < ctx.attempt

        with naming_errors(f"clean the output folder {self._folder}"):
            for name in await ctx.disk.list(self._folder):
                part = parse_hidden(name)
                if part is not None and is_left_over(part):
                    await ctx.disk.remove(os.path.join(self._folder, name))

    async def files_of(self, committable: Any, ctx: ConnectorContext) -> list[str]:
        """The part, under the name that it has at the moment."""
        folder = committable["folder"]
        paths = [os.path.join(folder, committable[name]) for name in ("hidden", "final")]
        with naming_errors(f"look at {paths[0]}"):
            return [path for path in paths if await ctx.disk.stat(path) is not None][:1]

    async def take_in(self, committable: Any, files: list[str], ctx: ConnectorContext) -> dict[str, Any]:
        """A hidden copy of the part, of this lineage and attempt."""
        if not files:
            raise SnapshotError(
                f"sink {ctx.uid!r} cannot take over {committable['final']}: the savepoint does not hold the part;"
                " use another savepoint"
            )
        checkpoint, suffix = committable["checkpoint"], os.path.splitext(committable["final"])[1]
        identity = Part(ctx.uid, committable["subtask"], ctx.attempt, ctx.lineage, checkpoint)
        hidden = hidden_name(identity, TAKEN_IN + checkpoint, suffix)
        with naming_errors(f"copy {files[0]} to {os.path.join(self._folder, hidden)}"):
            await copy_output(ctx.disk, files[0], os.path.join(self._folder, hidden))
        return {**committable, "folder": self._folder, "hidden": hidden, "final": final_name(identity, suffix)}

    async def _take_back(self, ctx: ConnectorContext) -> None:
        newer: dict[str, Part] = {}
        for name in await ctx.disk.list(self._folder):
            part = parse_final(name)
            if part is not None and part.belongs_to(ctx.uid, ctx.lineage) and part.checkpoint > ctx.restored_checkpoint:
                newer[name] = part
        there = {(part.subtask, part.checkpoint) for part in newer.values()}
        # Marks first: were they lowered last, a repeat after a crash would miss the parts it had removed itself.
        for published in (await lower_marks(self._folder, ctx)).items():
            if published not in there:
                ctx.log(
                    f"sink {ctx.uid!r}: the part that subtask {published[0]} published at checkpoint {published[1]} is"
                    f" not in {self._folder} any more and cannot be taken back; its records come again"
                )
        for name in newer:
            await ctx.disk.remove(os.path.join(self._folder, name))
            ctx.log(f"sink {ctx.uid!r}: took back {name}, which is newer than checkpoint {ctx.restored_checkpoint}")
        if newer:
            await ctx.disk.sync_dir(self._folder)

    async def _explain_absence(self, committable: dict[str, Any], ctx: ConnectorContext) -> None:
        folder, final, checkpoint = committable["folder"], committable["final"], committable["checkpoint"]
        if await published_up_to(folder, committable["subtask"], ctx) < checkpoint:
            raise LostOutputError(
                f"sink {ctx.uid!r} cannot publish {final} of checkpoint {checkpoint} ({committable['records']} records):"
                f" it is not in {folder}, nor is its hidden file {committable['hidden']}, and the folder does not say that"
                f" it was ever published; if the folder was moved, remove the new {folder} that stands in its place and move"
                " the old one back; if it was deleted, start over with --fresh"
            )
        ctx.log(f"sink {ctx.uid!r}: {final} was published before and is gone from {folder}; a reader has taken it")
