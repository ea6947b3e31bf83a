"""Which new subtask takes over which part of a snapshot, at the same or another parallelism.

    keyed state    every file whose key-group range overlaps the new subtask's range; the reader filters by group.
                   Files of different old subtasks stay apart: order ("later entries win") holds within one of them
    splits         dealt out i, i + p, ... in the order in which they were enumerated, with position and end
    channel state  records under way: keyed ones to the owners of their key groups (the reader filters by group, as
                   above), also for operators without state of their own; others to exactly one subtask each
    committables   all those of one old subtask to one new subtask: old subtask j's to j % parallelism, oldest first

Whatever cannot be mapped is refused, by uid, with what to do about it: state is never dropped in silence.

Invariants: every split and every committable of the snapshot is assigned exactly once; what one old subtask prepared is
committed by one new subtask, in order (sinks count on it: they note per subtask how far it has published); every key
group of a keyed operator is read by exactly one new subtask, from all old files that may hold it.

Not here: reading files; schema changes of a state (`state`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from flowpoint.errors import IncompatibleStateError, SnapshotError
from flowpoint.model.key_groups import group_range
from flowpoint.model.manifest import NO_GROUPS, OperatorState, StateFile, SubtaskState
from flowpoint.model.plan import CO_KINDS, KEYED_KINDS, JobPlan, OperatorKind, OperatorSpec
from flowpoint.model.texts import with_article

RestoreMap = dict[str, list[list[dict[str, Any]]]]
"""uid -> per new subtask: the `SubtaskState` data it takes over. A uid that is not in it starts empty."""


def assign_state(
    operators: Mapping[str, OperatorState],
    plan: JobPlan,
    *,
    max_parallelism: int,
    allow_non_restored: bool = False,
    drained: bool = False,
) -> RestoreMap:
    """Deal a snapshot out to the subtasks of a plan.

    Args:
        operators: what the manifest holds, by uid.
        plan: the job as it is now.
        max_parallelism: of the job when the snapshot was taken (`manifest.plan["max_parallelism"]`).
        allow_non_restored: the shell's `--allow-non-restored`.
        drained: time ended before the snapshot (`stop --drain`); the job that goes on from it begins event time anew.

    Raises:
        IncompatibleStateError: when state cannot be mapped onto the job.
        SnapshotError: when the snapshot contradicts itself.
    """
    if max_parallelism != plan.max_parallelism:
        raise IncompatibleStateError(
            f"cannot restore: the snapshot was taken with max_parallelism={max_parallelism}, the job has "
            f"{plan.max_parallelism}, so keys would be in other key groups; set max_parallelism={max_parallelism}"
        )
    known = {spec.uid for spec in plan.operators}
    strange = sorted(uid for uid, operator in operators.items() if uid not in known and _has_state(operator))
    if strange and not allow_non_restored:
        raise IncompatibleStateError(_strange_message(strange, plan, operators))
    return {
        uid: _assign(plan, uid, operator, keep_watermark=not drained)
        for uid, operator in operators.items()
        if uid in known
    }


def initial_splits(splits: Sequence[tuple[str, Mapping[str, Any]]], parallelism: int) -> list[list[dict[str, Any]]]:
    """What the subtasks of a source that starts empty read, as a value of the restore map.

    `splits` are (id, data) as the source enumerated them.

    Raises:
        IncompatibleStateError: when two splits have one id, which makes their positions ambiguous.
    """
    twice = sorted(id for id, count in Counter(id for id, _ in splits).items() if count > 1)
    if twice:
        raise IncompatibleStateError(f"a source enumerated two splits of one id: {twice}; every split needs its own id")
    all_data = [{"id": id, "data": dict(data), "position": None, "ended": False} for id, data in splits]
    return [[SubtaskState(splits=tuple(all_data[i::parallelism])).to_data()] for i in range(parallelism)]


def _assign(plan: JobPlan, uid: str, operator: OperatorState, *, keep_watermark: bool) -> list[list[dict[str, Any]]]:
    spec = plan.operator(uid)
    if len(operator.subtasks) != operator.parallelism:
        raise SnapshotError(
            f"the snapshot of operator {uid!r} has {len(operator.subtasks)} subtasks, it says {operator.parallelism}"
        )
    _refuse_other_kind(spec, operator)
    splits = _deal_splits(uid, operator, spec.parallelism)
    committables = _deal_committables(operator, spec.parallelism)
    channels = _deal_channels(operator, spec.parallelism, plan.max_parallelism)
    parts: list[list[dict[str, Any]]] = []
    for index in range(spec.parallelism):
        states = _overlapping(operator, group_range(index, spec.parallelism, plan.max_parallelism))
        if splits[index] or spec.kind is OperatorKind.SOURCE:
            # Also when it is empty: the splits of a restored source are known, none are enumerated again (rule 19).
            states.append(SubtaskState(splits=tuple(splits[index])))
        if channels[index]:
            states.append(SubtaskState(channels=tuple(channels[index])))
        if committables[index]:
            states.append(SubtaskState(committables=tuple(committables[index])))
        old = operator.subtasks[index % operator.parallelism]
        if old.broadcast:
            states.append(SubtaskState(broadcast=old.broadcast, states=old.states))
        watermark = _watermark(operator, index, spec.parallelism) if keep_watermark else None
        if watermark is not None:
            states.append(SubtaskState(watermark=watermark))
        parts.append([state.to_data() for state in states])
    return parts


def _overlapping(operator: OperatorState, groups: tuple[int, int]) -> list[SubtaskState]:
    """Per old subtask, the files that may hold keys of these groups (first and last), oldest first.

    Only what the old subtask owned counts: a file from before an earlier rescale may hold stale entries of other groups.
    """
    first, last = groups
    found: list[SubtaskState] = []
    for subtask in operator.subtasks:
        if subtask.groups[0] > last or first > subtask.groups[1]:
            continue
        files = tuple(file for file in subtask.files if file.groups[0] <= last and first <= file.groups[1])
        if files:
            found.append(SubtaskState(files=files, groups=subtask.groups, states=subtask.states))
    return found


def _deal_splits(uid: str, operator: OperatorState, parallelism: int) -> list[list[dict[str, Any]]]:
    # Old subtask j had splits j, j + p, ...: reading across the subtasks gives back the order of the enumeration.
    longest = max((len(subtask.splits) for subtask in operator.subtasks), default=0)
    ordered = [
        subtask.splits[row] for row in range(longest) for subtask in operator.subtasks if row < len(subtask.splits)
    ]
    twice = sorted(id for id, count in Counter(str(split["id"]) for split in ordered).items() if count > 1)
    if twice:
        raise SnapshotError(f"the snapshot of source {uid!r} holds splits twice: {twice}")
    return [ordered[index::parallelism] for index in range(parallelism)]


def _deal_committables(operator: OperatorState, parallelism: int) -> list[list[dict[str, Any]]]:
    dealt: list[list[dict[str, Any]]] = [[] for _ in range(parallelism)]
    for index, subtask in enumerate(operator.subtasks):
        dealt[index % parallelism] += subtask.committables
    for mine in dealt:
        # A stable sort: what one old subtask prepared stays in its order.
        mine.sort(key=lambda committable: int(committable["checkpoint"]))
    return dealt


def _deal_channels(operator: OperatorState, parallelism: int, max_parallelism: int) -> list[list[StateFile]]:
    """Records under way: keyed ones to whoever has their key groups now, the others to one subtask or another."""
    dealt: list[list[StateFile]] = [[] for _ in range(parallelism)]
    for number, subtask in enumerate(operator.subtasks):
        for file in subtask.channels:
            if file.groups == NO_GROUPS:
                dealt[number % parallelism].append(file)
                continue
            for index in range(parallelism):
                first, last = group_range(index, parallelism, max_parallelism)
                if file.groups[0] <= last and first <= file.groups[1]:
                    dealt[index].append(file)
    return dealt


def _watermark(operator: OperatorState, index: int, parallelism: int) -> int | None:
    """Where event time starts in a new subtask: where it stood, and at the minimum of all after a rescale (rule 15)."""
    if parallelism == operator.parallelism:
        return operator.subtasks[index].watermark
    seen = [subtask.watermark for subtask in operator.subtasks]
    return None if None in seen else min(watermark for watermark in seen if watermark is not None)


def _has_state(operator: OperatorState) -> bool:
    return any(subtask.every_file() or subtask.splits or subtask.committables for subtask in operator.subtasks)


def _refuse_other_kind(spec: OperatorSpec, operator: OperatorState) -> None:
    """Refuse state that the operator of this uid has no use for: another operator has taken over the uid."""
    found = {
        "keyed state": (any(s.files for s in operator.subtasks), spec.kind in KEYED_KINDS),
        "source positions": (any(s.splits for s in operator.subtasks), spec.kind is OperatorKind.SOURCE),
        "broadcast state": (any(s.broadcast for s in operator.subtasks), spec.kind in CO_KINDS),
        "uncommitted output": (any(s.committables for s in operator.subtasks), spec.kind is OperatorKind.SINK),
    }
    for what, (is_there, is_wanted) in found.items():
        if is_there and not is_wanted:
            raise IncompatibleStateError(
                f"cannot restore operator {spec.uid!r}: the snapshot holds {what} for this uid, but in the job it is "
                f"{with_article(spec.kind)}; give the operators the uids that they had"
            )


def _strange_message(strange: Sequence[str], plan: JobPlan, operators: Mapping[str, OperatorState]) -> str:
    generated = sorted(spec.uid for spec in plan.operators if spec.uid_is_generated and spec.uid not in operators)
    hint = f" (operators without a uid of their own: {', '.join(generated)})" if generated else ""
    return (
        f"cannot restore: the snapshot holds state of {', '.join(map(repr, strange))}, which the job does not have; "
        f"give the operator its uid back{hint}, or pass --allow-non-restored to leave that state behind"
    )
