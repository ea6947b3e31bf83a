"""How far each subtask has published its parts: a hidden file per subtask, written before the rename it announces.

Commit is a rename, and a reader may take a visible part away at once. When a commit is then repeated after a crash,
"neither the hidden nor the visible file is there" has two explanations: the rename happened and a reader took the
part, or the hidden part was lost. The mark tells them apart (rule 7): parts are committed in the order of their
checkpoints, so one number per subtask suffices. `checkpoint: 17` says: every part up to 17 was renamed or is just
about to be, and its hidden file was there when this was written.

Invariants: the mark is durable before the rename. While parts are published a mark only grows: one committer has all
parts of a subtask, also after a rescale (`protocol.assignment`), and announces them in order. After going back to
checkpoint R no mark is above R (`lower_marks`), else the numbers that come again would be taken for published.
"""

from __future__ import annotations

import os
import re
from typing import Final

from flowpoint.connectors.durable_files import TEMPORARY, read_json, replace_file
from flowpoint.connectors.part_names import slug
from flowpoint.runtime.contracts import ConnectorContext

_MARK: Final = re.compile(r"\.committed-(\w+)-(\d{3,})-(\w+)")
_UNFINISHED: Final = re.compile(re.escape(TEMPORARY) + r"(\.committed-\w+-\d{3,}-\w+)-a(\d+)-\d+")

_ADVICE: Final = (
    "bring it back from a backup, or remove it and run the job again: a part that a reader has taken away then counts as"
    " lost where its commit has to be repeated"
)


async def announce(folder: str, subtask: int, checkpoint: int, ctx: ConnectorContext) -> None:
    """Makes it durable that the part of `checkpoint` is about to be published."""
    if checkpoint > await published_up_to(folder, subtask, ctx):
        await _write(folder, _mark_name(ctx, subtask), checkpoint, ctx)


async def published_up_to(folder: str, subtask: int, ctx: ConnectorContext) -> int:
    """The newest checkpoint whose part was published, 0 when there is none."""
    return await _read(folder, _mark_name(ctx, subtask), ctx)


async def lower_marks(folder: str, ctx: ConnectorContext) -> dict[int, int]:
    """Takes back all marks above `ctx.restored_checkpoint`; gives what they were, by subtask.

    What an attempt that died left of writing a mark is removed.
    """
    lowered: dict[int, int] = {}
    for name in await ctx.disk.list(folder):
        unfinished = _UNFINISHED.fullmatch(name)
        if unfinished is not None and int(unfinished[2]) < ctx.attempt and _mark_of(unfinished[1], ctx) is not None:
            await ctx.disk.remove(os.path.join(folder, name))
        match = _mark_of(name, ctx)
        if match is None:
            continue
        checkpoint = await _read(folder, name, ctx)
        if checkpoint > ctx.restored_checkpoint:
            await _write(folder, name, ctx.restored_checkpoint, ctx)
            lowered[int(match[2])] = checkpoint
    return lowered


def _mark_of(name: str, ctx: ConnectorContext) -> re.Match[str] | None:
    """What the name of a mark of this sink and lineage says; None for every other name."""
    match = _MARK.fullmatch(name)
    return match if match is not None and (match[1], match[3]) == (slug(ctx.uid), slug(ctx.lineage)) else None


def _mark_name(ctx: ConnectorContext, subtask: int) -> str:
    return f".committed-{slug(ctx.uid)}-{subtask:03d}-{slug(ctx.lineage)}"


async def _read(folder: str, name: str, ctx: ConnectorContext) -> int:
    mark = await read_json(ctx.disk, os.path.join(folder, name), {"checkpoint": int}, _ADVICE)
    return 0 if mark is None else int(mark["checkpoint"])


async def _write(folder: str, name: str, checkpoint: int, ctx: ConnectorContext) -> None:
    content = {"format": 1, "checkpoint": checkpoint}
    await replace_file(ctx.disk, os.path.join(folder, name), content, f"a{ctx.attempt}-{ctx.subtask}")
