"""One file per kind of operator that is more than a fragment of a generated loop."""
