"""State to files and back: storage, commit log, manifests, writing and reading state, retention."""
