"""Whose output folder it is: a hidden marker with the lineage, created only if absent (rule 2).

A folder is free when it has no marker and nothing else in it that counts: files that begin with a dot do not (editors
and file managers leave them), hidden parts do. A folder with the marker of an earlier lineage of the same job is free
too when nothing that counts is left in it. The marker of another job keeps its folder also when that is empty: that job
may run, and not have written yet. Everything else is refused unless `--take-output` says so; then the marker is
replaced, and the files that are there stay, beside the new ones. One case needs no flag: the owner was stopped with a
savepoint, and this lineage starts from it (`ctx.inherits`): it goes on in the same folder, and the stopped one cannot.

Invariant: of two lineages that claim one folder at the same moment one is refused, here or at its next commit
(`check_owner`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from flowpoint.connectors.durable_files import create_once, read_json, replace_file
from flowpoint.connectors.part_names import parse_hidden
from flowpoint.errors import ForeignOutputError, LostOutputError
from flowpoint.model.markers import OWNER_FILE
from flowpoint.runtime.contracts import ConnectorContext

_UNUSABLE: Final = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR)
"""What is wrong with the folder itself. Trying again would meet it again."""

_ADVICE: Final = "bring it back from a backup, or remove it and run the job once with --take-output"
_WAYS_BACK: Final = "bring the folder back and run the job again, or start over with --fresh"


async def claim_folder(folder: str, ctx: ConnectorContext) -> None:
    """Makes the folder this lineage's own, or raises ForeignOutputError."""
    try:
        await _claim(folder, ctx)
    except OSError as error:
        if error.errno not in _UNUSABLE:
            raise
        raise ForeignOutputError(
            f"sink {ctx.uid!r} cannot write to {folder}: {error.strerror}; name a folder that you can write to"
        ) from error


async def _claim(folder: str, ctx: ConnectorContext) -> None:
    disk = ctx.disk
    path = os.path.join(folder, OWNER_FILE)
    stat = await disk.stat(folder)
    if stat is not None and not stat.is_dir:
        raise ForeignOutputError(f"sink {ctx.uid!r} cannot write to {folder}: it is a file; name a folder")
    # For whoever may read what this user writes; FlowPoint's own files in it are private.
    await disk.make_dirs(folder, private=False)
    owner = await _owner(folder, ctx)
    if owner is None:
        content = next((name for name in await disk.list(folder) if _counts(name)), None)
        if content is not None and not ctx.take_output:
            raise ForeignOutputError(
                f"sink {ctx.uid!r} cannot write to {folder}: it is not empty (it has {content!r}) and no FlowPoint job"
                " made it; use an empty folder, or pass --take-output to write beside what is there"
            )
        if await create_once(disk, path, _marker(ctx), ctx.lineage):
            # That a branch has a folder of its own is no surprise, and is told once for all sinks.
            if ctx.restored_checkpoint and not ctx.is_branch:
                ctx.log(
                    f"sink {ctx.uid!r}: the output goes on in {folder}, which is new to this job; what it wrote up to"
                    f" checkpoint {ctx.restored_checkpoint} is elsewhere (was the folder moved, the path changed, or the"
                    " job started from another directory?)"
                )
            return
        owner = await _owner(folder, ctx)
    if owner is None or owner.get("lineage") != ctx.lineage:
        await _take_over(folder, path, owner or {}, ctx)


async def check_owner(folder: str, ctx: ConnectorContext) -> None:
    """Look, before something is published, whether the folder is still what it was.

    Raises:
        ForeignOutputError: another lineage has taken it over since.
        LostOutputError: it was deleted, emptied or replaced, and what was published before may be gone with it.
    """
    owner = await _owner(folder, ctx)
    if owner is None:
        raise LostOutputError(
            f"sink {ctx.uid!r} cannot publish in {folder}: {OWNER_FILE} is gone from it, so the folder was deleted,"
            " emptied or replaced while the job ran, and what the job had published there may be gone with it;"
            f" {_WAYS_BACK}"
        )
    if owner.get("lineage") != ctx.lineage:
        raise ForeignOutputError(
            f"sink {ctx.uid!r} cannot publish in {folder}: {_described(owner)} has taken the folder over;"
            " give this job a folder of its own"
        )


@contextmanager
def noticing_loss(folder: str, ctx: ConnectorContext) -> Iterator[None]:
    """Around what writes in a folder that has been claimed: one that is not there any more is LostOutputError."""
    try:
        yield
    except FileNotFoundError as error:
        raise LostOutputError(
            f"sink {ctx.uid!r} cannot write to {folder}: the folder was deleted or moved while the job ran, and what the"
            f" job had published there is gone with it; {_WAYS_BACK}"
        ) from error


async def _owner(folder: str, ctx: ConnectorContext) -> dict[str, Any] | None:
    return await read_json(ctx.disk, os.path.join(folder, OWNER_FILE), {"lineage": str}, _ADVICE)


async def _take_over(folder: str, path: str, owner: dict[str, Any], ctx: ConnectorContext) -> None:
    content = next((name for name in await ctx.disk.list(folder) if _counts(name)), None)
    is_handed_on = bool(ctx.inherits) and owner.get("lineage") == ctx.inherits
    is_of_other_job = owner.get("job") not in (None, ctx.job)
    if not ctx.take_output and not is_handed_on:
        if content is not None:
            raise ForeignOutputError(
                f"sink {ctx.uid!r} cannot write to {folder}: it holds the output of {_described(owner)}, for instance"
                f" {content!r}; {_ways_out(is_of_other_job)}"
            )
        if is_of_other_job:
            raise ForeignOutputError(
                f"sink {ctx.uid!r} cannot write to {folder}: it belongs to {_described(owner)}, which may be running and"
                " has published nothing yet; use another folder, or pass --take-output to take it from that job, which"
                " then cannot publish in it any more"
            )
    if content is not None or is_of_other_job:
        how = "goes on in" if is_handed_on else "took over"
        twice = "" if is_handed_on or content is None else ", and records that both have read are in them twice"
        ctx.log(f"sink {ctx.uid!r}: {how} {folder} of {_described(owner)}; its files stay{twice}")
    await replace_file(ctx.disk, path, _marker(ctx), ctx.lineage)


def _ways_out(is_of_other_job: bool) -> str:
    if is_of_other_job:
        return "use another folder, or pass --take-output to write beside what is there"
    return (
        "that is an earlier start of this job, with which this run does not go on, as it starts over or does not have its"
        " checkpoints; use another folder, delete this one, or pass --take-output to write beside what is there (records"
        " that both starts read then come out twice)"
    )


def _counts(name: str) -> bool:
    return not name.startswith(".") or parse_hidden(name) is not None


def _marker(ctx: ConnectorContext) -> dict[str, Any]:
    return {"format": 1, "lineage": ctx.lineage, "job": ctx.job}


def _described(owner: dict[str, Any]) -> str:
    return f"job {owner.get('job')!r} (lineage {owner.get('lineage')})"
