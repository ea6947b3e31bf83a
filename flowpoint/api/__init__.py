"""What a job's author imports, and the contracts that connectors are written against.

Each name is loaded from its module when it is first asked for, so that a connector that needs `Source` does not load
the job builder, nor a job without state the state kinds.

Not here: code of its own.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from flowpoint.api.connected import ConnectedStreams as ConnectedStreams
    from flowpoint.api.functions import Aggregate as Aggregate
    from flowpoint.api.functions import CoProcessFunction as CoProcessFunction
    from flowpoint.api.functions import KeyedProcessFunction as KeyedProcessFunction
    from flowpoint.api.functions import OpenContext as OpenContext
    from flowpoint.api.functions import PlainContext as PlainContext
    from flowpoint.api.functions import ProcessContext as ProcessContext
    from flowpoint.api.functions import ProcessFunction as ProcessFunction
    from flowpoint.api.functions import Timers as Timers
    from flowpoint.api.job import Job as Job
    from flowpoint.api.stream import KeyedStream as KeyedStream
    from flowpoint.api.stream import Stream as Stream
    from flowpoint.runtime.contracts import END as END
    from flowpoint.runtime.contracts import Clock as Clock
    from flowpoint.runtime.contracts import ConnectorContext as ConnectorContext
    from flowpoint.runtime.contracts import HasGuarantee as HasGuarantee
    from flowpoint.runtime.contracts import Sink as Sink
    from flowpoint.runtime.contracts import SinkWriter as SinkWriter
    from flowpoint.runtime.contracts import Source as Source
    from flowpoint.runtime.contracts import SourceReader as SourceReader
    from flowpoint.runtime.contracts import Split as Split
    from flowpoint.state.broadcast import BroadcastState as BroadcastState
    from flowpoint.state.kinds import ListState as ListState
    from flowpoint.state.kinds import MapState as MapState
    from flowpoint.state.kinds import ReducingState as ReducingState
    from flowpoint.state.kinds import ValueState as ValueState

_HOME_OF: Final = {
    "END": "flowpoint.runtime.contracts",
    "Aggregate": "flowpoint.api.functions",
    "BroadcastState": "flowpoint.state.broadcast",
    "Clock": "flowpoint.runtime.contracts",
    "CoProcessFunction": "flowpoint.api.functions",
    "ConnectedStreams": "flowpoint.api.connected",
    "ConnectorContext": "flowpoint.runtime.contracts",
    "HasGuarantee": "flowpoint.runtime.contracts",
    "Job": "flowpoint.api.job",
    "KeyedProcessFunction": "flowpoint.api.functions",
    "KeyedStream": "flowpoint.api.stream",
    "ListState": "flowpoint.state.kinds",
    "MapState": "flowpoint.state.kinds",
    "OpenContext": "flowpoint.api.functions",
    "PlainContext": "flowpoint.api.functions",
    "ProcessContext": "flowpoint.api.functions",
    "ProcessFunction": "flowpoint.api.functions",
    "ReducingState": "flowpoint.state.kinds",
    "Sink": "flowpoint.runtime.contracts",
    "SinkWriter": "flowpoint.runtime.contracts",
    "Source": "flowpoint.runtime.contracts",
    "SourceReader": "flowpoint.runtime.contracts",
    "Split": "flowpoint.runtime.contracts",
    "Stream": "flowpoint.api.stream",
    "Timers": "flowpoint.api.functions",
    "ValueState": "flowpoint.state.kinds",
}

__all__ = list(_HOME_OF)


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value  # found directly from now on
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME_OF])
