"""FlowPoint: a stateful stream processor whose output is exact under `kill -9`.

What a job's author imports is here, loaded when it is first asked for: `import flowpoint` costs nothing, and a worker
pays only for what its job uses. Sources and sinks are in `flowpoint.connectors`.

Not here: anything but names. `flowpoint.api` says where each one lives.
"""

from __future__ import annotations

from importlib import import_module

# typing's name for it; typing itself would be looked for in the working directory under `python -m flowpoint`.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from flowpoint.api import END as END
    from flowpoint.api import Aggregate as Aggregate
    from flowpoint.api import BroadcastState as BroadcastState
    from flowpoint.api import ConnectorContext as ConnectorContext
    from flowpoint.api import CoProcessFunction as CoProcessFunction
    from flowpoint.api import Job as Job
    from flowpoint.api import KeyedProcessFunction as KeyedProcessFunction
    from flowpoint.api import KeyedStream as KeyedStream
    from flowpoint.api import ListState as ListState
    from flowpoint.api import MapState as MapState
    from flowpoint.api import ProcessContext as ProcessContext
    from flowpoint.api import ProcessFunction as ProcessFunction
    from flowpoint.api import ReducingState as ReducingState
    from flowpoint.api import Sink as Sink
    from flowpoint.api import SinkWriter as SinkWriter
    from flowpoint.api import Source as Source
    from flowpoint.api import SourceReader as SourceReader
    from flowpoint.api import Split as Split
    from flowpoint.api import Stream as Stream
    from flowpoint.api import ValueState as ValueState

__version__ = "0.1.0"

__all__ = [
    "END",
    "Aggregate",
    "BroadcastState",
    "CoProcessFunction",
    "ConnectorContext",
    "Job",
    "KeyedProcessFunction",
    "KeyedStream",
    "ListState",
    "MapState",
    "ProcessContext",
    "ProcessFunction",
    "ReducingState",
    "Sink",
    "SinkWriter",
    "Source",
    "SourceReader",
    "Split",
    "Stream",
    "ValueState",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        _refuse_connector(name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module("flowpoint.api"), name)
    globals()[name] = value  # found directly from now on
    return value


def _refuse_connector(name: str) -> None:
    """Say where sources and sinks are. An ImportError: `from flowpoint import ...` drops what an AttributeError says."""
    # Classes only: nothing is loaded for the name of a submodule.
    if name[:1].isupper() and hasattr(import_module("flowpoint.connectors"), name):
        raise ImportError(
            f"cannot import {name} from flowpoint: it is in flowpoint.connectors;"
            f" write `from flowpoint.connectors import {name}`",
            name=__name__,
        )


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
