"""Tests of the solvers, and what they share."""

import pytest

# So that its assertions show their values, as those of test modules do.
pytest.register_assert_rewrite("tests.solvers.checks")
