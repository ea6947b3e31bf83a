"""Names of the files by which FlowPoint knows its own folders wherever they are.

Not here: what is in them (`connectors.folder_owner`).
"""

from __future__ import annotations

from typing import Final

OWNER_FILE: Final = ".flowpoint-owner"
"""In an output folder: whose it is."""
