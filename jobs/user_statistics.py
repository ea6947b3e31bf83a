"""Running statistics per user, from a generated stream of page views.

Shows: a process function that keeps a value, a list and a map per key.

    flowpoint run jobs/user_statistics.py --param output=out [--param views=10000]

Each line of the output is [user, views, last three pages, most viewed page]. The views of a user stay in order, as one
source feeds the keyed operator directly: the output is the same in every run, at any parallelism.
"""

from flowpoint import Job, KeyedProcessFunction, ListState, MapState, ValueState
from flowpoint.connectors import FileSink, SequenceSource

PAGES = ("home", "search", "cart", "help")
USERS = 7


def user_of(n):
    return f"user-{n % USERS}"


def page_of(n):
    return PAGES[(n // USERS + n % 3) % len(PAGES)]


class Statistics(KeyedProcessFunction):
    views = ValueState("views", default=0)
    recent = ListState("recent")
    views_of = MapState("views_of")

    def process(self, n, ctx):
        page = page_of(n)
        self.views.value += 1
        self.views_of[page] = self.views_of.get(page, 0) + 1

        recent = [*self.recent, page][-3:]
        self.recent.clear()
        self.recent.extend(recent)

        favourite = min(self.views_of, key=lambda page: (-self.views_of[page], page))
        yield ctx.key, self.views.value, recent, favourite


def build(params):
    job = Job("user-statistics")
    (
        job.source(SequenceSource(0, int(params.get("views", 10_000))), uid="views", parallelism=1)
        .key_by(user_of)
        .process(Statistics(), uid="statistics")
        .sink(FileSink(params["output"], format="jsonl"), uid="out")
    )
    return job
