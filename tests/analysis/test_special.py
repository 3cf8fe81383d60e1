"""The special functions are scipy's own, and whoever imports scipy.special later gets all of it."""

from __future__ import annotations

import subprocess
import sys

import pytest

_CHECK = """
import sys
from coeval.analysis import special
assert "scipy.special" not in sys.modules and "numpy.testing" not in sys.modules
import scipy.optimize
import scipy.special
assert scipy.special.logsumexp([0.0, 0.0]) > 0.69
names = [name for name in vars(special) if name[0] != "_" and hasattr(scipy.special, name)]
assert len(names) >= 10
assert all(getattr(special, name) is getattr(scipy.special, name) for name in names)
"""


@pytest.mark.process
@pytest.mark.parametrize("before", ["", "import scipy.special\n"], ids=["first", "after scipy.special"])
def test_functions_are_those_of_scipy(before: str) -> None:
    check = (
        _CHECK if not before else before + _CHECK.replace('"scipy.special" not in sys.modules and ', "", 1)
    )
    check = check.replace('assert "numpy.testing" not in sys.modules\n', "") if before else check
    ended = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
