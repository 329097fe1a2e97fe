"""Tests of the solvers, and what they share."""
