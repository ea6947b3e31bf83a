"""Run simulated campaigns, or tell the story of one seed.

scripts/sim --seeds 1000 --jobs 2      seeds 0..999; exit 1 when one fails
scripts/sim --seed 17 -v               the whole story of seed 17, as it happens
"""

from __future__ import annotations

import argparse
import gc
import importlib
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

from flowpoint.sim.report import Campaign, Outcome
from flowpoint.sim.run import ScenarioFactory, simulate

FAILURES_TOLD = 3
CHUNK = 25


def find_scenario(name: str) -> ScenarioFactory:
    """The scenario factory "module:attribute"."""
    module, _, attribute = name.partition(":")
    factory: ScenarioFactory = getattr(importlib.import_module(module), attribute)
    return factory


def run_chunk(scenario: str, first: int, last: int) -> list[Outcome]:
    """Run some seeds, in a process of its own when there are several jobs."""
    factory = find_scenario(scenario)
    # Between runs memory is collected; what was there before the first one need not be looked at each time.
    gc.freeze()
    outcomes = [simulate(seed, factory) for seed in range(first, last)]
    return [replace(outcome, story=()) if outcome.ok else outcome for outcome in outcomes]


def run_campaign(scenario: str, first: int, count: int, jobs: int) -> int:
    """Run many seeds and tell what they came to."""
    campaign, began = Campaign(), time.monotonic()
    starts = range(first, first + count, CHUNK)
    ends = [min(start + CHUNK, first + count) for start in starts]
    with ProcessPoolExecutor(jobs) as pool:
        for outcomes in pool.map(run_chunk, [scenario] * len(starts), starts, ends):
            for outcome in outcomes:
                campaign.add(outcome)
                if not outcome.ok and len(campaign.failures) <= FAILURES_TOLD:
                    print(outcome.tell(), flush=True)
    print(campaign.tell(time.monotonic() - began))
    return 1 if campaign.failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="run this seed only")
    parser.add_argument("-v", "--verbose", action="store_true", help="with --seed: tell the story as it happens")
    parser.add_argument("--jobs", type=int, default=1, help="processes to use")
    parser.add_argument("--scenario", default="flowpoint.sim.scenario:JobScenario", help="module:factory")
    options = parser.parse_args()
    if options.seed is None:
        return run_campaign(options.scenario, options.first, options.seeds, options.jobs)
    outcome = simulate(options.seed, find_scenario(options.scenario), print if options.verbose else None)
    print(outcome.tell())
    return 0 if outcome.ok else 1


if __name__ == "__main__":
    sys.exit(main())
