"""A job file, understood: loaded, configured and compiled, with what its workers need to do the same.

Everything that is wrong with the file, its parameters or the settings is found here, before anything is started.

Not here: running it (`run`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from flowpoint.launch.config import load_settings
from flowpoint.launch.control import Data, RunOptions
from flowpoint.launch.jobfile import build_job, load_source
from flowpoint.launch.lost_attributes import lost_attributes
from flowpoint.model.settings import Settings
from flowpoint.plan.compile import CompiledJob, compile_graph
from flowpoint.plan.graph import StreamGraph


@dataclass(frozen=True, slots=True)
class Assembled:
    """A job as it is asked for: nothing has been started yet."""

    options: RunOptions
    graph: StreamGraph
    compiled: CompiledJob
    settings: Settings
    source: Data
    warnings: tuple[str, ...]
    """About the job file and how it was called; the plan has its own."""

    @property
    def name(self) -> str:
        """The job's name."""
        return self.compiled.plan.job

    def at(self, parallelism: int) -> Assembled:
        """The same job with another parallelism. The number of workers follows, unless the person chose another one."""
        before = self.settings
        workers = parallelism if before.workers == before.parallelism else before.workers
        settings = replace(before, parallelism=parallelism, workers=workers)
        compiled = compile_graph(self.graph, parallelism, settings.max_parallelism, name=self.options.name)
        source = self.source | {"parallelism": parallelism}
        return replace(self, compiled=compiled, settings=settings, source=source)


def assemble(options: RunOptions) -> Assembled:
    """Load and compile what a person asks for.

    Raises:
        UsageError, ConfigError, PlanError: the job cannot be started as asked.
    """
    source = load_source(options.job_file)
    warnings: list[str] = []
    job = build_job(source, options.params, warnings.append)
    settings = load_settings(
        options.config_file,
        job.config,
        os.environ,
        options.settings,
        parallelism=options.parallelism,
        workers=options.workers,
    )
    graph = job.graph()
    compiled = compile_graph(graph, settings.parallelism, settings.max_parallelism, name=options.name)
    warnings.extend(lost_attributes(compiled))
    shipped: Data = {
        **source.to_data(),
        "params": dict(options.params),
        "parallelism": settings.parallelism,
        "skip_lost_input": options.skip_lost_input,
        "allow_non_restored": options.allow_non_restored,
    }
    return Assembled(options, graph, compiled, settings, shipped, tuple(warnings))
