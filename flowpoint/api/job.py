"""A job: the object a job file is about. It collects the graph, and hands it to whoever runs it.

Not here: running. `run` calls `launch`, which puts processes together; making a Job starts nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from flowpoint.api.calls import call_place
from flowpoint.api.stream import Stream
from flowpoint.errors import UsageError
from flowpoint.model.plan import OperatorKind
from flowpoint.plan.graph import Link, StreamGraph

if TYPE_CHECKING:
    from flowpoint.runtime.contracts import Source


class Job:
    """A stream job under construction. Its name identifies its snapshots.

    Args:
        name: Letters, digits, `_ - + .`; part of the paths of snapshots.
        config: Settings by key, nested or dotted: `{"checkpoint": {"interval": "1s"}}` is
            `{"checkpoint.interval": "1s"}`.
        types: Classes of records that no annotation of a user function mentions (dataclasses, enums, ...).

    Example:
        >>> from flowpoint.connectors import FileSink, FileSource
        >>> job = Job("wordcount", config={"parallelism": 2})
        >>> lines = job.source(FileSource("books/*.txt"), uid="lines")
        >>> counts = lines.flat_map(str.split).key_by(lambda word: word).count(uid="counts")
        >>> counts.sink(FileSink("out", format="jsonl"), uid="out")
    """

    def __init__(self, name: str, config: Mapping[str, Any] | None = None, *, types: Iterable[type] = ()) -> None:
        self.name = name
        self.config: dict[str, Any] = dict(config or {})
        self._graph = StreamGraph(name, tuple(types))

    def __repr__(self) -> str:
        return f"Job({self.name!r}, {len(self._graph.operators)} operators)"

    def source(
        self, source: Source, *, uid: str | None = None, name: str | None = None, parallelism: int | None = None
    ) -> Stream[Any]:
        """Add an input and return the stream of its records."""
        index = self._graph.add(
            OperatorKind.SOURCE, source, place=call_place(), uid=uid, name=name, parallelism=parallelism
        )
        return Stream(self._graph, (Link(index),))

    def graph(self) -> StreamGraph:
        """What has been built so far."""
        return self._graph

    def run(
        self,
        *,
        fresh: bool = False,
        take_output: bool = False,
        allow_non_restored: bool = False,
        accept_duplicates: bool = False,
        skip_lost_input: bool = False,
        resume_drained: bool = False,
    ) -> None:
        """Run the job here and return when it has ended, for notebooks and tests. The shell is `flowpoint run`.

        Its checkpoints live in a temporary folder and end with the call, so each call reads the input from the start. A
        `FileSink` refuses the folder that an earlier call has written to: give it another folder, delete that one, or
        pass `take_output=True` to write beside what is there. A job with `checkpoint.storage` in its config keeps its
        checkpoints there: the next call goes on in the same output, and a job that has finished is done.

        Warnings are printed on stderr. Ctrl-C ends the job after a last checkpoint, a second one without; then
        KeyboardInterrupt is raised.

        Args:
            fresh: Start over, whatever `checkpoint.storage` holds.
            take_output: Write into a folder that has output of another job, or of an earlier start; its files stay.
            allow_non_restored: Drop state of operators that the job no longer has.
            accept_duplicates: If the newest checkpoint is damaged, use an older one, and write again what came after it.
            skip_lost_input: Go on without input files that are gone since the checkpoint.
            resume_drained: Go on from a snapshot of `stop --drain`; event time begins anew.

        Example:
            if __name__ == "__main__":
                job.run()

        Raises:
            UsageError: It was called while the job file was being loaded, which every worker does.
            FlowPointError: The job is wrong, or it failed.
        """
        from flowpoint.launch.jobfile import is_loading

        # Every worker executes the job file: a run in there would start workers that start workers.
        if is_loading():
            raise UsageError(
                f"job.run() at {call_place()} was called while the job file is being loaded:"
                ' put it under `if __name__ == "__main__":`'
            )
        # Found by name at the last moment: describing a job must not load what runs it.
        import_module("flowpoint.launch").run_job(
            self,
            fresh=fresh,
            take_output=take_output,
            allow_non_restored=allow_non_restored,
            accept_duplicates=accept_duplicates,
            skip_lost_input=skip_lost_input,
            resume_drained=resume_drained,
        )
