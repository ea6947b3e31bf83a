"""Count words: every word comes out with how often it has been seen so far.

Shows: a source of files, flat_map, key_by, a count per key, a sink of files.

    flowpoint run jobs/wordcount.py --param input='books/*.txt' --param output=out

Each line of the output is [word, count]; the greatest count of a word is its final one.
"""

from flowpoint import Job
from flowpoint.connectors import FileSink, FileSource


def build(params):
    job = Job("wordcount")
    (
        job.source(FileSource(params["input"]), uid="lines")
        .flat_map(str.split)
        .key_by(lambda word: word)
        .count(uid="counts")
        .sink(FileSink(params["output"], format="jsonl"), uid="out")
    )
    return job
