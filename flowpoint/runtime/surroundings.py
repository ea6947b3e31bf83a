"""What an attempt finds in its worker: the host, the storage, the links, the user's functions.

Not here: what the coordinator wants of the attempt (`messages.Deploy`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from flowpoint.host.base import Host
from flowpoint.runtime.answers import Report
from flowpoint.runtime.contracts import OperatorDef
from flowpoint.snapshot.local_files import LocalFiles
from flowpoint.snapshot.storage import Storage
from flowpoint.state.database import OpenDatabase
from flowpoint.transport.exchange import Exchange


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What assembling needs besides the `Deploy` message. `admit` lets links of other workers in, once all channels
    are declared. `local`: the local files that `storage` keeps, and state may be opened from."""

    host: Host
    worker: int
    storage: Storage
    local: LocalFiles
    exchange: Exchange
    admit: Callable[[], None]
    functions: Mapping[str, OperatorDef]
    report: Report
    log: Callable[[str], None]
    open_database: OpenDatabase
