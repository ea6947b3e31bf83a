"""W1: the running count of each word; every update goes to the sink."""

from flowpoint import Job
from flowpoint.connectors import FileSink, FileSource


def build(params: dict[str, str]) -> Job:
    job = Job("bench-w1")
    (
        job.source(FileSource(params["input"]), uid="lines")
        .flat_map(str.split, uid="words")
        .key_by(lambda word: word)
        .count(uid="counts")
        .sink(FileSink(params["output"], format="jsonl"), uid="out")
    )
    return job
