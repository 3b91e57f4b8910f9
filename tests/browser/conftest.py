"""Without playwright there is nothing to collect: `make test-browser` installs it."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("playwright") else ["test_*.py"]
