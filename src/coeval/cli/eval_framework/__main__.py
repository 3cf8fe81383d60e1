"""``python -m coeval.cli.eval_framework``: the command where no script is installed."""

from coeval.cli.entry import eval_framework

eval_framework()
