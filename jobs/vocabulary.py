"""How many different words begin with each letter.

Shows: two keyed steps in a row. The first counts each word; the first time a word is seen, the second counts it for its
letter.

    flowpoint run jobs/vocabulary.py --param input='books/*.txt' --param output=out

Each line of the output is [letter, different words so far]; the greatest number of a letter is its final one.
"""

import re

from flowpoint import Job
from flowpoint.connectors import FileSink, FileSource


def words_of(line):
    return re.findall(r"[a-z]+", line.lower())


def build(params):
    job = Job("vocabulary")
    (
        job.source(FileSource(params["input"]), uid="lines")
        .flat_map(words_of)
        .key_by(lambda word: word)
        .count(uid="words")
        .filter(lambda counted: counted[1] == 1)
        .map(lambda counted: counted[0][0])
        .key_by(lambda letter: letter)
        .count(uid="letters")
        .sink(FileSink(params["output"], format="jsonl"), uid="out")
    )
    return job
