"""``python -m coeval``: the ``coeval`` command."""

from coeval.cli.entry import coeval

if __name__ == "__main__":
    coeval()
