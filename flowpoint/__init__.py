"""FlowPoint: a stateful stream processor whose output is exact under `kill -9`."""

__version__ = "0.1.0"
