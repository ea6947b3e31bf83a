"""For tests of jobs: one function at a time, with state, timers and event time, in the test's own process.

    from flowpoint.testing import KeyedHarness

Not here: whole jobs. `Job.run()` runs them in one process as well (docs/testing.md).
"""

from __future__ import annotations

from flowpoint.testing.harness import ConnectedHarness as ConnectedHarness
from flowpoint.testing.harness import KeyedHarness as KeyedHarness
from flowpoint.testing.harness import PlainHarness as PlainHarness
from flowpoint.testing.operator import PendingTimer as PendingTimer
from flowpoint.testing.operator import Snapshot as Snapshot
from flowpoint.testing.operator import StateView as StateView

__all__ = ["ConnectedHarness", "KeyedHarness", "PendingTimer", "PlainHarness", "Snapshot", "StateView"]
