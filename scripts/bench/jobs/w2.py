"""W2: the running sum of each key's values; every update goes to the sink."""

from flowpoint import Job
from flowpoint.connectors import FileSink, FileSource


def parse(line: str) -> tuple[str, int]:
    key, value = line.split(",")
    return key, int(value)


def build(params: dict[str, str]) -> Job:
    job = Job("bench-w2")
    (
        job.source(FileSource(params["input"]), uid="lines")
        .map(parse, uid="pairs")
        .key_by(lambda pair: pair[0])
        .sum(lambda pair: pair[1], uid="sums")
        .sink(FileSink(params["output"], format="jsonl"), uid="out")
    )
    return job
