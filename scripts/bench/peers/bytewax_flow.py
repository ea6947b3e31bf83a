"""The bench's workloads as a Bytewax dataflow: every update of a key's running result goes to a file as `key,value`."""

import os
from pathlib import Path

import bytewax.operators as op
from bytewax.connectors.files import DirSink, DirSource
from bytewax.dataflow import Dataflow

WORKLOAD = os.environ["BENCH_WORKLOAD"]


def words_of(line):
    return [(word, 1) for word in line.split(" ")]


def sum_of(line):
    key, value = line.split(",")
    return [(key, int(value))]


def add(total, value):
    total = value if total is None else total + value
    return total, total


def row(item):
    return item[0], f"{item[0]},{item[1]}"


flow = Dataflow("bench")
lines = op.input("lines", flow, DirSource(Path(os.environ["BENCH_INPUT"])))
pairs = op.flat_map("pairs", lines, words_of if WORKLOAD == "W1" else sum_of)
totals = op.stateful_map("totals", pairs, add)
sink = DirSink(Path(os.environ["BENCH_OUTPUT"]), int(os.environ["BENCH_WORKERS"]))
op.output("out", op.map("rows", totals, row), sink)
