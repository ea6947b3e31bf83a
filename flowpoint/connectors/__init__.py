"""Sources and sinks that come in the box. Each says in its docstring what it guarantees; docs/connectors.md has all."""

from flowpoint.connectors.collection import CollectionSource
from flowpoint.connectors.files_sink import FileSink
from flowpoint.connectors.files_source import FileSource
from flowpoint.connectors.output import CallbackSink, PrintSink
from flowpoint.connectors.sequence import SequenceSource

__all__ = ["CallbackSink", "CollectionSource", "FileSink", "FileSource", "PrintSink", "SequenceSource"]
