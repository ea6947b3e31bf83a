"""One seed, one run: a world is drawn and made, the program lives through faults, and is judged.

Two phases. *Safety*: faults happen, and whoever started the program starts it again when it dies. Whatever happens, no
checker may object. *Liveness*: faults stop and what lasts is healed; now the program must finish within
`liveness_seconds` of virtual time. Then the scenario judges the result.

The same seed and scenario give the same digest, in any interpreter.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol, TypeAlias

from flowpoint.sim.fault_injector import FaultInjector
from flowpoint.sim.faults import FaultKind, FaultMix
from flowpoint.sim.loop import SimulationStopped
from flowpoint.sim.report import Outcome
from flowpoint.sim.world import SIGKILL, InvariantBroken, SimProcess, SimWorld

RESTART_DELAY = (0.1, 1.5)
SETTLE_SECONDS = 1.0
STEP_COSTS = (2e-6, 2e-5, 2e-4)


class Scenario(Protocol):
    """One run's program, workload and oracle. Made anew for each seed."""

    name: str
    safety_seconds: float
    liveness_seconds: float
    mix: FaultMix

    def set_up(self, world: SimWorld) -> None:
        """Register programs, put input files in place, install checkers."""

    def root(self) -> tuple[str, Sequence[str]]:
        """Role and arguments of the process that a person starts, and starts again when it is killed."""

    def may_start_again(self, process: SimProcess) -> bool:
        """Whether it is right that the root process ended like this, by itself and not with 0, and can be retried."""

    def damage(self, world: SimWorld) -> str | None:
        """Damage a file of the newest checkpoint and say which; None when there is none, or it would not be fair."""

    def ask(self, world: SimWorld, request: FaultKind) -> None:
        """Ask the running program for a checkpoint, a stop or a cancellation, as a person would, if it can be asked."""

    def judge(self, world: SimWorld) -> None:
        """The program has finished: raise InvariantBroken unless its output is right."""


ScenarioFactory: TypeAlias = Callable[[int], Scenario]


class NeverFinished(InvariantBroken):
    """The program did not finish although nothing stood in its way any more."""


def simulate(seed: int, make_scenario: ScenarioFactory, echo: Callable[[str], None] | None = None) -> Outcome:
    """Run one seed to its end.

    Args:
        seed: decides everything.
        make_scenario: the scenario of a seed.
        echo: gets every line of the story as it happens.
    """
    scenario = make_scenario(seed)
    world = _draw_world(seed, echo)
    failure = ""
    try:
        world.trace.tell("world", f"seed {seed}, {scenario.name}; {scenario.mix}")
        scenario.set_up(world)
        world.run(_live(world, scenario))
        scenario.judge(world)
        if world.complaints:
            failure = f"{len(world.complaints)} complaints, the first: {world.complaints[0]}"
    except (InvariantBroken, SimulationStopped) as error:
        failure = f"{type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001 - a fault of the simulation itself is a failed seed too, with its trace
        failure = "".join(traceback.format_exception(error))
    finally:
        digest, seconds = world.trace.digest(), world.loop.time()
        world.close()
    trace = world.trace
    return Outcome(seed, scenario.name, failure, digest, world.loop.steps, seconds, tuple(trace.lines), trace.marks)


def _draw_world(seed: int, echo: Callable[[str], None] | None) -> SimWorld:
    """A quarter of the worlds run callbacks in asyncio's own order, so that impossible schedules can be told apart."""
    draw = Random(f"{seed}:world")
    return SimWorld(
        seed,
        fifo=draw.random() < 0.25,
        step_cost=draw.choice(STEP_COSTS),
        reuse_pids=draw.random() < 0.25,
        echo=echo,
    )


async def _live(world: SimWorld, scenario: Scenario) -> None:
    keeper = asyncio.create_task(_keep_running(world, scenario), name="keeper")
    injector = FaultInjector(
        world, scenario.mix, lambda: scenario.damage(world), lambda request: scenario.ask(world, request)
    )
    faults = asyncio.create_task(injector.run(), name="faults")
    await asyncio.wait({keeper}, timeout=scenario.safety_seconds)
    faults.cancel()
    await asyncio.wait({faults})
    if not faults.cancelled():
        faults.result()
    world.heal()
    world.trace.tell("world", "no more faults" if not keeper.done() else "the program has finished")
    await asyncio.wait({keeper}, timeout=scenario.liveness_seconds)
    if not keeper.done():
        waiting = "\n  ".join(world.loop.places())
        raise NeverFinished(f"not finished {scenario.liveness_seconds} s after the last fault; waiting:\n  {waiting}")
    await keeper
    await asyncio.sleep(SETTLE_SECONDS)
    if world.living():
        raise InvariantBroken(f"still alive after the program has ended: {[one.name for one in world.living()]}")


async def _keep_running(world: SimWorld, scenario: Scenario) -> None:
    """The person at the shell, who starts the same command again until it says it is done."""
    draw = world.stream("keeper")
    while True:
        role, args = scenario.root()
        process = world.start(role, args)
        code = await process.wait_exit()
        if code == 0:
            return
        if code != SIGKILL and not scenario.may_start_again(process):
            raise InvariantBroken(f"the program gave up: {process.name} {process.exit_reason}")
        await asyncio.sleep(draw.uniform(*RESTART_DELAY))
