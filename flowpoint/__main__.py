"""The `flowpoint` command, also as `python -m flowpoint`.

Before anything else is imported, standard streams that are closed are opened (`host.standard_streams`), and Python's library
is put first and the working directory last (`host.module_path`). Where
nobody but `python -m` names the working directory, the command does without it, as the `flowpoint` script does.
"""

import sys

from flowpoint.host.module_path import put_in_order
from flowpoint.host.standard_streams import open_missing_streams

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]
open_missing_streams()
put_in_order()

from flowpoint.cli.main import main  # noqa: E402  what it imports is looked for in that order

if __name__ == "__main__":
    main()
