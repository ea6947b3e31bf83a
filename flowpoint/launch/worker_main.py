"""The main of a worker process: `python -m flowpoint.launch.worker_main <json>`.

The argument is one JSON object (see `launch.worker_arguments`). The job's code arrives with each `Deploy`, as the
very bytes that the coordinator read (rule 20), is executed here, compiled, and must give the same plan fingerprint.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from flowpoint.errors import PlanError
from flowpoint.model import messages
from flowpoint.model.plan import JobPlan
from flowpoint.plan.compile import compile_graph
from flowpoint.plan.graph import StreamGraph
from flowpoint.runtime.contracts import OperatorDef
from flowpoint.runtime.worker import Load, worker_main

BuildGraph = Callable[[Mapping[str, Any]], StreamGraph]


def load_with(build_graph: BuildGraph) -> Load:
    """How a worker gets its functions from a `Deploy`: build the graph, compile it as the coordinator did, compare."""

    def load(deploy: messages.Deploy) -> Mapping[str, OperatorDef]:
        plan = JobPlan.from_data(deploy.plan)
        graph = build_graph(deploy.source)
        compiled = compile_graph(graph, deploy.source["parallelism"], plan.max_parallelism, name=deploy.job)
        if compiled.plan.fingerprint != plan.fingerprint:
            raise PlanError(
                f"the job file of {deploy.job!r} builds another graph in a worker than in the coordinator "
                f"(fingerprints {compiled.plan.fingerprint[:12]} and {plan.fingerprint[:12]}); "
                "make it independent of time, random numbers, environment and process"
            )
        return compiled.operators

    return load


def graph_from_source(source: Mapping[str, Any]) -> StreamGraph:
    """Execute the job file's bytes and take its graph."""
    from flowpoint.launch.jobfile import JobSource, build_job

    job = build_job(JobSource.from_data(source), source["params"])
    graph: StreamGraph = job.graph()
    return graph


def settled(load: Load) -> Load:
    """The same, and the garbage collector passes over what is there by then: modules and functions, no records.

    Each of its full passes would look at all of that again: 16 ms in which no record flows.
    """

    def load_and_settle(deploy: messages.Deploy) -> Mapping[str, OperatorDef]:
        functions = load(deploy)
        # What is garbage now, of an attempt that is over, would stay for ever.
        gc.collect()
        gc.freeze()
        return functions

    return load_and_settle


def main() -> None:
    """Run until the coordinator is gone."""
    from flowpoint.host.processes import allow_open_files, die_with_parent

    arguments = json.loads(sys.argv[1])
    die_with_parent(arguments["parent"])
    allow_open_files()
    from flowpoint.host import main_loop
    from flowpoint.host.log_files import start_following
    from flowpoint.host.log_streams import make_lossy
    from flowpoint.host.system import SystemHost
    from flowpoint.launch.job_log import line_of

    def line(text: str) -> str:
        return line_of("worker", f"{arguments['index']}: {text}", time.time_ns() // 1_000_000)

    # Also with PYTHONUNBUFFERED, which would send each argument of a `print` by itself.
    make_lossy(line)

    # As often as it beats: one that does not is taken for dead, and what it prints need not be kept.
    start_following(Path(arguments["log"]), arguments["heartbeat_interval"])

    def log(text: str) -> None:
        # A function may have closed the stream.
        with suppress(OSError, ValueError):
            sys.stdout.write(line(text))

    async def run() -> None:
        host = SystemHost(f"worker-{arguments['index']}", arguments["run_dir"])
        await worker_main(
            host,
            arguments["address"],
            arguments["index"],
            arguments["incarnation"],
            arguments["heartbeat_interval"],
            settled(load_with(graph_from_source)),
            log,
        )
        await host.close()

    main_loop.run(run())
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    # A user's blocked thread must not keep a worker that has done its duty alive.
    os._exit(0)


if __name__ == "__main__":
    main()
