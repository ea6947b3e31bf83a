"""`python -m flowpoint` is the `flowpoint` command.

Python puts the working directory before its own library, where a file of the user's that is called numbers.py or
queue.py would be taken for the library's. The command does without, unless FlowPoint itself was found there.
"""

import os
import sys
from pathlib import Path

if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()] != [str(Path(__file__).parent.parent)]:
    del sys.path[0]

from flowpoint.cli.main import main

if __name__ == "__main__":
    main()
